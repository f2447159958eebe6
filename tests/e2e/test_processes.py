"""Processes: none is started without need, and whatever dies, nothing stays behind."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pykoclaw_acp.system import processes
from tests.e2e.commands import run
from tests.e2e.harness import Client, Stack, files, script, text
from tests.e2e.harness.stack import PROGRAM
from tests.waiting import eventually

DAEMON = script("bash touch begun; setsid sleep 331 & sleep 332", "text Never said.")


async def daemon_runs(stack: Stack, client: Client, session: str) -> None:
    """In the middle of a turn whose tool has started a daemon in a session of its own."""
    client.prompting(session, DAEMON)
    await client.until(lambda: stack.find("sleep 331") and stack.find("sleep 332"))


async def named(client: Client) -> Client:
    """A client that is not Mitto, which gives no name sometimes."""
    await client.initialize(clientInfo={"name": "editor", "version": "1"})
    return client


async def test_daemon_outlives_the_tree_of_its_client(stack: Stack) -> None:
    """As acpx and editors end their agent: with every process below it."""
    client = await named(await stack.spawn_front())
    session = await client.new(stack.work)
    client.prompting(session, script("bash touch begun; while [ ! -e go ]; do sleep 0.1; done"))
    await client.until((stack.work / "begun").exists)
    tree = [client.process.pid]
    for pid in tree:
        tree += processes.children(pid)
    for pid in reversed(tree):
        os.kill(pid, signal.SIGTERM)
    await client.gone()
    (stack.work / "go").touch()
    other = await named(await stack.spawn_front())
    await other.load(session, stack.work)
    await other.until(lambda: stack.rows("SELECT state FROM acp_turns") == [{"state": "done"}])


@pytest.mark.parametrize("part", ["daemon", "front"])
async def test_signals_blocked_by_parent_are_received(stack: Stack, part: str) -> None:
    blocking = ("env", "--block-signal=TERM", *PROGRAM)
    if part == "daemon":
        process = await stack.daemon(program=blocking)
    else:
        process = (await stack.front(program=blocking)).process
    process.terminate()
    assert await asyncio.wait_for(process.wait(), 30) == 0


@pytest.mark.long
async def test_claude_starts_while_the_first_prompt_is_written(stack: Stack) -> None:
    client = await named(await stack.spawn())
    session = await client.new(stack.work)
    early = await client.until(lambda: stack.claude(session))
    assert stack.asked() == []
    await client.prompt(session, text("Now."))
    assert stack.claude(session) == early
    assert client.log.read_text().count('"worker_launched"') == 1
    other = await client.new(stack.work)
    await client.until(lambda: stack.claude(other))
    await client.call("session/close", sessionId=other)
    await client.until(lambda: stack.claude(other) is None)


@pytest.mark.long
@pytest.mark.parametrize("dies", ["worker", "claude"])
async def test_prompt_after_the_early_process_was_killed(stack: Stack, dies: str) -> None:
    client = await named(await stack.spawn())
    session = await client.new(stack.work)
    await client.until(lambda: stack.claude(session))
    found = stack.worker(session) if dies == "worker" else stack.claude(session)
    assert found is not None
    found.kill()
    assert (await client.prompt(session, text("Said.")))["stopReason"] == "end_turn"
    assert client.text(session) == "Said."
    assert [one["user_texts"] for one in stack.asked()] == [[text("Said.")]]


@pytest.mark.long
async def test_early_process_ends_with_its_daemon(stack: Stack) -> None:
    """The next one does not know how long it has waited; the first prompt starts another."""
    client = await named(await stack.spawn_front())
    session = await client.new(stack.work)
    early = await client.until(lambda: stack.claude(session))
    pid = stack.daemon_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await client.until(lambda: early is not None and not early.alive)
    assert (await client.prompt(session, text("Said.")))["stopReason"] == "end_turn"
    assert client.text(session) == "Said."


@pytest.mark.long
async def test_without_early_start_only_prompt_starts_worker(stack: Stack) -> None:
    client = await stack.start(PYKOCLAW_EARLY_START="off")
    session = await client.new(stack.work)
    await client.load(session, stack.work)
    await client.resume(session, stack.work)
    client.cancel(session)
    await client.call("session/close", sessionId=session)
    await client.load(session, stack.work)
    # The fork server is warmed up, and is there before any worker could be.
    await client.until(lambda: stack.find("pykoclaw_acp.worker.forkserver"))
    assert not any(one.is_claude for one in stack.processes())
    assert "worker_launched" not in client.log.read_text()
    await client.prompt(session, text("Now."))
    assert stack.claude(session) is not None
    assert client.log.read_text().count('"worker_launched"') == 1


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """What is started meanwhile has this umask."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.mark.long
@pytest.mark.parametrize(("setting", "mode"), [("", 420), ("0027", 416)])
async def test_what_claude_makes_has_users_umask(stack: Stack, setting: str, mode: int) -> None:
    with umask(0o022):
        client = await stack.front(PYKOCLAW_UMASK=setting)
    session = await client.new(stack.work)
    waits = "bash touch by-command; env | grep UMASK > seen; until [ -e go ]; do sleep 0.05; done"
    running = client.prompting(session, script("write by-tool <<< x", waits))
    await eventually((stack.work / "seen").is_file)
    places = [stack.data, Path(stack.places.state)]
    for path in (found for place in places for found in (place, *place.rglob("*"))):
        of_claude = "/tmp/" in str(path.relative_to(stack.home))  # in a directory that is private
        assert of_claude or not path.lstat().st_mode & 0o077, path
    (stack.work / "go").touch()
    await client.answer(running)
    made = [(stack.work / one).stat().st_mode & 0o777 for one in ("by-command", "by-tool")]
    assert made == [mode, mode]
    assert "CLAUDE" not in (stack.work / "seen").read_text()


