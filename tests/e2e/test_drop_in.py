"""Every command as `pykoclaw acp …`, where pykoclaw has imported the standard `sqlite3` before us."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import click
import pytest

from pykoclaw_acp import __version__
from pykoclaw_acp.cli import cli
from tests.double import installed
from tests.e2e import pykoclaw_program
from tests.e2e.commands import Result
from tests.e2e.harness import Client, Stack, text
from tests.e2e.pykoclaw_program import PRINTED
from tests.integration.queueing import execute
from tests.waiting import eventually
from tests.wheels import ALONE, CHECKOUT, Environment

LONG: Final = os.environ.get("PYKOCLAW_TEST_LONG") == "1"


@pytest.fixture
def acp(stack: Stack) -> tuple[str, ...]:
    """The command `pykoclaw acp`; in the working directory is what must not be imported."""
    for name in ("pykoclaw_acp", "click", "sqlite3"):
        (stack.root / f"{name}.py").write_text("raise SystemExit('imported from here')\n")
    stack.environment["PYTHONUNBUFFERED"] = ""  # what was printed would be on its way already
    return pykoclaw_program.install(stack.root / "bin")


@pytest.fixture
def packaged(stack: Stack, tmp_path: Path, wheel: Path) -> tuple[str, ...]:
    """The command `pykoclaw acp`, by the wheel in an environment that has pykoclaw, as users have it; of
    the checkout only the tests can be imported there.
    """
    made = Environment(tmp_path / "environment")
    made.install(wheel)
    root = tmp_path / "double"
    root.mkdir()
    (root / "tests").symlink_to(CHECKOUT / "tests")
    site = installed.install(root, python=str(made.place / "bin/python"))
    stack.environment = installed.environment(site, {**stack.environment, **ALONE}, root)
    return str(root / "bin/pykoclaw"), "acp"


async def run(stack: Stack, *command: str, **environment: str) -> Result:
    process = await asyncio.create_subprocess_exec(
        *command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE,
        env={**stack.environment, **environment}, cwd=stack.root,
    )  # fmt: skip
    out, error = await asyncio.wait_for(process.communicate(), 240)
    assert process.returncode is not None
    return Result(process.returncode, out.decode(), error.decode())


class Run(NamedTuple):
    """How a command is run: what follows its name, and what it complains of if it fails."""

    arguments: str = ""
    complaint: str = ""


TASK: Final = "0000abcd"
# In the order in which they run; SESSION, FILE and WORK stand for those of the test. What would
# change the machine, or never end, shows its help.
COMMANDS: Final = {
    "config": Run("--json"),
    "status": Run("--json"),
    "doctor": Run("--json"),
    "sessions list": Run("--json"),
    "sessions show": Run("SESSION --json"),
    "sessions tail": Run("SESSION"),
    "sessions rename": Run("SESSION Title"),
    "sessions export": Run("SESSION --format json"),
    "import": Run("FILE --directory WORK"),
    "sessions stop-waiting": Run("SESSION"),
    "sessions archive": Run("SESSION"),
    "sessions unarchive": Run("SESSION"),
    "prompt": Run("SESSION Hello. --json"),
    "attach": Run("nothing", "No session has the id"),
    "rewind": Run("SESSION --dry-run"),
    "tasks list": Run("--json"),
    "tasks show": Run(f"{TASK} --json"),
    "tasks pause": Run(TASK),
    "tasks resume": Run(TASK),
    "tasks run": Run(TASK),
    "tasks cancel": Run(TASK),
    "workers list": Run("--json"),
    "workers stop-task": Run("SESSION none", "No subagent and no command"),
    "workers stop": Run(),
    "logs": Run(),
    "approve": Run("--json"),
    "rules list": Run("--json"),
    "rules remove": Run("WORK", "There is no such rule"),
    "mcp list": Run("--json"),
    "mcp login": Run("none", "There is no MCP server none"),
    "mcp logout": Run("none", "There is no MCP server none"),
    "trust add": Run("--tree WORK"),
    "trust show": Run("WORK --json"),
    "trust list": Run("--json"),
    "trust remove": Run("WORK"),
    "completion": Run("bash"),
    "login": Run("--help"),
    "logout": Run(),
    "deploy install": Run("--help"),
    "deploy remove": Run("--help"),
    "scripted-model": Run("--help"),
    "restart": Run(),
    "sessions delete": Run("SESSION -y"),
    "stop": Run(),
    "hand-over": Run("--but 1"),
    "adopt": Run(),
}
ORDINARY: Final = (
    "doctor",
    "sessions show",
    "prompt",
    "tasks list",
    "rules list",
    "restart",
    "stop",
)
OWN_TESTS: Final = {"serve", "demo"}


def leaves(group: click.Group, *above: str) -> Iterator[str]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from leaves(command, *above, name)
        else:
            yield " ".join((*above, name))


def test_no_command_is_forgotten() -> None:
    assert set(leaves(cli)) == COMMANDS.keys() | OWN_TESTS


@pytest.mark.long
@pytest.mark.parametrize("below", ["acp", "packaged"])
async def test_every_command_works(
    stack: Stack, request: pytest.FixtureRequest, below: str
) -> None:
    acp: tuple[str, ...] = request.getfixturevalue(below)
    client = await stack.front(program=acp)
    session = await client.new(stack.work)
    await client.prompt(session, text("Hello."))
    assert client.text(session) == "Hello."
    if below == "packaged":
        for process in stack.find("pykoclaw_acp"):
            assert process.command.startswith(f"{stack.root}/environment/"), process
    execute(
        stack.data / "pykoclaw.db",
        "INSERT INTO scheduled_tasks (id, conversation, prompt, schedule_type, schedule_value, created_at)"
        " VALUES (?, ?, 'Hello.', 'interval', '3600000', '2026-01-01T00:00:00+00:00')",
        TASK, f"acp-{session[:8]}",
    )  # fmt: skip
    exported = stack.root / "exported"
    meant = {"SESSION": session, "WORK": str(stack.work), "FILE": str(exported)}
    for name, (arguments, complaint) in COMMANDS.items():
        if not LONG and name not in ORDINARY:
            continue
        if name == "restart":
            await client.close()  # it would start the next daemon
        words = [meant.get(word, word) for word in arguments.split()]
        result = await run(stack, *acp, *name.split(), *words)
        assert (name, result.status) == (name, 1 if complaint else 0), result
        assert complaint in result.error if complaint else result.error == "", (name, result)
        assert len(result.error.splitlines()) <= 1
        assert PRINTED not in result.out
        if "--json" in words:
            json.loads(result.out)
        if name == "sessions export":
            exported.write_text(result.out)
    assert (await run(stack, *acp, "status")).status == 3
    shown = (await run(stack, *acp, "--version")).out
    assert shown.split()[-1] == __version__
    assert "scripted-model" in (await run(stack, *acp, "--help")).out


@pytest.mark.long
async def test_the_daemon_stays_the_process_that_was_started(
    stack: Stack, acp: tuple[str, ...]
) -> None:
    daemon = await stack.daemon(program=acp)  # asserts that this pid serves
    client = await stack.front(program=acp)
    session = await client.new(stack.work)
    await client.prompt(session, text("Hello."))
    await client.close()
    daemon.send_signal(signal.SIGTERM)
    assert await daemon.wait() == 0


@pytest.mark.long
async def test_serve_stdio_answers_prompt(stack: Stack, acp: tuple[str, ...]) -> None:
    client = await stack.connect(Client, *acp, "serve", "--stdio")
    await client.initialize()
    session = await client.new(stack.work)
    await client.prompt(session, text("Hello."))
    assert client.text(session) == "Hello."
    assert await client.close() == 0


@pytest.mark.long
async def test_exit_statuses_stay(stack: Stack, acp: tuple[str, ...]) -> None:
    refused = await run(stack, *acp, "serve", PYKOCLAW_MAX_WORKERS="0")
    assert (refused.status, "PYKOCLAW_MAX_WORKERS is '0'" in refused.error) == (78, True)
    assert (await run(stack, *acp, "sessions", "frobnicate")).status == 2
    await stack.daemon()
    assert (await run(stack, *acp, "serve")).status == 75


async def test_systemds_socket_and_notification_stay(
    stack: Stack, acp: tuple[str, ...], tmp_path: Path
) -> None:
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    told.bind(str(tmp_path / "notify"))
    path = tmp_path / "acp.sock"
    path.parent.chmod(0o700)
    stack.environment["PYKOCLAW_SOCKET"] = str(path)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    with told, listener, (stack.root / "daemon.log").open("ab") as log:
        activate = 'exec 3<&"$0"; export LISTEN_PID=$$ LISTEN_FDS=1; exec "$@" serve'
        daemon = await asyncio.create_subprocess_exec(
            "/bin/bash", "-c", activate, str(listener.fileno()), *acp,
            stdin=DEVNULL, stdout=log, stderr=log, cwd="/", pass_fds=(listener.fileno(),),
            env={**stack.environment, "NOTIFY_SOCKET": str(tmp_path / "notify")},
        )  # fmt: skip
        stack.daemons.append(daemon)

        def ready() -> bool:
            try:
                return b"READY=1" in told.recv(4096)
            except BlockingIOError:
                return False

        await eventually(ready)
        client = await stack.front(program=acp)
        await client.new(stack.work)
        assert stack.daemon_pid() == daemon.pid
        await client.close()
        await stack.end_daemon()
        assert path.exists()  # systemd's, not the daemon's


@pytest.mark.long
async def test_engine_that_is_always_imported_costs_one_line(
    stack: Stack, acp: tuple[str, ...]
) -> None:
    """Python itself imports `sqlite3` at its start: nothing can be done, and nothing goes round."""
    (stack.root / "site").mkdir()
    (stack.root / "site/sitecustomize.py").write_text("import sqlite3\n")
    result = await run(stack, *acp, "doctor", PYTHONPATH=str(stack.root / "site"))
    assert result.status == 1
    assert "sitecustomize" in result.error
    assert len(result.error.splitlines()) == 1


@pytest.mark.long
async def test_demo_runs_without_complaint(stack: Stack, acp: tuple[str, ...]) -> None:
    result = await run(stack, *acp, "demo")
    assert (result.status, result.error) == (0, "")
