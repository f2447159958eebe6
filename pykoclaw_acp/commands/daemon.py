"""Requests of commands to the daemon, and its errors in words."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any, Final

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import CommandFailed, DaemonNotRunning
from pykoclaw_acp.front import call as front
from pykoclaw_acp.front.resuming import Notifications, Resumed
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.system import lineage

PREFIX: Final = "_pykoclaw.dev/"
ANSWER_WAIT: Final = 10.0  # s; for a request that is answered from the database
_NOT_FOUND: Final = -32002


class NoSuchSession(CommandFailed):
    """The daemon has no session of that id or name."""


def ask(
    method: str,
    *,
    start: bool = True,
    timeout: float | None = ANSWER_WAIT,
    lock: int | None = None,
    **params: Any,
) -> Any:
    """Send a request and return its result; `start`: start a daemon if none runs, with the `lock` on
    that, if the caller has it; `timeout` in s.

    Raises DaemonNotRunning, and CommandFailed with the daemon's message.
    """
    with _said_plainly():
        return front.call(
            Places.find(), PREFIX + method, params, start=start, timeout=timeout, lock=lock
        )


def require_operator() -> None:
    """Check permission before a command acts on processes itself: inside a session, the daemon
    decides.

    Raises CommandFailed there if it refuses, or does not run.
    """
    if lineage.is_inside(os.getpid()):
        try:
            ask("status", start=False)
        except DaemonNotRunning as error:
            raise CommandFailed(
                "This command runs inside of a session, and no daemon is there to say whether it may. "
                "Use a terminal of your own."
            ) from error


def follow(session: str, **params: Any) -> Notifications:
    """Notifications of a session's log (`method` without our prefix, `params`); returns the
    daemon's answer.

    Raises as `ask`, and DaemonNotRunning when the connection ends.
    """
    return (yield from stream("follow", session=session, **params))


def stream(method: str, *, served: bool = False, **params: Any) -> Notifications:
    """Notifications that a method sends before its answer, which is returned; starts a daemon if
    none runs. `served`: as in `front.follow`. Raises as `follow`.
    """
    with _said_plainly():
        return (
            yield from front.follow(
                Places.find(), PREFIX + method, params, start=True, served=served
            )
        )


def follow_live(
    session: str,
    turns: int | None,
    begin: Callable[[], None] = lambda: None,
    *,
    present: bool = False,
) -> Iterator[dict[str, Any]]:
    """Follow a session until it is closed, across restarts of the daemon; each event once. `begin` is
    called before each connection, on which the pending requests are told anew.
    """

    def send(after: int | None, served: bool) -> Notifications:
        begin()
        place = {"turns": turns} if after is None else {"after": after}
        return follow(session, served=served, live=True, present=present, **place)

    yield from Resumed(send, DaemonNotRunning).messages()


@contextlib.contextmanager
def _said_plainly() -> Iterator[None]:
    """Raise a refused call as the error that a command tells its user."""
    try:
        yield
    except front.NoDaemon as error:
        raise DaemonNotRunning(f"{error} A client starts it, or `pykoclaw-acp serve`.") from error
    except front.DaemonAbsent as error:
        gone = DaemonNotRunning(str(error))
        gone.stood = error.stood
        raise gone from error
    except front.CallFailed as error:
        if error.code == _NOT_FOUND:
            word = (error.data or {}).get("sessionId", "")
            raise NoSuchSession(
                f"No session has the id or the name {word}. `pykoclaw-acp sessions list --all` lists sessions."
            ) from error
        failed = CommandFailed(error.message)
        failed.certain = error.is_refusal
        failed.kind = ErrorKind((error.data or {}).get("errorKind") or ErrorKind.INTERNAL)
        raise failed from error
