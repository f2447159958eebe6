"""Healthchecks of the agent: the earlier plugin's, as deploy scripts may still run it, and ours."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp import __version__
from pykoclaw_acp.commands import healthcheck
from pykoclaw_acp.server.stdio import CALLS_GRACE
from pykoclaw_acp.store.sqlite import sqlite3
from tests.double import installed
from tests.e2e import pykoclaw_program
from tests.e2e.commands import run
from tests.e2e.harness import Stack
from tests.e2e.harness.stack import PROGRAM
from tests.waiting import within

REQUEST = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}  # the earlier plugin's
WITHIN = 60.0  # s; it gave up after 10, which a busy machine may need
OK = re.compile(
    rf"OK: pykoclaw-acp v{re.escape(__version__)} \(protocol v1\) responded in \d+\.\d\ds\n"
)


async def earlier(stack: Stack, *command: str) -> None:
    """The earlier plugin's healthcheck: it closes the input at once and ends its child by SIGTERM."""
    agent = await asyncio.create_subprocess_exec(
        *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=stack.environment, cwd=stack.root
    )
    assert agent.stdin is not None
    assert agent.stdout is not None
    agent.stdin.write(json.dumps(REQUEST).encode() + b"\n")
    agent.stdin.close()
    answer = json.loads(await asyncio.wait_for(agent.stdout.readline(), WITHIN))
    assert (answer["jsonrpc"], answer["id"], answer["result"]["protocolVersion"]) == ("2.0", 1, 1)
    with contextlib.suppress(ProcessLookupError):
        agent.terminate()
    await asyncio.wait_for(agent.communicate(), 60)


@pytest.mark.parametrize("below_pykoclaw", [False, pytest.param(True, marks=pytest.mark.long)])
async def test_the_earlier_one_passes_cold_and_warm(below_pykoclaw: bool, stack: Stack) -> None:
    stack.environment["PYTHONUNBUFFERED"] = ""
    command = pykoclaw_program.install(stack.root / "bin") if below_pykoclaw else PROGRAM
    await earlier(stack, *command)
    client = await stack.front()  # now the daemon is there
    await client.new(stack.work)
    await earlier(stack, *command)


async def test_the_earlier_one_passes_without_daemon(stack: Stack) -> None:
    await earlier(stack, *PROGRAM, "serve", "--stdio")


async def test_ours_passes_cold_and_warm(stack: Stack) -> None:
    for _ in range(2):
        result = await run(stack, "--healthcheck")
        assert (result.status, result.out) == (0, "")
        assert OK.fullmatch(result.error), result.error
    assert stack.daemon_pid() is not None


@pytest.mark.long
async def test_ours_checks_agent_that_deploy_script_names(stack: Stack) -> None:
    """Such a program is not taken for Claude's CLI by the daemon that it starts either."""
    program, _ = pykoclaw_program.install(stack.root / "bin")
    stack.environment |= {"PYTHONUNBUFFERED": "", "PYKOCLAW_CLI_PATH": program}
    result = await run(stack, "--healthcheck")
    assert (result.status, bool(OK.fullmatch(result.error))) == (0, True), result.error
    lines = {line["name"]: line for line in (await run(stack, "config", "--json")).json}
    assert lines["cli_path"]["value"] is None
    assert (await run(stack, "stop")).status == 0
    gone = await run(stack, "--healthcheck", PYKOCLAW_CLI_PATH="/nonexistent/pykoclaw")
    assert gone.status == 1
    assert gone.error.startswith("FAIL: ")


async def test_an_agent_without_a_daemon_is_not_healthy(stack: Stack) -> None:
    """The front alone answers `initialize` after a while; that is not enough."""
    result = await run(stack, "--healthcheck", PYKOCLAW_MAX_WORKERS="0")
    assert (result.status, result.out) == (1, "")
    assert result.error.startswith("FAIL: ")
    assert "PYKOCLAW_MAX_WORKERS" in result.error
    assert len(result.error.splitlines()) == 1


