"""Commands whose standard output is full or closed: one line, no traceback, and what they did stays."""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import DEVNULL, PIPE

import pytest

from tests.e2e.commands import done
from tests.e2e.harness import Stack
from tests.e2e.harness.stack import PROGRAM

LONG = os.environ.get("PYKOCLAW_TEST_LONG") == "1"
COMMANDS = (
    "--help",
    "--version",
    "config",
    "config --json",
    "config --help",
    "doctor --json",
    "sessions list",
    "sessions list --all --json",
    "sessions show SESSION",
    "status",
    "trust list",
)


async def run(stack: Stack, command: str, *, redirected: str, unbuffered: bool) -> tuple[int, str]:
    """Exit status and standard error."""
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", f'exec "$@" {redirected}', "sh", *PROGRAM, *command.split(),
        stdin=DEVNULL, stdout=PIPE, stderr=PIPE, cwd=stack.root,
        env={**stack.environment, "PYTHONUNBUFFERED": "1" if unbuffered else ""},
    )  # fmt: skip
    out, error = await asyncio.wait_for(process.communicate(), 240)
    assert (out, process.returncode is None) == (b"", False)
    return process.returncode or 0, error.decode()


@pytest.mark.parametrize("unbuffered", [False, pytest.param(True, marks=pytest.mark.long)])
async def test_a_full_disk_is_one_line(unbuffered: bool, shared: Stack) -> None:
    client = await shared.front()
    session = await client.new(shared.work)
    for command in COMMANDS if LONG else COMMANDS[::2]:
        words = command.replace("SESSION", session)
        status, said = await run(shared, words, redirected=">/dev/full", unbuffered=unbuffered)
        assert (command, status, len(said.splitlines())) == (command, 1, 1), said
        assert f"Standard output cannot be written: {os.strerror(28)}." in said


@pytest.mark.parametrize(("arguments", "lines"), [("", 2), ("serve --stdio", 1)])
async def test_an_agent_without_output_ends_with_a_reason(
    arguments: str, lines: int, stack: Stack
) -> None:
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", 'exec "$@" >/dev/full', "sh", *PROGRAM, *arguments.split(),
        stdin=PIPE, stderr=PIPE, cwd=stack.root,
        env={**stack.environment, "PYKOCLAW_ACP_LOG_LEVEL": "ERROR"},
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'
    )
    said = (await asyncio.wait_for(process.stderr.read(), 240)).decode()  # its input stays open
    assert (await process.wait(), len(said.splitlines())) == (1, lines), said
    assert f"Standard output cannot be written: {os.strerror(28)}." in said.splitlines()[-1]
    assert "Traceback" not in said


async def test_a_closed_output_is_one_line(shared: Stack) -> None:
    client = await shared.front()
    session = await client.new(shared.work)
    for command in ("sessions list --all", f"sessions rename {session} Other", "config --json"):
        status, said = await run(shared, command, redirected=">&-", unbuffered=False)
        assert (command, status in (0, 1), len(said.splitlines()) == status) == (
            command, True, True,
        )  # fmt: skip
        assert "Traceback" not in said
    shown = await done(shared, "sessions", "show", session)
    assert "Other" in shown.out


async def test_a_reader_that_has_enough_is_no_error(stack: Stack) -> None:
    process = await asyncio.create_subprocess_exec(
        "/bin/sh", "-c", '"$@" | true', "sh", *PROGRAM, "config", "--json",
        stdin=DEVNULL, stdout=PIPE, stderr=PIPE, cwd=stack.root, env=stack.environment,
    )  # fmt: skip
    assert await asyncio.wait_for(process.communicate(), 240) == (b"", b"")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--port 99999", "99999 is no port"),
        ("--port -1", "-1 is no port"),
        ("--record /nonexistent/file", "/nonexistent/file cannot be used: No such file"),
    ],
)
async def test_what_the_scripted_model_cannot_use(arguments: str, words: str, stack: Stack) -> None:
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "scripted-model", *arguments.split(),
        stdin=DEVNULL, stdout=PIPE, stderr=PIPE, cwd=stack.root, env=stack.environment,
    )  # fmt: skip
    out, error = await asyncio.wait_for(process.communicate(), 240)
    assert (process.returncode, out) == (2, b"")
    assert words in error.decode().splitlines()[-1]
    assert b"Traceback" not in error
