"""A session is no operator: what runs below its worker may not use the daemon, unless the user says
so.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Client, Stack, script, text
from tests.e2e.harness.client import selected
from tests.waiting import eventually

PROGRAM = f"{shlex.quote(sys.executable)} -m pykoclaw_acp"
# Speaks as an ACP client that Claude has launched; prints the first answer that it gets to each
# line.
SPEAKER = """
import json, sys, subprocess
program = [sys.executable, "-m", "pykoclaw_acp"]
front = subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
for line in sys.argv[1:]:
    front.stdin.write(line + "\\n")
    front.stdin.flush()
    print(front.stdout.readline(), end="", flush=True)
front.stdin.close()
front.wait()
"""
# Leaves its session, its parents and its environment behind, then calls the method at the socket.
ESCAPED = """
import json, os, socket, sys
if os.fork():
    os._exit(0)
os.setsid()
parent = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == parent:
    pass
os.chdir(os.path.dirname(sys.argv[1]))
connection = socket.socket(socket.AF_UNIX)
connection.connect("acp.sock")
connection.sendall(json.dumps({"jsonrpc": "2.0", "id": 1, "method": sys.argv[2], "params": {}}).encode() + b"\\n")
answer = connection.makefile().readline()
with open(sys.argv[3] + ".new", "w") as file:
    file.write(answer)
