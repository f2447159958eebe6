"""The CLI's frames beside the SDK's messages, on a stand-in for the SDK's inside."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from claude_agent_sdk import AssistantMessage, SystemMessage

from pykoclaw_acp.worker.raw_frames import received

SAID = {
    "type": "assistant",
    "message": {"content": [], "model": "x"},
    "tool_use_meta": [{"id": "t1"}],
}
DROPPED = {"type": "tool_progress", "elapsed_time_seconds": 30}
PRIVATE = "claude_agent_sdk._internal.message_parser"


class Inside:
    """The SDK's `Query`, as far as frames go."""

    def __init__(self, *frames: dict[str, Any]) -> None:
        self._frames = frames or (SAID, DROPPED, SAID)

    async def receive_messages(self) -> AsyncIterator[dict[str, Any]]:
        for frame in self._frames:
            yield frame


class Outside:
    """A client; the messages are its own, as the SDK makes them."""

    def __init__(self, inside: object) -> None:
        self._query = inside

    async def receive_messages(self) -> AsyncIterator[SystemMessage]:
        yield SystemMessage("init", {})


async def test_each_message_comes_with_what_the_sdk_drops() -> None:
    client: Any = Outside(Inside())
    found = [one async for one in received(client)]
    assert [frame for _, frame in found] == [SAID, DROPPED, SAID]
    assert [type(message) for message, _ in found] == [
        AssistantMessage,
        type(None),
        AssistantMessage,
    ]


@pytest.mark.parametrize("inside", [None, SimpleNamespace(), Inside()])
async def test_another_sdk_still_gives_its_messages(
    inside: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(inside, Inside):
        monkeypatch.setitem(sys.modules, PRIVATE, None)
    client: Any = Outside(inside)
    [(message, frame)] = [one async for one in received(client)]
    assert isinstance(message, SystemMessage)
    assert frame == {}


async def test_unreadable_frames_end_nothing() -> None:
    unsigned = {
        **SAID,
        "message": {"content": [{"type": "thinking", "thinking": "Hm."}], "model": "x"},
    }
    client: Any = Outside(Inside(unsigned, SAID))
    assert [type(message) for message, _ in [one async for one in received(client)]] == [
        type(None),
        AssistantMessage,
    ]

    def refuse(_: object) -> None:
        raise TypeError("unhashable")

    client = Outside(Inside(SAID))
    assert [one async for one in received(client, refuse)] == [(None, SAID)]