@pytest.mark.long
@pytest.mark.parametrize("dies", ["worker", "claude"])
async def test_prompt_just_after_idle_process_was_killed(stack: Stack, dies: str) -> None:
    """Nothing had begun, so it simply runs, with the conversation's memory."""
    client = await stack.start()
    session = await client.new(stack.work)
    await client.prompt(session, text("First."))
    found = stack.worker(session) if dies == "worker" else stack.claude(session)
    assert found is not None
    found.kill()
    assert (await client.prompt(session, text("Second.")))["stopReason"] == "end_turn"
    assert client.text(session) == "First.Second."
    assert stack.asked()[-1]["user_texts"] == [text("First."), text("Second.")]


@pytest.mark.long
async def test_sigstopped_worker_is_replaced_by_next_prompt(stack: Stack) -> None:
    client = await stack.start(PYKOCLAW_STALL_TIMEOUT="12")
    session = await client.new(stack.work)
    await client.prompt(session, text("First."))
    stopped = stack.worker(session)
    stopped.signal(signal.SIGSTOP)
    assert (await client.prompt(session, text("Second.")))["stopReason"] == "end_turn"
    assert stack.asked()[-1]["user_texts"] == [text("First."), text("Second.")]
    assert stack.worker(session).pid != stopped.pid
    await client.until(lambda: not stopped.alive)


@pytest.mark.parametrize("state", [pytest.param("idle", marks=pytest.mark.long), "in a turn"])
async def test_server_killed_alone(stack: Stack, state: str) -> None:
    """Its workers end by themselves, with what their tools started."""
    client = await stack.start()
    session = await client.new(stack.work)
    if state == "idle":
        await client.prompt(session, text("First."))
    else:
        await daemon_runs(stack, client, session)
    await client.kill()
    await stack.nothing_left(8)


