"""The commands on a real daemon, as their users see them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import re
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pykoclaw_acp.link.places import is_starting
from tests.e2e.commands import done, run
from tests.e2e.harness import Client, Stack, processes, script, text
from tests.e2e.harness.client import RpcError, selected
from tests.e2e.harness.stack import PROGRAM
from tests.waiting import eventually

ASKS = script("bash mkdir made", "text Made.")
LONG = script("bash touch begun; sleep 341", "text Over.")


async def working(stack: Stack) -> tuple[Client, str, asyncio.Future[dict[str, Any]]]:
    """A client behind a front, and a session whose turn takes for ever."""
    client = await stack.front()
    client.permit = lambda _: selected("allow_once")
    session = await client.new(stack.work)
    prompt = client.prompting(session, LONG)
    await client.until(lambda: stack.find("sleep 341"))
    return client, session, prompt


async def test_status_without_daemon_reports_absence_and_starts_none(stack: Stack) -> None:
    result = await run(stack, "status")
    assert (result.status, result.out) == (3, "")
    assert "No daemon runs" in result.error
    assert (await run(stack, "status", "--json")).json == {"daemon": None}
    assert (await run(stack, "workers", "list")).status == 3
    assert stack.processes() == []


async def test_command_ends_silently_when_reader_stops_reading(stack: Stack) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "--help", stdin=DEVNULL, stdout=writing, stderr=PIPE, env=stack.environment
    )
    os.close(writing)
    _, error = await asyncio.wait_for(process.communicate(), 240)
    assert (process.returncode, error) == (1, b"")


@pytest.mark.long
async def test_a_restart_loses_no_turn(stack: Stack) -> None:
    client = await stack.front()
    session = await client.new(stack.work)
    prompt = client.prompting(session, script("repeat 100x20ms w{n} "))
    await client.until(lambda: "w5 " in client.text(session))
    before = stack.daemon_pid()
    result = await done(stack, "restart")
    after = stack.daemon_pid()
    assert (
        result.out == f"The daemon (pid {before}) has ended; pid {after} goes on with 1 worker.\n"
    )
    assert (await client.answer(prompt))["stopReason"] == "end_turn"
    assert client.text(session).split() == [f"w{n}" for n in range(1, 101)]
    assert len(stack.asked()) == 1


@pytest.mark.long
async def test_stop_ends_daemon_and_all_its_processes(stack: Stack) -> None:
    assert [(await run(stack, command)).status for command in ("restart", "stop")] == [3, 3]
    client, _, _ = await working(stack)
    await client.kill()
    pid = stack.daemon_pid()
    result = await done(stack, "stop")
    ended, said = result.out.splitlines()
    assert ended == "Ended 1 worker."
    assert said == f"The daemon (pid {pid}) has ended. A client that is open starts the next one."
    await stack.nothing_left()
    assert stack.rows("SELECT state FROM acp_turns") == [{"state": "cancelled"}]


async def test_commands_wait_for_a_daemon_that_is_starting(stack: Stack) -> None:
    await stack.spawn_front()
    await eventually(lambda: is_starting(stack.places))
    status = (await done(stack, "status", "--json")).json
    assert status["daemon"]["pid"] == stack.daemon_pid()


@pytest.mark.parametrize("command", ["stop", "restart"])
async def test_daemon_that_is_starting_can_be_ended(stack: Stack, command: str) -> None:
    """The client that starts it gets the next one."""
    client = await stack.spawn_front()
    await eventually(lambda: is_starting(stack.places))
    said = (await done(stack, command)).out.splitlines()[-1]
    found = re.match(r"The daemon \(pid ([0-9]+)\) has ended", said)
    assert found is not None, said
    assert not processes.alive(int(found[1]))
    await client.initialize()
    assert await client.call("session/list") == {"sessions": []}
    assert stack.daemon_pid() not in (None, int(found[1]))


async def test_stop_ends_daemon_whose_client_is_gone_already(stack: Stack) -> None:
    """It is still starting, and has not locked the data directory."""
    client = await asyncio.create_subprocess_exec(
        *PROGRAM, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL, env=stack.environment
    )
    assert await asyncio.wait_for(client.wait(), 60) == 0
    assert "has ended" in (await done(stack, "stop")).out
    await stack.nothing_left()


async def test_two_stops_at_once_end_the_daemon(stack: Stack) -> None:
    await stack.daemon()
    results = await asyncio.gather(run(stack, "stop"), run(stack, "stop"))
    await stack.nothing_left()
    first, second = sorted(results, key=lambda one: one.status)
    assert (first.status, first.error) == (0, "")
    # The second may have begun when the first was done.
    assert second.status == 0 or "No daemon runs" in second.error


async def test_terminal_is_told_what_program_is_for(stack: Stack) -> None:
    ours, theirs = os.openpty()
    try:
        process = await asyncio.create_subprocess_exec(
            *PROGRAM, stdin=theirs, stdout=theirs, stderr=PIPE, env=stack.environment
        )
        _, error = await asyncio.wait_for(process.communicate(), 60)
    finally:
        os.close(ours)
        os.close(theirs)
    assert process.returncode == 2
    said = error.decode()
    assert "there is nothing to type here" in said
    assert "`prompt` goes on with one, `attach` follows it" in said
    assert "pykoclaw-acp --help" in said
    assert stack.daemon_pid() is None


@pytest.mark.long
async def test_the_status_of_a_busy_daemon(stack: Stack) -> None:
    client, session, prompt = await working(stack)
    status = (await done(stack, "status", "--json")).json
    assert status["daemon"]["pid"] == stack.daemon_pid()
    assert (status["running"], status["waiting"], status["clients"]) == (1, 0, 1)
    (worker,) = status["workers"]
    assert (worker["session"], worker["state"], worker["pid"]) == (
        session,
        "working",
        stack.worker(session).pid,
    )
    assert worker["memory"] > 20 * 1024 * 1024  # the CLI is counted too
    shown = (await done(stack, "status")).out
    assert "1 running, 0 waiting" in shown
    assert session[:8] in (await done(stack, "workers")).out
    client.cancel(session)
    await client.answer(prompt)


@pytest.mark.long
async def test_a_server_without_a_socket_is_named(stack: Stack) -> None:
    client = await stack.start()
    result = await run(stack, "status")
    assert (result.status, f"`serve --stdio` (pid {client.process.pid})" in result.error) == (
        3,
        True,
    )


@pytest.mark.long
async def test_sessions_are_listed_shown_and_exported(stack: Stack) -> None:
    client = await stack.front()
    session = await client.new(stack.work)
    await client.new(stack.work)
    await client.prompt(
        session,
        "Please look.\n" + script("thinking Hm.", "bash echo '```'", "text # Found\x1b[31m it."),
    )
    (listed,) = (await done(stack, "sessions", "list", "--json")).json
    assert (listed["id"], listed["cwd"], listed["busy"]) == (session, str(stack.work), False)
    assert len((await done(stack, "sessions", "list", "--all", "--json")).json) == 2
    assert session[:8] in (await done(stack, "sessions", "list")).out
    shown = (await done(stack, "sessions", "show", session[:8])).out
    assert session in shown
    assert "end_turn" in shown
    tail = (await done(stack, "sessions", "tail", f"acp-{session[:8]}")).out
    assert tail.startswith("You:\nPlease look.\n")
    assert "✓ Run a scripted command: echo" in tail
    assert tail.endswith("Claude:\n# Found it.\n")
    exported = (await done(stack, "sessions", "export", session, "--format", "json")).json
    assert exported["session"]["summary"]["id"] == session
    loaded = await stack.front()
    await loaded.load(session, stack.work)
    updates = [event["update"] for event in exported["events"]]
    # A client without a name is not shown what a tool has written so far.
    progress = ("tool_call_update", "in_progress")
    told = [one for one in updates if (one["sessionUpdate"], one.get("status")) != progress]
    assert told == loaded.updates[session]
    ended = next(one for one in loaded.of(session) if one["sessionUpdate"] == "tool_call_update")
    place = ("sessions", "show", session, "--seq", str(ended["_meta"]["pykoclaw.dev/seq"]))
    assert (await done(stack, *place, "--json")).json == ended
    whole = (await done(stack, *place)).out
    assert "```" in whole
    assert '"status": "completed"' in whole
    beyond = await run(stack, *place[:-1], "9999")
    assert (beyond.status, beyond.out, "ends before that" in beyond.error) == (1, "", True)
    document = (await done(stack, "sessions", "export", session)).out
    assert document.count("## You") == 1
    assert "\n- *Tool:* ✓ ````Run a scripted command: echo '```'````" in document
    assert "— ```` ``` ````\n" in document
    page = (await done(stack, "sessions", "export", session, "--format", "html")).out
    assert page.startswith("<!DOCTYPE html>")
    assert "<strong>Found it.</strong>" in page


@pytest.mark.long
async def test_a_renamed_session_has_its_title_everywhere(shared: Stack) -> None:
    client = await shared.front()
    session = await client.new(shared.work)
    await client.prompt(session, text("Yes."))
    await done(shared, "sessions", "rename", session[:8], "The parser")
    await client.until(
        lambda: client.of(session, "session_info_update")[-1]["title"] == "The parser"
    )
    assert "The parser" in (await done(shared, "sessions", "list")).out


@pytest.mark.long
async def test_a_deleted_session_is_gone(shared: Stack) -> None:
    client, session, prompt = await working(shared)
    (key,) = shared.rows("SELECT log_key FROM acp_sessions WHERE acp_session_id = ?", session)
    assert shared.rows("SELECT * FROM acp_log WHERE log_key = ?", key["log_key"])
    refused = await run(shared, "sessions", "delete", session)
    assert refused.status == 1  # nobody was there to be asked
    await done(shared, "sessions", "delete", session, "--yes")
    assert (await client.answer(prompt))["stopReason"] == "cancelled"
    await shared.no_worker()
    with pytest.raises(RpcError) as gone:
        await client.load(session, shared.work)
    assert gone.value.code == -32002
    assert shared.rows("SELECT * FROM acp_log WHERE log_key = ?", key["log_key"]) == []
    unknown = await run(shared, "sessions", "show", session)
    assert (unknown.status, f"No session has the id or the name {session}" in unknown.error) == (
        1,
        True,
    )


@pytest.mark.long
async def test_wrong_setting_ends_no_daemon_nor_running_turn(
    stack: Stack,
) -> None:
    client = await stack.front()
    session = await client.new(stack.work)
    running = client.prompting(
        session,
        script("bash touch begun; until [ -e go ]; do sleep 0.05; done; touch ran", "text Over."),
    )
    await eventually((stack.work / "begun").is_file)
    pid = stack.daemon_pid()
    wrong = stack.data / ".env"
    wrong.write_text("PYKOCLAW_MAX_WORKERS=banana\n")
    wrong.chmod(0o600)
    result = await run(stack, "restart")
    assert (result.status, stack.daemon_pid()) == (78, pid)
    assert "PYKOCLAW_MAX_WORKERS" in result.error
    await stack.end_daemon()
    with pytest.raises(RpcError) as refused:
        await client.answer(running)
    assert refused.value.data["turnState"] == "unknown"
    assert "The daemon had received this request" in refused.value.message
    (stack.work / "go").touch()
    await eventually((stack.work / "ran").is_file)
    wrong.unlink()
    again = await stack.front()
    await again.load(session, stack.work)
    await again.until(lambda: again.text(session).endswith("Over."))


@pytest.mark.long
async def test_session_is_followed_across_daemon_restart(stack: Stack) -> None:
    client = await stack.front()
    client.permit = lambda _: selected("allow_once")
    session = await client.new(stack.work)
    await client.prompt(session, text("One."))
    follower = await asyncio.create_subprocess_exec(
        *PROGRAM,
        "attach",
        session,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        env=stack.environment,
        cwd=stack.root,
    )
    assert follower.stdout is not None
    seen = b""

    async def until(words: bytes) -> None:
        nonlocal seen
        assert follower.stdout is not None
        while words not in seen:
            data = await asyncio.wait_for(follower.stdout.read(65536), 60)
            assert data, seen
            seen += data

    await until(b"One.")
    await stack.end_daemon(signal.SIGKILL)
    await client.prompt(session, text("Two."))
    await until(b"Two.")
    running = client.prompting(session, LONG)
    await until(b"touch begun")
    follower.send_signal(signal.SIGINT)
    out, error = await asyncio.wait_for(follower.communicate(), 30)
    assert (follower.returncode, error) == (0, b"")
    assert b"Detached" in out
    assert seen.count(b"One.") == 3  # in the title, in the prompt and in the answer
    assert not running.done()
    client.cancel(session)
    await client.answer(running)


class AttachedTerminal:
    """`attach` in a terminal of its own."""

    def __init__(self, process: asyncio.subprocess.Process, keyboard: int) -> None:
        self._process = process
        self._keyboard = keyboard
        self._shown = b""

    def says(self, words: bytes, times: int = 1) -> bool:
        with contextlib.suppress(BlockingIOError):
            self._shown += os.read(self._keyboard, 65536)
        return self._shown.count(words) >= times

    def type(self, keys: bytes) -> None:
        os.write(self._keyboard, keys)

    async def end(self) -> None:
        self._process.send_signal(signal.SIGINT)
        await self._process.wait()
        os.close(self._keyboard)


@contextlib.asynccontextmanager
async def attached(stack: Stack, session: str) -> AsyncIterator[AttachedTerminal]:
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "attach", session, stdin=theirs, stdout=theirs, stderr=theirs,
        env={**stack.environment, "TERM": "dumb"}, cwd=stack.root,
    )  # fmt: skip
    os.close(theirs)
    os.set_blocking(ours, False)
    made = AttachedTerminal(process, ours)
    try:
        yield made
    finally:
        await made.end()


@pytest.mark.long
async def test_a_question_is_answered_in_an_attached_terminal(shared: Stack) -> None:
    client = await shared.front()
    client.permit = lambda _: None
    session = await client.new(shared.work)
    async with attached(shared, session) as screen:
        prompt = client.prompting(session, ASKS)
        await eventually(lambda: screen.says(b"y: Allow once"))
        screen.type(b"y\n")
        assert (await client.answer(prompt))["stopReason"] == "end_turn"
        await eventually(lambda: screen.says(b"Made."))
        assert (shared.work / "made").is_dir()
        asked = "SELECT outcome, answered_by FROM acp_permissions WHERE acp_session_id = ?"
        (row,) = shared.rows(asked, session)
        assert row == {"outcome": "selected", "answered_by": "cli"}


@pytest.mark.long
async def test_attached_terminal_answers_next_daemons_questions(stack: Stack) -> None:
    client = await stack.front()
    client.permit = lambda _: None
    session = await client.new(stack.work)
    async with attached(stack, session) as screen:
        prompt = client.prompting(session, ASKS)
        await eventually(lambda: screen.says(b"y: Allow once"))
        await stack.end_daemon(signal.SIGKILL)
        await eventually(lambda: screen.says(b"y: Allow once", times=2))
        worker = stack.worker(session)
        await stack.end_daemon(signal.SIGKILL)
        worker.kill()
        with pytest.raises(RpcError):
            await client.answer(prompt)
        prompt = client.prompting(session, ASKS)
        await eventually(lambda: screen.says(b"y: Allow once", times=3))
        screen.type(b"y\n")
        assert (await client.answer(prompt))["stopReason"] == "end_turn"
        assert (stack.work / "made").is_dir()


@pytest.mark.long
async def test_a_question_is_answered_by_a_command(shared: Stack) -> None:
    client = await shared.front()
    client.permit = lambda _: None
    session = await client.new(shared.work)
    prompt = client.prompting(session, ASKS)
    await client.until(lambda: client.questions)
    (question,) = (await done(shared, "approve", "--json")).json
    assert (question["session"], question["title"]) == (session, "mkdir made")
    assert question["id"][:8] in (await done(shared, "approve")).out
    assert question["input"]["command"] == "mkdir made"
    assert "│   mkdir made\n" in (await done(shared, "approve", question["id"])).out
    unknown = await run(shared, "approve", "nothing", "--allow")
    assert (unknown.status, "No permission request" in unknown.error) == (1, True)
    assert (await done(shared, "approve", question["id"][:8], "--deny")).out == "Denied.\n"
    await client.answer(prompt)
    assert not (shared.work / "made").exists()
    assert (await run(shared, "approve", question["id"], "--allow")).status == 1
    assert (await done(shared, "approve")).out == "No pending permissions.\n"


@pytest.mark.long
async def test_stopping_the_workers_cancels_their_turns(stack: Stack) -> None:
    client, session, prompt = await working(stack)
    assert (await done(stack, "workers", "stop")).out == "Ended 1 worker.\n"
    assert (await client.answer(prompt))["stopReason"] == "cancelled"
    await stack.no_worker()
    assert (await done(stack, "workers", "stop")).out == "No worker was running.\n"
    assert (await client.prompt(session, text("Again.")))["stopReason"] == "end_turn"
    assert (await done(stack, "workers", "stop", session[:8], "--now")).out == "Ended 1 worker.\n"


@pytest.mark.long
async def test_workers_without_a_daemon_are_stopped_too(stack: Stack) -> None:
    client, _, _ = await working(stack)
    await client.kill()
    await stack.end_daemon(signal.SIGKILL)
    assert any(one.session for one in stack.processes())
    assert (await done(stack, "workers", "stop")).out == "Ended 1 worker.\n"
    assert not any(one.session for one in stack.processes())
    await stack.daemon()
    assert "worker_stopped" in stack.rows("SELECT error FROM acp_turns")[0]["error"]


@pytest.mark.long
async def test_logs_of_daemon_started_by_client(stack: Stack) -> None:
    client = await stack.front()
    await client.prompt(await client.new(stack.work), text("Yes."))
    shown = (await done(stack, "logs")).out
    assert "info    Daemon ready" in shown
    (last,) = (await done(stack, "logs", "--json", "-n", "1")).out.splitlines()
    assert json.loads(last)["event"]


@pytest.mark.long
async def test_nothing_is_wrong_with_a_daemon_that_runs(stack: Stack) -> None:
    client = await stack.front()
    await client.new(stack.work)  # which the front does not answer before there is a daemon
    result = await run(stack, "doctor", "--json")
    findings = {one["check"]: one for one in result.json}
    assert result.status == 0, [one for one in result.json if one["level"] == "problem"]
    assert findings["daemon"]["found"].startswith(f"pid {stack.daemon_pid()} answers")
    assert findings["Claude CLI"]["level"] == "ok"
    assert "ANTHROPIC" in findings["credential"]["found"]
    assert stack.environment["ANTHROPIC_API_KEY"] not in result.out
    assert (await run(stack, "doctor", PYKOCLAW_IDLE_TIMEOUT="soon")).status == 1


@pytest.mark.long
async def test_hung_daemon_is_reported_and_blocks_no_command(stack: Stack) -> None:
    daemon = await stack.daemon()
    daemon.send_signal(signal.SIGSTOP)
    try:
        result = await run(stack, "status")
        assert (result.status, "may hang" in result.error) == (3, True)
    finally:
        daemon.send_signal(signal.SIGCONT)
