"""For programs that share conversations with the daemon, such as a chat bot: a lock around a turn, and
a prompt through the daemon. Imports the standard library only; docs/shared.md is the manual.

>>> from pykoclaw_acp import shared
>>> reply = shared.prompt("wa-andy-1@g.us", "What is new?")
>>> with shared.turn_lock("wa-andy-1@g.us", program="whatsapp"):
...     run_a_turn_of_your_own()
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final
from uuid import UUID, uuid4

from pykoclaw_acp.errors import StartupError
from pykoclaw_acp.front.call import CallFailed, DaemonAbsent, call, follow, given_environment, unfit
from pykoclaw_acp.front.resuming import PATIENCE, Notifications, Resumed
from pykoclaw_acp.front.words_of_claude import WordsOfClaude
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.system.turn_lock import Holder, TurnLock

__all__ = ["Busy", "NotReached", "Refused", "Reply", "prompt", "turn_lock"]

RESOLVE: Final = "_pykoclaw.dev/conversations/resolve"
LOOK: Final = 0.05  # s between two attempts to take a lock
_held: set[tuple[str, str]] = set()  # locks of this process, by data directory and conversation


class Busy(TimeoutError):
    """Another program has had the conversation's lock for all of the time; `holder` says which."""

    def __init__(self, conversation: str, holder: Holder) -> None:
        super().__init__(f"A turn of {conversation} is run by {holder}. Try again later.")
        self.holder = holder


class NotReached(ConnectionError):
    """There is no daemon, and none could be started, or it was gone for a minute, or a start has taken
    ten; or it answers with an error after it may have taken the prompt.

    The turn may run, or have run; the same prompt with the same `key` is that turn.
    """


class Refused(Exception):
    """The daemon has certainly refused the prompt; nothing of it was kept. `code` is that of JSON-RPC."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Reply:
    """A turn that has ended, with what it has led to. `state`: `done`, `failed`, `cancelled`, or
    `unknown`.

    `text`: what Claude has said, also before an error: the pieces, joined, but for empty lines at the
    ends of several turns. `error`: a sentence; None for `done`.
    `session`: the id under which clients have the conversation. `joined`: the prompt had come
    before under its key, and was not run again. `goes_on`: it has left something in the background
    that runs, and that is not waited for any longer. `blocked`: what is said of a hook that has taken
    the prompt away, as Markdown; None: Claude was given it.
    """

    text: str
    state: str
    error: str | None
    session: str
    turn: str
    joined: bool
    goes_on: bool = False
    blocked: str | None = None


def prompt(
    conversation: str,
    text: str,
    *,
    key: str | None = None,
    on_text: Callable[[str], None] | None = None,
    create: bool = True,
    start: bool = True,
    data: str | os.PathLike[str] | None = None,
    whole: bool = True,
) -> Reply:
    """Run a turn of a conversation through the daemon, and wait for its end, and for what Claude
    says of the work that it leaves in the background, an hour at most; not `whole`: for its end alone.

    `conversation`: a name such as `wa-andy-1@g.us`, or an id; without one of this name a
    conversation begins, unless `create` is false. `on_text` is called with each piece of the answer
    as it comes. `key`: the prompt runs once, however often it comes under this key. `start`: start
    a daemon if none runs. `data`: the data directory, if not that of the settings.

    Raises Refused, NotReached, ValueError for a text that is empty or too long, and RuntimeError if this process holds
    the conversation's lock, which the daemon takes itself.
    """
    if why := unfit(text):
        raise ValueError(why)
    places = _places(data)
    _require_free(places, conversation)
    params = {
        "session": conversation,
        "text": text,
        "whole": whole,
        "idempotencyKey": key or str(uuid4()),
        "environment": given_environment(),
    }
    begin = create

    def send(after: int | None, served: bool) -> Notifications:
        nonlocal begin
        if begin or any(place == places.data for place, _ in _held.copy()):
            wanted = {"conversation": conversation, "create": begin}
            try:
                found = call(places, RESOLVE, wanted, start=start, served=served)
            except DaemonAbsent as error:
                error.stood = None  # no prompt was sent
                raise
            _require_free(places, found["conversation"])  # which may have been given by an id
            begin = False
        sent = {**params, "after": after}
        return (yield from follow(places, "_pykoclaw.dev/prompt", sent, start=start, served=served))

    sending = Resumed(send, DaemonAbsent, PATIENCE if start else 0)
    try:
        return _reply(sending.messages(), on_text)
    except (CallFailed, StartupError) as error:
        if sending.reached:
            raise NotReached(f"{error} The prompt may have been taken before.") from error
        if isinstance(error, CallFailed) and error.is_refusal:
            raise Refused(error.code, str(error)) from error
        raise NotReached(str(error)) from error


def _require_free(places: Places, conversation: str) -> None:
    if (places.data, conversation) in _held:
        raise RuntimeError("The daemon takes the conversation's lock itself: release it first.")


def _reply(notifications: Notifications, on_text: Callable[[str], None] | None) -> Reply:
    words = WordsOfClaude()
    try:
        while True:
            piece = words.piece(next(notifications)["params"].get("update") or {})
            if piece and on_text is not None:
                on_text(piece)
    except StopIteration as end:
        found = end.value
    error = found["error"]
    return Reply(
        text=found["text"],
        state=found["state"],
        error=None if error is None else error["message"],
        session=found["session"],
        turn=found["turnId"],
        joined=found["joined"],
        goes_on=found.get("goesOn", False),  # a daemon of before says neither
        blocked=found.get("blocked"),
    )


@contextlib.contextmanager
def turn_lock(
    conversation: str,
    *,
    program: str,
    wait: float = 60.0,
    data: str | os.PathLike[str] | None = None,
) -> Iterator[None]:
    """Hold the lock of a conversation, by its name, while running a turn of it.

    Waits at most `wait` seconds, then raises Busy. The lock is released at the end of the block, and
    when the process dies. `program` is told to those who wait. Raises ValueError for the id of a
    session: nobody else would take a lock by that.
    """
    if _is_id(conversation):
        raise ValueError(
            f"{conversation} is the id of a session. Others take the lock by the conversation's name, such as"
            " wa-andy-1@g.us, which `pykoclaw-acp sessions show` tells. Nothing was locked."
        )
    place = _places(data).data
    until = time.monotonic() + wait
    while not isinstance(lock := TurnLock.take(place, conversation, program), TurnLock):
        if time.monotonic() >= until:
            raise Busy(conversation, lock)
        time.sleep(LOOK)
    _held.add((place, conversation))
    try:
        yield
    finally:
        _held.discard((place, conversation))
        lock.release()


def _is_id(conversation: str) -> bool:
    try:
        return str(UUID(conversation)) == conversation.lower()
    except ValueError:
        return False


def _places(data: str | os.PathLike[str] | None) -> Places:
    found = Places.find()
    return found if data is None else Places(os.path.abspath(data), found.state)