@pytest.mark.parametrize(
    "program",
    [
        'print(\'{"jsonrpc": "2.0"}\')',
        pytest.param("print('hello')", marks=pytest.mark.long),
        pytest.param("import sys; sys.exit(3)", marks=pytest.mark.long),
    ],
)
async def test_another_answer_is_a_failure(program: str, stack: Stack) -> None:
    other = stack.root / "pykoclaw"
    other.write_text(f"#!{sys.executable}\n{program}\n")
    other.chmod(0o755)
    result = await run(stack, "--healthcheck", PYKOCLAW_CLI_PATH=str(other))
    assert (result.status, result.out) == (1, "")
    assert result.error.startswith("FAIL: ")
    assert len(result.error.splitlines()) == 1


def _agent(directory: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What our check is to start, in this process."""
    agent = directory / "pykoclaw"
    agent.write_text(f"#!/bin/sh\n{script}\n")
    agent.chmod(0o755)
    monkeypatch.setenv("PYKOCLAW_CLI_PATH", str(agent))


def test_ours_is_told_of_agent_that_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The pipe to it is broken before the check has written anything."""
    _agent(tmp_path, "echo I cannot. >&2; exit 3", monkeypatch)
    start = subprocess.Popen

    def ended(*given: Any, **more: Any) -> subprocess.Popen[bytes]:
        agent = start(*given, **more)
        agent.wait(60)
        return agent

    monkeypatch.setattr(subprocess, "Popen", ended)
    assert healthcheck.main() == 1
    said = capsys.readouterr().err
    assert said.startswith("FAIL: no answer from ")
    assert said.endswith("I cannot.\n")


def test_ours_gives_up_an_agent_that_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And that neither the end of its input nor SIGTERM ends."""
    _agent(tmp_path, "trap '' TERM; exec sleep 600", monkeypatch)
    monkeypatch.setattr(healthcheck, "WAIT", 0.5)
    monkeypatch.setattr(healthcheck, "END_WAIT", 0.5)
    assert healthcheck.main() == 1
    assert "It ended with status -9." in capsys.readouterr().err


@pytest.mark.long
async def test_the_log_level_is_the_daemons(stack: Stack) -> None:
    """As an option and as the earlier plugin's variable; the option is the stronger one."""
    client = await stack.front(
        program=(*PROGRAM, "--log-level", "Debug"), PYKOCLAW_ACP_LOG_LEVEL="ERROR"
    )
    await client.new(stack.work)
    await client.close()
    logged = await run(stack, "logs", "--json", "--lines", "1000")
    assert '"level": "debug"' in logged.out
    assert (await run(stack, "--log-level", "loud")).status == 2


@pytest.mark.long
async def test_beside_the_double_of_pykoclaw(stack: Stack) -> None:
    """With its order of imports, its settings and its healthcheck."""
    stack.environment = installed.environment(
        installed.install(stack.root / "double"), stack.environment
    )
    check = (
        sys.executable, "-m", "tests.double", "healthcheck", "--within", str(WITHIN), "--", "pykoclaw", "acp",
    )  # fmt: skip
    for _ in ("cold", "warm"):
        process = await asyncio.create_subprocess_exec(
            *check, stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=stack.environment, cwd=stack.root
        )
        out, said = await asyncio.wait_for(process.communicate(), 120)
        assert (process.returncode, out) == (0, b""), said
        assert OK.search(said.decode()), said
    ours = await asyncio.create_subprocess_exec(
        "pykoclaw", "acp", "--healthcheck",
        stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=stack.environment, cwd=stack.root,
    )  # fmt: skip
    out, said = await asyncio.wait_for(ours.communicate(), 120)
    assert (ours.returncode, out, bool(OK.fullmatch(said.decode()))) == (0, b"", True), said


async def test_serve_stdio_answers_what_came_before_the_end(stack: Stack) -> None:
    """However long that takes: here another program writes just then."""
    client = await stack.start()
    with contextlib.closing(sqlite3.connect(stack.data / "pykoclaw.db")) as other:
        other.isolation_level = None
        other.execute("BEGIN IMMEDIATE")
        opened = client.begin("session/new", cwd=str(stack.work), mcpServers=[])
        assert client.process.stdin is not None
        client.process.stdin.close()
        await within(lambda: client.process.returncode is not None, 1.2 * CALLS_GRACE)
        other.execute("ROLLBACK")
    assert (await client.answer(opened))["sessionId"]
    assert await client.gone() == 0
