"""acpx, a client without a window, over what it can ask of us: the program itself, from npm."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import shlex
import shutil
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import node
from tests.e2e.harness import Stack, script, text
from tests.e2e.harness.logs import logs, warnings
from tests.e2e.harness.stack import PROGRAM
from tests.pictures import encoded, png

HERE = Path(__file__).parent / "acpx"
WAIT = 180  # seconds
USUAL = re.compile(r"\[acpx\] (created session|agent:|cwd:|session) .*")  # which session it uses

pytestmark = pytest.mark.long

Message = dict[str, Any]


@pytest.fixture(autouse=True)
def _socket_directory(stack: Stack) -> Iterator[None]:
    """Removed at the end: acpx keeps its sockets there, whatever TMPDIR says, and leaves it."""
    yield
    home = hashlib.sha256(str(stack.home).encode()).hexdigest()
    shutil.rmtree(f"/tmp/acpx-{home[:10]}", ignore_errors=True)


async def begin(stack: Stack, *arguments: str) -> Process:
    return await asyncio.create_subprocess_exec(
        "node", HERE / "node_modules/.bin/acpx", "--agent", shlex.join(stack.recorded(*PROGRAM)),
        "--format", "json", *arguments,
        env=stack.environment, cwd=stack.work, stdin=PIPE, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip


async def run(stack: Stack, *arguments: str, given: str = "") -> list[Message]:
    """What a command of acpx prints: messages of ACP, or its own result."""
    process = await begin(stack, *arguments)
    said, stderr = await asyncio.wait_for(process.communicate(given.encode()), WAIT)
    assert process.returncode == 0, stderr.decode()
    assert complaints(stderr) == []
    return [json.loads(line) for line in said.splitlines()]


def complaints(stderr: bytes) -> list[str]:
    """Lines that acpx does not always write; it has no log."""
    return [line for line in stderr.decode().splitlines() if not USUAL.fullmatch(line)]


@asynccontextmanager
async def session(stack: Stack) -> AsyncIterator[str]:
    """A session in the directory, closed again; neither side has complained."""
    node.require(HERE)
    (made,) = await run(stack, "sessions", "new")
    assert made["created"] is True
    daemon = stack.daemon_pid()
    yield str(made["acpxSessionId"])
    (closed,) = await run(stack, "sessions", "close")
    # acpx has ended its agent several times, with all that it had seen below it
    assert stack.daemon_pid() == daemon is not None
    assert closed["action"] == "session_closed"
    assert logs(stack)
    assert warnings(*logs(stack)) == []


def answer(said: list[Message]) -> str:
    """The stop reason of a prompt; acpx has refused no update."""
    assert [one for one in said if "error" in one] == []
    (ended,) = [one["result"] for one in said if "stopReason" in (one.get("result") or {})]
    return str(ended["stopReason"])


async def test_acpx_asks_its_policy_and_keeps_its_session(stack: Stack) -> None:
    async with session(stack) as known:
        said = await run(stack, "--approve-all", script("write made.txt <<< x", "text Made."))
        assert answer(said) == "end_turn"
        said = await run(stack, "--deny-all", script("write refused.txt <<< x", "text Refused."))
        assert answer(said) == "end_turn"
        assert [path.name for path in stack.work.iterdir()] == ["made.txt"]
        (listed,) = await run(stack, "sessions", "list", "--filter-cwd", str(stack.work))
        assert listed["source"] == "agent"
        assert [one["sessionId"] for one in listed["sessions"]] == [known]
        assert "made.txt" in listed["sessions"][0]["title"]


async def test_acpx_chooses_the_effort_and_sends_an_image(stack: Stack) -> None:
    async with session(stack):
        await run(stack, "set", "effort", "high")
        picture = {"type": "image", "mimeType": "image/png", "data": encoded(png(3, 2))}
        blocks = [{"type": "text", "text": text("Seen.")}, picture]
        said = await run(stack, "prompt", "-f", "-", given=json.dumps(blocks))
        assert answer(said) == "end_turn"
        asked = stack.asked()[-1]
        assert asked["effort"] == "high"
        assert "image" in json.dumps(asked["messages"][-1])


async def test_acpx_cancels_running_turn(stack: Stack) -> None:
    async with session(stack):
        process = await begin(stack, script("repeat 600x100ms w{n} "))
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        said: list[str] = []
        async with asyncio.timeout(WAIT):
            while not said or "w3 " not in said[-1]:
                said.append((await process.stdout.readline()).decode())
                assert said[-1], "it has ended"
        (cancelled,) = await run(stack, "cancel")
        assert cancelled["cancelled"] is True
        rest, stderr = await asyncio.wait_for(process.communicate(), WAIT)
        assert complaints(stderr) == []
        lines = [*said, *rest.decode().splitlines()]
        assert answer([json.loads(line) for line in lines]) == "cancelled"
        assert [row["state"] for row in stack.rows("SELECT state FROM acp_turns")] == ["cancelled"]


async def test_acpx_shows_what_subagent_has_found(stack: Stack) -> None:
    """Its process ends with the response, or when it has heard nothing for a second after that; a
    command in the background does not hold that up.
    """
    node.require(HERE)
    agent = {"description": "look", "prompt": script("hang 4s", "bash mkdir seen", "text Looked.")}
    words = script(
        f"tool Agent {json.dumps(agent)}", "background sleep 97", "text It looks.", "stop end_turn",
        "text It found 42.",
    )  # fmt: skip
    said = await run(stack, "--approve-all", "exec", words)
    assert answer(said) == "end_turn"
    updates = [one["params"]["update"] for one in said if one.get("method") == "session/update"]
    chunks = [one for one in updates if one["sessionUpdate"] == "agent_message_chunk"]
    assert "It found 42." in "".join(one["content"]["text"] for one in chunks)
    assert (stack.work / "seen").exists()
    assert stack.find("sleep 97")