@pytest.mark.long
async def test_server_and_fork_server_killed(stack: Stack) -> None:
    client = await stack.start()
    session = await client.new(stack.work)
    await daemon_runs(stack, client, session)
    stack.fork_server(client).kill()
    await client.kill()
    await client_after(stack, session)


async def test_claude_ends_with_its_worker(stack: Stack) -> None:
    """Also when nobody of ours is left to end it: a busy CLI would go on editing files, unseen."""
    client = await stack.start()
    session = await client.new(stack.work)
    client.prompting(session, script("repeat 5000x20ms word{n} "))
    await client.until(lambda: "word3" in client.text(session))
    for process in (stack.fork_server(client), stack.worker(session)):
        process.kill()
    client.process.kill()
    await client.gone()
    await stack.nothing_left()


@pytest.mark.long
async def test_everything_of_ours_killed_at_once(stack: Stack) -> None:
    """Nobody is left who could end the daemon of a tool: the next start does it."""
    client = await stack.start()
    session = await client.new(stack.work)
    await daemon_runs(stack, client, session)
    ours = [process for process in stack.processes() if "sleep" not in process.command]
    for process in ours:
        process.signal(signal.SIGSTOP)  # so that none of them can end what the others leave
    for process in ours:
        process.kill()
    await client.gone()
    await client.until(lambda: not any(one.is_claude for one in stack.processes()))
    assert stack.find("sleep 331")
    await client_after(stack, session)


async def client_after(stack: Stack, session: str) -> None:
    """A new server, which ends what was left before it serves anybody."""
    client = await stack.start()
    assert not any(one.session for one in stack.processes())
    await client.load(session, stack.work)
    assert client.of(session, "tool_call_update")[-1]["status"] == "failed"
    await client.prompt(session, text("It goes on."))
    assert client.text(session).endswith("It goes on.")
    assert stack.asked()[-1]["user_texts"] == [DAEMON, text("It goes on.")]


@pytest.mark.long
@pytest.mark.parametrize("end", ["input ends", "close"])
async def test_daemons_of_tools_end_with_their_session(stack: Stack, end: str) -> None:
    client = await stack.start()
    session = await client.new(stack.work)
    await client.prompt(
        session, script("bash setsid sleep 333 > /dev/null 2>&1 & echo started", "text It runs.")
    )
    await client.until(lambda: stack.find("sleep 333"))
    if end == "input ends":
        assert await client.close() == 0
    else:
        await client.call("session/close", sessionId=session)
    await client.until(lambda: not stack.find("sleep 333"), 5)


async def test_adopted_worker_takes_what_its_tools_hid(stack: Stack) -> None:
    """Nobody else would: its fork server ended with the daemon before, and no environment tells
    whose it is.
    """
    client = await stack.front()
    session = await client.new(stack.work)
    hidden = "env -i HOME=$HOME setsid -f"
    (stack.work / "hide.sh").write_text(
        f"exec > /dev/null 2>&1\n{hidden} sleep 335\n{hidden} sh -c 'trap \"\" TERM; sleep 336'\n"
    )
    await client.prompt(session, script("bash sh hide.sh", "text They run."))
    await client.until(lambda: stack.find("sleep 335") and stack.find("sleep 336"))
    worker = stack.worker(session)
    await stack.end_daemon()
    await client.call("session/resume", sessionId=session, cwd=str(stack.work), mcpServers=[])
    assert worker.alive
    assert stack.find("sleep 335")
    await client.call("session/close", sessionId=session)
    await client.until(lambda: not worker.alive)
    assert not stack.find("sleep 335")
    assert not stack.find("sleep 336")


@pytest.mark.long
async def test_other_peoples_processes_are_left_alone(stack: Stack) -> None:
    """A server ends strays of its own sessions only, not those of a server with other data."""
    other = await stack.start(PYKOCLAW_DATA=str(stack.root / "other"))
    session = await other.new(stack.work)
    await daemon_runs(stack, other, session)
    client = await stack.start()
    await client.prompt(await client.new(stack.work), text("First."))
    assert await client.close() == 0
    assert stack.find("sleep 331")
    assert stack.find("sleep 332")
    other.cancel(session)


