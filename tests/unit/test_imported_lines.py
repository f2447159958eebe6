"""Lines of an export that have long texts, or very many values: decoded in pieces, or refused
before.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import msgspec
import pytest

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.long_texts import finished
from pykoclaw_acp.model import events
from pykoclaw_acp.model.events import (
    Event,
    ImagePart,
    Text,
    TextPart,
    ToolEnded,
    UserMessage,
)
from pykoclaw_acp.protocol import long_lines
from pykoclaw_acp.protocol.control.exports import FORMAT
from pykoclaw_acp.server import imported_lines

LONG = 'a "long" one\n😀 ' * 20_000
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
IMAGE = base64.b64encode(PNG + b"\0" * 3_000_000).decode()


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of everything that is decoded."""
    sizes: list[int] = []

    decode, decode_event = msgspec.json.decode, events.decode

    def counting_event(payload: str | bytes) -> Event | None:
        sizes.append(len(payload))
        return decode_event(payload)

    def counting(data: bytes, **options: Any) -> Any:
        sizes.append(len(data))
        return decode(data, **options)

    monkeypatch.setattr(msgspec.json, "decode", counting)
    monkeypatch.setattr(imported_lines, "decode", counting_event)
    return sizes


def head(**fields: Any) -> bytes:
    summary = {"title": "t", "cwd": "/w"}
    return json.dumps(
        {"format": FORMAT, "version": 1, "session": {"summary": summary}, **fields}
    ).encode()


def taken(update: dict[str, Any], event: Event | None = None) -> imported_lines.Taken:
    line = {"update": update, "event": None if event is None else msgspec.to_builtins(event)}
    return finished(imported_lines.taken(json.dumps(line).encode()))


def test_long_first_line_is_decoded_in_pieces(decoded: list[int]) -> None:
    turns = [{"prompt": LONG}] * 20
    session = {"summary": {"title": LONG, "cwd": "/w"}, "turns": turns}
    found = finished(imported_lines.head(head(session=session)))
    assert (found.session.summary.title, found.session.summary.cwd) == (LONG, "/w")
    assert max(decoded) <= long_lines.PIECE + 2


@pytest.mark.parametrize("fields", [{"turns": [[]] * 500_000}, {"turns": ["x" * 1000] * 20_000}])
def test_costly_first_line_is_refused_before_decoding(
    fields: dict[str, Any], decoded: list[int]
) -> None:
    with pytest.raises(InvalidParams, match="not a session that was exported"):
        finished(imported_lines.head(head(**fields)))
    assert max(decoded, default=0) <= long_lines.PIECE


def test_long_answers_are_decoded_in_pieces(decoded: list[int]) -> None:
    update = {"sessionUpdate": "agent_message_chunk", "messageId": "m"}
    found = taken({**update, "content": {"type": "text", "text": LONG}})
    assert "".join(one.text for one in found.events if isinstance(one, Text)) == LONG
    assert max(decoded) <= long_lines.PIECE + 2


def test_long_prompts_are_decoded_in_pieces(decoded: list[int]) -> None:
    update = {"sessionUpdate": "user_message_chunk", "messageId": "m"}
    found = taken({**update, "content": {"type": "text", "text": LONG}})
    texts = [one.content["text"] for one in found.events if isinstance(one, UserMessage)]
    assert "".join(texts) == LONG
    found = taken({**update, "content": {"type": "image", "mimeType": "image/png", "data": IMAGE}})
    assert [len(one) for one in found.blobs.values()] == [len(PNG) + 3_000_000]
    assert max(decoded) <= long_lines.PIECE + 2


def test_annotations_of_a_text_are_taken_over() -> None:
    block = {"type": "text", "text": "hi", "annotations": {"audience": ["user"]}}
    update = {"sessionUpdate": "user_message_chunk", "messageId": "m", "content": block}
    assert taken(update) == imported_lines.Taken([UserMessage("m", block, None)], {})


def test_long_results_and_images_are_decoded_in_pieces(decoded: list[int]) -> None:
    """As exports have them: the image is in the update."""
    parts = (TextPart(LONG), ImagePart(IMAGE, "image/png"))
    event = ToolEnded("t", "completed", (parts[0], ImagePart("", "image/png")))
    image = {"type": "content", "content": {"type": "image", "data": IMAGE}}
    update = {"sessionUpdate": "tool_call_update", "content": [{"type": "content"}, image]}
    assert taken(update, event) == imported_lines.Taken([replaced(event, parts)], {})
    assert max(decoded) <= long_lines.PIECE + 2


def replaced(event: ToolEnded, content: tuple[TextPart | ImagePart, ...]) -> ToolEnded:
    return msgspec.structs.replace(event, content=content)


@pytest.mark.parametrize("size", [imported_lines.MAX_EVENT + 1, long_lines.MOST_TEXT * 3])
def test_event_that_is_too_long_is_left_out(size: int) -> None:
    event = ToolEnded("t", "completed", (TextPart("x" * size),))
    assert taken({"sessionUpdate": "tool_call_update"}, event) == imported_lines.LEFT_OUT