os.rename(sys.argv[3] + ".new", sys.argv[3])
"""
INITIALIZE = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}


async def begun(stack: Stack, access: str = "") -> tuple[Client, str]:
    """A client that allows everything, behind a front, and its session."""
    if access:
        await stack.daemon(PYKOCLAW_NESTED_ACCESS=access)
    client = await stack.front()
    client.permit = lambda _: selected("allow_once")
    return client, await client.new(stack.work)


async def run_inside(stack: Stack, client: Client, session: str, command: str) -> str:
    """What a command prints that a tool of the session runs, with its exit status."""
    said = stack.root / "said"
    said.unlink(missing_ok=True)
    (stack.work / "run.sh").write_text(f"({command}) > {said} 2>&1; echo status $? >> {said}\n")
    await client.prompt(session, script("bash sh run.sh", "text Done."))
    return said.read_text()


def until(path: Path) -> str:
    """Claude ends what its tool has left: the tool waits for it."""
    return f"until [ -e {path} ]; do sleep 0.05; done"


@pytest.mark.parametrize(
    "command",
    [
        "stop",
        *(
            pytest.param(command, marks=pytest.mark.long)
            for command in (
                "status",
                "sessions list",
                "workers stop",
                "approve",
                "workers list",
                "restart",
                "hand-over",
            )
        ),
    ],
)
async def test_a_command_inside_of_a_session_is_refused(shared: Stack, command: str) -> None:
    client, session = await begun(shared)
    daemon = shared.daemon_pid()
    said = await run_inside(shared, client, session, f"{PROGRAM} {command}")
    assert f"runs inside of session {session}" in said
    assert "PYKOCLAW_NESTED_ACCESS=all" in said
    assert "status 1" in said
    assert client.text(session) == "Done."
    assert shared.daemon_pid() == daemon


@pytest.mark.long
async def test_a_session_does_not_answer_for_another(shared: Stack) -> None:
    client, session = await begun(shared)
    other = await shared.front()
    other.permit = lambda _: None
    victim = await other.new(shared.work)
    turn = other.prompting(victim, script("bash touch forbidden", "text Done."))
    await eventually(
        lambda: shared.rows("SELECT 1 FROM acp_permissions WHERE acp_session_id = ?", victim)
    )
    (row,) = shared.rows(
        "SELECT permission_id FROM acp_permissions WHERE acp_session_id = ?", victim
    )

    assert "status 1" in await run_inside(
        shared, client, session, f"{PROGRAM} approve {row['permission_id']} --allow"
    )
    assert "status 1" in await run_inside(
        shared, client, session, f"{PROGRAM} sessions tail {victim}"
    )
    assert not (shared.work / "forbidden").exists()
    (row,) = shared.rows("SELECT outcome FROM acp_permissions WHERE acp_session_id = ?", victim)
    assert row["outcome"] is None
    other.cancel(victim)
    await other.answer(turn)


async def test_client_launched_by_claude_is_refused_at_start(shared: Stack) -> None:
    client, session = await begun(shared)
    (shared.work / "speaker.py").write_text(SPEAKER)
    resume = {
        "jsonrpc": "2.0",
        "id": 2,
        "method": "session/resume",
        "params": {"sessionId": session, "cwd": "/"},
    }
    lines = " ".join(shlex.quote(json.dumps(line)) for line in (INITIALIZE, resume))
    said = await run_inside(
        shared, client, session, f"{shlex.quote(sys.executable)} speaker.py {lines} 2>/dev/null"
    )
    answers = [json.loads(line) for line in said.splitlines()[:2]]
    for answer in answers:
        assert answer["error"]["code"] == -32013
        assert "PYKOCLAW_NESTED_ACCESS=clients" in answer["error"]["message"]
        assert answer["error"]["data"]["errorKind"] == "nested_caller"
        assert answer["error"]["data"]["sessionId"] == session


async def test_nested_front_sends_no_greeting_before_daemon_verdict(shared: Stack) -> None:
    """A front greets its client itself when the daemon is late: here that would hide
    the refusal.
    """
    client, session = await begun(shared)
    (shared.work / "speaker.py").write_text(SPEAKER)
    daemon = shared.daemon_pid()
    assert daemon is not None
    line = shlex.quote(json.dumps(INITIALIZE))
    # The tool stops the daemon for longer than a front waits, and lets it go on.
    late = f"kill -STOP {daemon}; (sleep 1.5; kill -CONT {daemon}) & {shlex.quote(sys.executable)} speaker.py {line}"
    said = await run_inside(shared, client, session, f"({late}) 2>/dev/null")
    assert json.loads(said.splitlines()[0])["error"]["code"] == -32013


@pytest.mark.parametrize(
    "method", ["_pykoclaw.dev/status", pytest.param("session/new", marks=pytest.mark.long)]
)
async def test_process_without_parents_and_environment_is_still_inside(
    shared: Stack, method: str
) -> None:
    client, session = await begun(shared)
    (shared.work / "escaped.py").write_text(ESCAPED)
    answer = shared.root / "answer"
    where = f"{shared.places.socket} {method} {answer}"
    python = shlex.quote(sys.executable)
    await run_inside(
        shared, client, session, f"env -i setsid {python} escaped.py {where}; {until(answer)}"
    )
    error: dict[str, Any] = json.loads(answer.read_text())["error"]
    assert error["code"] == -32013
    assert error["data"]["sessionId"] == session


@pytest.mark.long
@pytest.mark.parametrize(("access", "operates"), [("clients", False), ("all", True)])
async def test_the_setting_allows_it(stack: Stack, access: str, operates: bool) -> None:
    client, session = await begun(stack, access)
    (stack.work / "speaker.py").write_text(SPEAKER)
    line = shlex.quote(json.dumps(INITIALIZE))
    said = await run_inside(
        stack, client, session, f"{shlex.quote(sys.executable)} speaker.py {line} 2>/dev/null"
    )
    assert json.loads(said.splitlines()[0])["result"]["protocolVersion"] == 1
    said = await run_inside(stack, client, session, f"{PROGRAM} status --json")
    assert ("status 0" in said) is operates
    assert ("PYKOCLAW_NESTED_ACCESS=all" in said) is not operates


@pytest.mark.long
async def test_daemon_of_another_home_is_usable_from_inside(shared: Stack, tmp_path: Path) -> None:
    """A session may start daemons of its own, as tests and demos do, and operate them."""
    client, session = await begun(shared)
    home = tmp_path / "inner"
    home.mkdir()
    inner = f"env HOME={home} PYKOCLAW_DATA={home}/data PYKOCLAW_STATE={home}/state PYKOCLAW_SOCKET={home}/s/acp.sock"
    commands = [f"{inner} {PROGRAM} {command}" for command in ("sessions list", "status", "stop")]
    said = await run_inside(shared, client, session, " && ".join(commands))
    assert "status 0" in said, said


async def test_peer_that_ended_before_check_is_refused(shared: Stack) -> None:
    """The connection of a process that is gone can belong to anybody who was given it."""
    await begun(shared)
    daemon = shared.daemon_pid()
    assert daemon is not None
    (shared.root / "given.py").write_text(
        "import os, socket, signal, sys\n"
        "connection = socket.socket(socket.AF_UNIX)\n"
        "os.chdir(os.path.dirname(sys.argv[1]))\n"
        "os.kill(int(sys.argv[2]), signal.SIGSTOP)\n"
        "if os.fork() == 0:\n    connection.connect('acp.sock')\n    os._exit(0)\n"
        "os.wait()\n"
        "os.kill(int(sys.argv[2]), signal.SIGCONT)\n"
        'connection.sendall(b\'{"jsonrpc": "2.0", "id": 1, "method": "_pykoclaw.dev/status", "params": {}}\\n\')\n'
        "print(connection.makefile().readline())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(shared.root / "given.py"), shared.places.socket, str(daemon),
        stdout=asyncio.subprocess.PIPE, env={**os.environ, "HOME": str(shared.home)},
    )  # fmt: skip
    output, _ = await process.communicate()
    assert json.loads(output)["error"]["code"] == -32013


async def test_what_something_else_starts_is_not_recognised(shared: Stack) -> None:
    """Cron, `systemd-run` and the like: docs/security.md says that this is no boundary for one's
    own user.
    """
    client, session = await begun(shared)
    await client.prompt(session, text("Here."))
    request = shared.root / "request"
    process = await asyncio.create_subprocess_exec(
        "sh", "-c", f"while ! [ -e {request} ]; do sleep 0.05; done; exec {PROGRAM} status --json",
        stdout=asyncio.subprocess.PIPE, env=shared.environment,
    )  # fmt: skip
    await run_inside(shared, client, session, f"touch {request}")
    output, _ = await process.communicate()
    assert json.loads(output)["daemon"]["pid"] == shared.daemon_pid()