@pytest.mark.long
async def test_one_worker_for_two_sessions(stack: Stack) -> None:
    """The one that was idle longest makes room, and both sessions keep their memory."""
    client = await stack.start(PYKOCLAW_MAX_WORKERS="1")
    one, two = await client.new(stack.work), await client.new(stack.work)
    for at in range(2):
        for session in (one, two):
            await client.prompt(session, text(f"Answer {at} of {session}."))
            assert sum(process.is_claude for process in stack.processes()) == 1
    for session in (one, two):
        assert client.text(session) == f"Answer 0 of {session}.Answer 1 of {session}."
        newest = [asked for asked in stack.asked() if asked["session"] == session][-1]
        assert newest["user_texts"] == [text(f"Answer {at} of {session}.") for at in range(2)]


@pytest.mark.long
async def test_turn_waits_when_all_workers_are_busy(stack: Stack) -> None:
    client = await stack.start(PYKOCLAW_MAX_WORKERS="1")
    busy, waiting = await client.new(stack.work), await client.new(stack.work)
    running = client.prompting(busy, script("repeat 5000x20ms word{n} "))
    await client.until(lambda: "word3" in client.text(busy))
    pending = client.prompting(waiting, text("At last."))
    await client.until(lambda: len(stack.rows("SELECT 1 FROM acp_turns")) == 2)
    assert stack.claude(waiting) is None
    client.cancel(busy)
    assert (await client.answer(running))["stopReason"] == "cancelled"
    assert (await client.answer(pending))["stopReason"] == "end_turn"
    assert client.text(waiting) == "At last."


@pytest.mark.long
async def test_files_of_workers_are_removed(stack: Stack) -> None:
    client = await stack.start()
    session = await client.new(stack.work)
    await client.prompt(session, script("bash echo $CLAUDE_CODE_TMPDIR > where", "text Done."))
    temporary = (stack.work / "where").read_text().strip()
    state = stack.home / ".local/state/pykoclaw"
    assert temporary.startswith(str(state))
    await client.call("session/close", sessionId=session)
    left = {path.name: path for path in files.below(state)}
    assert left.keys() == {"workers.log", "instance.json"}, "the latter is the daemon's"
    assert "Traceback" not in left["workers.log"].read_text()


COMMAND = "background sleep 3; touch ended"
SUBAGENT = (
    'tool Agent {"description": "look", "subagent_type": "claude", "run_in_background": true, '
    '"prompt": "[[script bash sleep 3; touch ended ;; bash touch further ;; text Seen.]]"}'
)


@pytest.mark.long
@pytest.mark.parametrize("task", [COMMAND, SUBAGENT], ids=["command", "subagent"])
@pytest.mark.parametrize("how", ["close", "delete", "command"])
async def test_nothing_begins_in_a_session_that_is_closed(
    stack: Stack, task: str, how: str
) -> None:
    """Not about a background task either, which would end while Claude does."""
    client = await stack.front()
    session = await client.new(stack.work)
    script_ = script(task, "text Runs.", "stop end_turn", "bash touch after", "text Spoke.")
    await client.prompt(session, script_)
    await client.until(lambda: stack.find("sleep 3"))
    asked, claude = len(stack.asked()), stack.claude(session)
    if how == "command":
        assert (await run(stack, "workers", "stop", session)).status == 0
    else:
        await client.call(f"session/{how}", sessionId=session)
    await client.until(lambda: claude is not None and not claude.alive)
    await client.until(lambda: not stack.find("sleep 3"))
    assert [one.name for one in stack.work.iterdir() if one.is_file()] == []
    assert len(stack.asked()) == asked
    assert "Spoke." not in client.text(session)
