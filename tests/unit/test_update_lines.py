"""A user's long content becomes the line that it would be at once, in steps."""

from __future__ import annotations

from typing import Any

import pytest

from pykoclaw_acp.long_texts import PIECE, finished
from pykoclaw_acp.protocol.updates import UserMessageChunk
from pykoclaw_acp.server.update_lines import long_line, update_line

LONG = '"\\\n\x00é😀' * PIECE


@pytest.mark.parametrize(
    "content",
    [
        {"type": "text", "text": LONG},
        {"type": "image", "data": "A" * 3 * PIECE, "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": LONG, "text": LONG, "mimeType": "text/plain"}},
        {"type": "text", "text": "short", "annotations": {"audience": ["user"], "x": None}},
    ],
    ids=["text", "image", "resource", "short"],
)
def test_long_content_becomes_its_line_in_steps(content: dict[str, Any]) -> None:
    update = UserMessageChunk(message_id="one", content=content, meta={"pykoclaw.dev/seq": 7})
    steps = 0
    work = long_line("session", update)
    try:
        while True:
            next(work)
            steps += 1
    except StopIteration as end:
        line = end.value
    assert line == update_line("session", update) == finished(long_line("session", update))
    texts = [content, content.get("resource", {})]
    longest = [len(one) for part in texts for one in part.values() if isinstance(one, str)]
    assert steps >= sum(one // PIECE for one in longest)
