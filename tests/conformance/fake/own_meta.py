"""Keys of `_meta` that are pykoclaw-acp's own, as the fake agent keeps them."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final

from tests.conformance.fake.installation import Failure, Frame, Session, invalid

PREFIX: Final = "pykoclaw.dev/"


def _is_id(value: object) -> bool:
    try:
        return str(uuid.UUID(str(value))) == value
    except ValueError:
        return False


_NAMES: Final = ("tools", "allowedTools", "disallowedTools")
_AWAY: Final = ("wait", "deny", "allow", "park")
_KNOWN: Final[dict[str, Callable[[Any], bool]]] = {
    **{name: lambda value: isinstance(value, list) for name in _NAMES},
    **{name: lambda value: isinstance(value, str) for name in ("systemPrompt", "model", "account")},
    **{name: lambda value: value == "default" for name in ("mode", "effort")},
    "maxTurns": lambda value: isinstance(value, int) and value > 0,
    "settingSources": lambda value: value == ["user"],
    "env": lambda value: value == {},
    "fast": lambda value: isinstance(value, bool),
    "sessionId": _is_id,
    "awayPolicy": lambda value: value in _AWAY,
    "steering": lambda value: value in ("steer", "queue"),
    "whole": lambda value: isinstance(value, bool),
    "replay": lambda value: isinstance(value, dict) and _is_count(value.get("last")),
    "after": lambda value: isinstance(value, int),
    "messageId": lambda value: isinstance(value, str) and bool(value),
    "idempotencyKey": lambda value: isinstance(value, str),
}


def keys(params: Frame) -> Frame:
    """Those of a request, each of which it may have and with a value that it may have."""
    found = params.get("_meta") or {}
    own = {key[len(PREFIX) :]: found[key] for key in found if key.startswith(PREFIX)}
    for name, value in own.items():
        if name not in _KNOWN or not _KNOWN[name](value):
            raise invalid(f"_meta.{PREFIX}{name}")
    return own


def placed(session: Session, after: int = 0) -> list[Frame]:
    """What a session has said after a position, each with its own."""
    history = list(enumerate(session.history, 1))[after:]
    return [
        {**update, "_meta": {**update.get("_meta", {}), f"{PREFIX}seq": seq}}
        for seq, update in history
    ]


def forked(session: Session, asked: Frame) -> tuple[int, Frame]:
    """The position at which a fork ends, and what the response says of it."""
    upto = _end(session, asked["messageId"]) if "messageId" in asked else len(session.history)
    point = {"sessionId": session.id, "seq": upto, "runningTurnLeftOut": False}
    return upto, {f"{PREFIX}forkedFrom": point}


def _end(session: Session, message: str) -> int:
    """The position at which the turn of a message ends."""
    begins = [one.get("messageId") for one in session.history]
    if message not in begins:
        raise invalid(f"_meta.{PREFIX}messageId")
    after = begins.index(message)
    for at, update in enumerate(session.history[after:], after):
        if update["sessionUpdate"] == "user_message_chunk" and update["messageId"] != message:
            return at
    return len(session.history)


def newest(session: Session, turns: int) -> tuple[int, Frame]:
    """The position before the newest turns, and what the response says of it."""
    begins: dict[str, int] = {}
    for at, update in enumerate(session.history):
        if update["sessionUpdate"] == "user_message_chunk":
            begins.setdefault(update["messageId"], at)
    left = max(len(begins) - turns, 0)
    after = list(begins.values())[left] if left else 0
    return after, {f"{PREFIX}replay": {"after": after, "turnsLeftOut": left}}


def position(session: Session, after: int) -> int:
    """A position in the session; one beyond its end is an error."""
    if after > len(session.history):
        raise Failure(-32602, "The log ends before.", {"lastSeq": len(session.history)})
    return after


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value > 0
