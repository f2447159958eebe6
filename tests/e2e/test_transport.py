"""Ways to be started other than with two pipes, and many sessions on one server."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
from typing import Any

from tests.e2e.harness import Stack, script, text


def server(stack: Stack, stdin: int, stdout: int) -> subprocess.Popen[bytes]:
    log = (stack.root / "server.log").open("wb")
    command = [sys.executable, "-m", "pykoclaw_acp", "serve", "--stdio"]
    with log:
        return subprocess.Popen(command, stdin=stdin, stdout=stdout, stderr=log, env=stack.environment, cwd=stack.root)


async def test_one_socket_as_both_ends(stack: Stack) -> None:
    """As systemd's socket activation and inetd hand it over."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = server(stack, theirs.fileno(), theirs.fileno())
    reader, writer = await asyncio.open_unix_connection(sock=ours)

    async def call(message_id: int, method: str, params: dict[str, Any]) -> dict[str, Any]:
        message = {"jsonrpc": "2.0", "id": message_id, "method": method, "params": params}
        writer.write(json.dumps(message).encode() + b"\n")
        while True:
            line = await asyncio.wait_for(reader.readline(), 45)
            frame: dict[str, Any] = json.loads(line)
            if frame.get("id") == message_id:
                return frame

    await call(1, "initialize", {"protocolVersion": 1})
    session = (await call(2, "session/new", {"cwd": str(stack.work), "mcpServers": []}))["result"]["sessionId"]
    block = {"type": "text", "text": text("Over one socket.")}
    answer = await call(3, "session/prompt", {"sessionId": session, "prompt": [block]})
    assert answer["result"]["stopReason"] == "end_turn"
    writer.write_eof()
    assert await asyncio.wait_for(reader.read(), 10) == b""
    writer.close()
    assert await asyncio.to_thread(process.wait, 10) == 0


async def test_files_as_both_ends(stack: Stack) -> None:
    """Requests from a file, answers into one: for trying things by hand."""
    asked, answered = stack.root / "asked", stack.root / "answered"
    asked.write_text('{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}')
    with asked.open() as source, answered.open("wb") as sink:
        process = server(stack, source.fileno(), sink.fileno())
        assert await asyncio.to_thread(process.wait, 20) == 0
    assert json.loads(answered.read_text())["result"]["protocolVersion"] == 1


async def test_eight_sessions_at_once_on_eight_real_workers(stack: Stack) -> None:
    client = await stack.start()
    sessions = [await client.new(stack.work) for _ in range(8)]
    expected = "".join(f"word{at} " for at in range(1, 41))
    pending = [client.prompting(session, script("repeat 40x5ms word{n} ")) for session in sessions]
    answers = [await client.answer(future) for future in pending]
    assert [answer["stopReason"] for answer in answers] == ["end_turn"] * 8
    for session in sessions:
        assert client.text(session).strip() == expected.strip()
    assert len({stack.worker(session).pid for session in sessions}) == 8
    epochs = stack.rows("SELECT epoch FROM acp_sessions")
    assert [row["epoch"] for row in epochs] == [1] * 8
