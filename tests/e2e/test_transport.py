"""Ways to be started other than with two pipes, and many sessions on one server."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import shutil
import socket
import subprocess
import sys
from typing import Any

import pytest

from tests.e2e.harness import Stack, frames, script, text


def server(stack: Stack, stdin: int, stdout: int) -> subprocess.Popen[bytes]:
    log = (stack.root / "server.log").open("wb")
    command = [sys.executable, "-m", "pykoclaw_acp", "serve", "--stdio"]
    with log:
        return subprocess.Popen(
            command, stdin=stdin, stdout=stdout, stderr=log, env=stack.environment, cwd=stack.root
        )


@pytest.mark.long
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
    session = (await call(2, "session/new", {"cwd": str(stack.work), "mcpServers": []}))["result"][
        "sessionId"
    ]
    block = {"type": "text", "text": text("Over one socket.")}
    answer = await call(3, "session/prompt", {"sessionId": session, "prompt": [block]})
    assert answer["result"]["stopReason"] == "end_turn"
    writer.write_eof()
    rest = await asyncio.wait_for(reader.read(), 60)
    assert not [line for line in rest.splitlines() if b'"session/update"' not in line], rest
    writer.close()
    assert await asyncio.to_thread(process.wait, 10) == 0


@pytest.mark.long
async def test_files_as_both_ends(stack: Stack) -> None:
    """Requests from a file, answers into one: for trying things by hand."""
    asked, answered = stack.root / "asked", stack.root / "answered"
    asked.write_text(
        '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}'
    )
    with asked.open() as source, answered.open("wb") as sink:
        process = server(stack, source.fileno(), sink.fileno())
        assert await asyncio.to_thread(process.wait, 120) == 0
    assert json.loads(answered.read_text())["result"]["protocolVersion"] == 1


@pytest.mark.long
@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param(None, id="idle"),
        pytest.param(script("repeat 400x10ms word{n} "), id="in an answer"),
    ],
)
async def test_a_client_that_dies_is_a_clean_end(stack: Stack, prompt: str | None) -> None:
    """Both pipes break: nothing is left, and the exit status is 0."""
    client = await stack.start()
    session = await client.new(stack.work)
    if prompt is not None:
        client.prompting(session, prompt)
        await client.until(lambda: "word3" in client.text(session))
    transport = client.process._transport  # type: ignore[attr-defined]  # noqa: SLF001  asyncio closes no output
    transport.get_pipe_transport(1).close()
    transport.get_pipe_transport(0).close()
    assert await asyncio.wait_for(client.process.wait(), 60) == 0
    assert "Traceback" not in client.log.read_text()
    await stack.nothing_left()
    assert {row["state"] for row in stack.rows("SELECT state FROM acp_turns")} <= {"cancelled"}


def request(message_id: int, method: str, **params: Any) -> bytes:
    return (
        json.dumps(
            {"jsonrpc": "2.0", "id": message_id, "method": method, "params": params}
        ).encode()
        + b"\n"
    )


async def piped(stack: Stack, *requests: bytes) -> dict[int, dict[str, Any]]:
    """What a server answers that is given these requests and the end of its input at once."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "pykoclaw_acp", "serve", "--stdio",
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        env=stack.environment, cwd=stack.root,
    )  # fmt: skip
    out, _ = await asyncio.wait_for(process.communicate(b"".join(requests)), 120)
    assert process.returncode == 0
    asked = [json.loads(line) for line in requests]
    methods = {one["id"]: one["method"] for one in asked}
    said = [frames.parse(line) for line in out.splitlines()]
    for frame in said:
        if "method" in frame:
            frames.validate_call(frame)
        else:
            frames.validate_answer(frame, methods[frame["id"]])
    return {frame["id"]: frame for frame in said if "id" in frame}


async def test_calls_before_end_of_input_are_answered(stack: Stack) -> None:
    initialize = request(1, "initialize", protocolVersion=1)
    answered = await piped(
        stack, initialize, request(2, "session/new", cwd=str(stack.work), mcpServers=[])
    )
    session = answered[2]["result"]["sessionId"]
    load = request(2, "session/load", sessionId=session, cwd=str(stack.work), mcpServers=[])
    block = {"type": "text", "text": text("Never said.")}
    answered = await piped(
        stack, initialize, load, request(3, "session/prompt", sessionId=session, prompt=[block])
    )
    assert "result" in answered[2]
    assert answered[3]["result"]["stopReason"] == "cancelled"
    assert [row["state"] for row in stack.rows("SELECT state FROM acp_turns")] == ["cancelled"]


@pytest.mark.long
@pytest.mark.parametrize("closed", ["<&- >&-", "<&-", ">&-", "<&- 2>&-", "</dev/null >&- 2>&-"])
async def test_closed_streams_are_no_reason_for_a_traceback(stack: Stack, closed: str) -> None:
    command = f"exec {sys.executable} -m pykoclaw_acp serve --stdio {closed}"
    done = await asyncio.to_thread(
        subprocess.run, command, shell=True, env=stack.environment, cwd=stack.root, capture_output=True, timeout=30,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0
    assert b"Traceback" not in done.stderr


@pytest.mark.long
async def test_a_terminal_blocks_again_afterwards(stack: Stack) -> None:
    ours, theirs = pty.openpty()
    try:
        process = server(stack, theirs, theirs)
        os.write(ours, b"\x04")
        assert await asyncio.to_thread(process.wait, 120) == 0
        assert not fcntl.fcntl(theirs, fcntl.F_GETFL) & os.O_NONBLOCK
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.mark.long
async def test_server_on_copied_data_leaves_original_alone(stack: Stack) -> None:
    client = await stack.start()
    session = await client.new(stack.work)
    pending = client.prompting(session, script("repeat 300x10ms word{n} "))
    await client.until(lambda: "word3" in client.text(session))
    copy = stack.root / "copy"
    shutil.copytree(stack.data, copy)
    copy.chmod(0o700)
    other = await stack.start(PYKOCLAW_DATA=str(copy))
    await other.load(session, stack.work)
    assert (await client.answer(pending))["stopReason"] == "end_turn"


@pytest.mark.long
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
