"""The official TypeScript SDK's client, over everything that it can call, without a warning on
either side.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.e2e import node
from tests.e2e.given_servers import program
from tests.e2e.harness import Stack
from tests.e2e.harness.logs import STARTING, logs, warnings
from tests.e2e.harness.stack import PROGRAM

HERE = Path(__file__).parent / "typescript"
WAIT = 180  # seconds


@pytest.mark.long
@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param((), id="front"),
        pytest.param(("serve", "--stdio"), id="stdio"),
    ],
)
async def test_whole_surface_works_with_typescript_client(
    stack: Stack, arguments: tuple[str, ...]
) -> None:
    node.require(HERE)
    process = await asyncio.create_subprocess_exec(
        "node", HERE / "client.mjs", stack.work, json.dumps(program("local", "s3cret")),
        *stack.recorded(*PROGRAM, *arguments),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE, env=stack.environment, cwd=stack.root,
    )  # fmt: skip
    said, complaints = await asyncio.wait_for(process.communicate(), WAIT)
    assert process.returncode == 0, complaints.decode()
    assert said == b"ok\n"
    agent = complaints.decode()
    if not arguments:
        assert STARTING.fullmatch(agent)
        agent = ""
        assert logs(stack)
    assert warnings(agent, *logs(stack)) == []
