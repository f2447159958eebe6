"""The baseline, `python -m bench.bare`: `ClaudeSDKClient` with nothing around it, told what to do
as ACP agents are.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage, StreamEvent


async def _turn(
    client: ClaudeSDKClient, blocks: list[Any], stop_after: int | None
) -> dict[str, Any]:
    """A query; the times at which the SDK's user got its messages, as fields of `agents.Turn`."""
    pieces: list[tuple[float, int]] = []
    stopped = ended = 0.0
    content = [_content(block) for block in blocks]

    async def prompt() -> AsyncIterator[dict[str, Any]]:
        message = {"role": "user", "content": content}
        yield {"type": "user", "message": message, "parent_tool_use_id": None}

    await client.query(prompt())
    async for message in client.receive_response():
        if isinstance(message, StreamEvent) and message.event["type"] == "content_block_delta":
            pieces.append((time.monotonic(), len(message.event["delta"].get("text", "").split())))
            if len(pieces) == stop_after:
                stopped = time.monotonic()
                await client.interrupt()
        elif isinstance(message, ResultMessage):
            ended = time.monotonic()
    return {"pieces": pieces, "stopped": stopped, "ended": ended}


def _content(block: dict[str, Any]) -> dict[str, Any]:
    if block["type"] == "text":
        return block
    source = {"type": "base64", "media_type": block["mimeType"], "data": block["data"]}
    return {"type": "image", "source": source}


async def main() -> None:
    """Serve until the end of stdin; a new session is a connected client."""
    options = ClaudeAgentOptions(
        include_partial_messages=True,
        system_prompt={"type": "preset", "preset": "claude_code"},
        setting_sources=["user", "project", "local"],
        max_buffer_size=256 * 1024 * 1024,
    )
    clients: list[ClaudeSDKClient] = []
    while line := await asyncio.to_thread(sys.stdin.readline):
        request = json.loads(line)
        result: dict[str, Any] = {}
        if request["method"] == "session/new":
            result["sessionId"] = len(clients)
            clients.append(ClaudeSDKClient(options))
            await clients[-1].connect()
        elif request["method"] == "session/prompt":
            params = request["params"]
            stop_after = params["_meta"]["stopAfter"]
            result["turn"] = await _turn(clients[params["sessionId"]], params["prompt"], stop_after)
            result["stopReason"] = "cancelled" if stop_after else "end_turn"
        print(json.dumps({"id": request["id"], "result": result}), flush=True)
    for client in clients:
        await client.disconnect()


if __name__ == "__main__":
    asyncio.run(main())
