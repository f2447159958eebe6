"""Payloads of tool calls, cut for a replay: a history may hold hundreds of megabytes of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import msgspec

from pykoclaw_acp.model.code_blocks import code_block
from pykoclaw_acp.model.events import ToolEnded, ToolProgressed, ToolStarted
from pykoclaw_acp.model.log import Logged

MOST: Final = 64 * 1024  # characters of one text
_CUT: Final = (
    "… [cut: {size:,} characters in all; `pykoclaw-acp sessions show {session} --seq {seq}` shows"
    " them]"
)
MOST_LEVELS: Final = 100  # of a tool's input; what is deeper is shown as JSON
_WHOLE: Final = ("data",)  # bytes of an image, which no part of can be shown


def cut(session_id: str, logged: Logged) -> Logged:
    """The event with its long texts cut, each with a mark that says so."""
    event = logged.event
    if logged.size <= MOST or not isinstance(event, ToolStarted | ToolProgressed | ToolEnded):
        return logged
    mark = {"session": session_id, "seq": logged.seq}
    fields = msgspec.to_builtins(event)
    content = [one for part in fields.pop("content", ()) for one in _parts(part, mark)]
    kept = {key: _cut(one, mark, ours=key != "input") for key, one in fields.items()}
    kept |= {"content": content} if content else {}
    return replace(logged, event=msgspec.convert(kept, type(event)))


def _parts(part: dict[str, Any], mark: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A part of the content; of a long text the beginning, and the mark. A code block stays one."""
    if part["type"] != "text":
        yield _cut(part, mark, ours=True)
        return
    # A cut sequence would take what follows it with it.
    kept = {key: one for key, one in part.items() if key != "coloured" or len(one) <= MOST}
    opening, inside, closing = code_block(part["text"]) or ("", part["text"], "")
    yield {**kept, "text": f"{opening}{inside[:MOST]}{closing}"}
    if len(inside) > MOST:
        kept.pop("coloured", None)  # the mark belongs to what it stands behind
        yield {**kept, "text": _CUT.format(size=len(inside), **mark)}


def _cut(value: Any, mark: dict[str, Any], *, ours: bool, levels: int = MOST_LEVELS) -> Any:
    """`ours`: the names of fields are ours, not those of a tool's input."""
    match value:
        case str() if len(value) > MOST:
            return f"{value[:MOST]}\n{_CUT.format(size=len(value), **mark)}"
        case dict() | list() | tuple() if not levels:
            return _cut(msgspec.json.encode(value).decode(), mark, ours=ours)
        case dict():
            return {
                key: one
                if ours and key in _WHOLE
                else _cut(one, mark, ours=ours, levels=levels - 1)
                for key, one in value.items()
            }
        case list() | tuple():
            return [_cut(one, mark, ours=ours, levels=levels - 1) for one in value]
        case _:
            return value
