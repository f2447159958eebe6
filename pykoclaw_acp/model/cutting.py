"""Payloads of tool calls, cut for a replay: a history may hold hundreds of megabytes of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import msgspec

from pykoclaw_acp.model.events import ToolEnded, ToolProgressed, ToolStarted
from pykoclaw_acp.model.log import Logged

MOST: Final = 64 * 1024  # characters of one text
_CUT: Final = (
    "\n… [cut: {size:,} characters in all; `pykoclaw-acp sessions show {session} --seq {seq}` shows"
    " them]"
)
_COLOURED: Final = "coloured"  # a cut sequence would take what follows it with it
_WHOLE: Final = ("data",)  # bytes of an image, which no part of can be shown


def cut(session_id: str, logged: Logged) -> Logged:
    """The event with its long texts cut, each with a mark that says so."""
    event = logged.event
    if logged.size <= MOST or not isinstance(event, ToolStarted | ToolProgressed | ToolEnded):
        return logged
    mark = {"session": session_id, "seq": logged.seq}
    kept = _cut(msgspec.to_builtins(event), mark)
    return replace(logged, event=msgspec.convert(kept, type(event)))


def _cut(value: Any, mark: dict[str, Any]) -> Any:
    match value:
        case str() if len(value) > MOST:
            return value[:MOST] + _CUT.format(size=len(value), **mark)
        case dict():
            return {
                key: one if key in _WHOLE else _cut(one, mark)
                for key, one in value.items()
                if key != _COLOURED or len(one) <= MOST
            }
        case list() | tuple():
            return [_cut(one, mark) for one in value]
        case _:
            return value
