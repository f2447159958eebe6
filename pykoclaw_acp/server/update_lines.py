"""`session/update` as lines, those with long content of a user in steps."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final
from uuid import uuid4

import msgspec
from msgspec.structs import replace

from pykoclaw_acp import long_texts
from pykoclaw_acp.protocol import jsonrpc
from pykoclaw_acp.protocol.updates import SessionNotification, Update, UserMessageChunk

LONG: Final = 256 * 1024  # characters, from which on a line is made in steps


def update_line(session_id: str, update: Update) -> bytes:
    """The `session/update` that carries this update."""
    return jsonrpc.encode_notification(
        "session/update", SessionNotification(session_id=session_id, update=update)
    )


def long_line(session_id: str, update: Update) -> Generator[None, None, bytes]:
    """The line of `update_line`, made in steps, since strings of a user's content may be long."""
    if not isinstance(update, UserMessageChunk):
        return update_line(session_id, update)
    long: list[str] = []
    mark = uuid4().hex
    content = _marked(update.content, mark, long)
    between = update_line(session_id, replace(update, content=content)).split(mark.encode())
    pieces = [between[0]]
    for text, after in zip(long, between[1:], strict=True):
        for piece in long_texts.pieces(text):
            pieces.append(msgspec.json.encode(piece)[1:-1])
            yield
        pieces.append(after)
    return b"".join(pieces)


def _marked(block: dict[str, Any], mark: str, long: list[str]) -> dict[str, Any]:
    """The block with a mark in the place of each long string, which joins `long`."""
    marked = dict(block)
    for name, value in block.items():
        if isinstance(value, dict):
            marked[name] = _marked(value, mark, long)
        elif isinstance(value, str) and len(value) > long_texts.PIECE:
            long.append(value)
            marked[name] = mark
    return marked
