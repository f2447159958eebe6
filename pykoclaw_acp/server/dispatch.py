"""An entry of the dispatch table: parameters, handler, and how it is run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

P = TypeVar("P")
C = TypeVar("C")


@dataclass(frozen=True, slots=True)
class Later:
    """Returned by a handler whose ordered part is done: the response is awaited out of order, and
    not at all once the client is gone.
    """

    answer: Awaitable[Any]


@dataclass(frozen=True, slots=True)
class Method(Generic[C, P]):
    """An entry of the dispatch table.

    Calls that name the same session begin in the order in which they came, each after the one
    before has returned or handed back a `Later`; calls without a session do not wait for anything.
    `before_initialize`: may be called first. `answers_cancel`: after `$/cancel_request` it still
    answers by itself, through `Call.on_cancel`. `changes`: what it changes is in the database and in
    memory: once begun, it goes on to its end and answers, whoever cancels it or leaves. `heavy`: its
    answer may be large, or cost much: a client has one such call at a time, until it has taken the
    answer. `slow`: it waits for commits: a client has one such call at a time, so that those of
    others do not queue behind all of its own. `opens`: it reads files and the database for a
    session, as does each call whose session is not in memory: a client process has a few such calls
    at a time. `takes_unseen`: what it brings may reach Claude before it answers, so that nobody is
    told to send it again. `meta`: keys of ours that its `_meta` may have; with another one the call
    is refused.
    """

    params: type[P]
    handler: Callable[[C, P], Awaitable[Any]]
    before_initialize: bool = False
    answers_cancel: bool = False
    changes: bool = False
    heavy: bool = False
    slow: bool = False
    opens: bool = False
    takes_unseen: bool = False
    meta: frozenset[str] = frozenset()
