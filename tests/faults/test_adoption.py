"""Workers without a daemon: what they do alone, what they keep, and what the next daemon makes of
it.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from typing import Final

import pytest

from pykoclaw_acp.front import call
from tests.e2e.harness import Stack, script
from tests.e2e.harness.client import selected
from tests.faults.adopting import LONG, TURN, WHOLE, alone, history, spools, turn, words
from tests.faults.limits import Locked
from tests.waiting import eventually

MISSING: Final = "Something is missing here."


def ended_on_disk(stack: Stack) -> bool:
    spools = (stack.home / ".local/state/pykoclaw").glob("*/spool/*.ndjson")
    return any(b'"frame":"turn_ended"' in path.read_bytes() for path in spools)


@pytest.mark.long
async def test_turn_ending_without_daemon_is_complete_afterwards(stack: Stack) -> None:
    session, _, worker = await alone(stack)
    await eventually(lambda: ended_on_disk(stack), 60)
    after = await history(stack, session)
    assert words(after, session) == WHOLE
    assert turn(stack)["state"] == "done"
    assert worker.alive
    await after.prompt(session, script("text The same worker."))
    assert stack.worker(session).pid == worker.pid
    assert len(stack.asked()) == 2


@pytest.mark.long
async def test_dead_fronts_prompt_runs_after_return_and_deploy(
    stack: Stack,
) -> None:
    await stack.daemon()
    client = await stack.front()
    session = await client.new(stack.work)
    gate = stack.work / "gate"
    gate.mkdir()
    client.prompting(session, script("bash while [ -d gate ]; do sleep 0.05; done", "text One."))
    await client.until(lambda: client.of(session, "tool_call"))
    client.prompting(session, script("text Two."))
    await eventually(lambda: len(stack.rows("SELECT 1 FROM acp_turns")) == 2)
    os.killpg(client.process.pid, signal.SIGKILL)
    back = await stack.front()
    await back.load(session, stack.work)
    await stack.end_daemon()
    await eventually(stack.daemon_pid)
    gate.rmdir()
    await back.until(lambda: back.text(session).endswith("Two."))
    assert (await back.prompt(session, script("text Three.")))["stopReason"] == "end_turn"


@pytest.mark.long
async def test_stopped_worker_leaves_true_state_on_disk(stack: Stack) -> None:
    session, before, worker = await alone(stack, LONG)
    worker.signal(signal.SIGTERM)
    await eventually(lambda: not stack.processes(), 20)
    after = await history(stack, session)
    _check_beginning(words(before, session), words(after, session))
    assert turn(stack)["state"] == "failed"
    assert "worker_stopped" in turn(stack)["error"]
    assert (await after.prompt(session, script("text On again.")))["stopReason"] == "end_turn"


async def test_killed_worker_leaves_what_it_wrote(stack: Stack) -> None:
    session, before, worker = await alone(stack, LONG)
    await eventually(lambda: any((stack.home / ".local/state/pykoclaw").glob("*/spool/*.ndjson")))
    worker.kill()
    await eventually(lambda: not stack.processes(), 20)
    after = await history(stack, session)
    _check_beginning(words(before, session), words(after, session))
    assert turn(stack)["state"] == "failed"


async def test_kill_of_both_while_unwritable_loses_nothing(stack: Stack) -> None:
    await stack.daemon()
    client = await stack.front()
    session = await client.new(stack.work)
    client.prompting(session, LONG)
    await client.until(lambda: len(words(client, session)) >= 20)
    worker = stack.worker(session)
    other = Locked(stack)
    with other.held:
        other.on()
        kept = await eventually(lambda: _on_disk(stack)[200:])
        worker.kill()
        os.killpg(client.process.pid, signal.SIGKILL)
        await stack.end_daemon(signal.SIGKILL)
    after = await history(stack, session)
    _check_beginning(words(client, session), words(after, session))
    assert kept[-1] in words(after, session)
    assert turn(stack)["state"] == "failed"


def _on_disk(stack: Stack) -> list[str]:
    """Words in spools."""
    return [one for path in spools(stack) for one in re.findall(r"(w\d+)\.", path.read_text())]


@pytest.mark.long
async def test_orphan_worker_ends_at_timeout_and_reports_it(stack: Stack) -> None:
    session, before, _ = await alone(stack, LONG, {"PYKOCLAW_ORPHAN_GRACE": "1"})
    await eventually(lambda: not stack.processes(), 20)
    after = await history(stack, session)
    _check_beginning(words(before, session), words(after, session))
    assert turn(stack)["state"] == "failed"
    assert "orphaned" in turn(stack)["error"]


@pytest.mark.long
async def test_full_spool_ends_turn_with_clear_failure(stack: Stack) -> None:
    session, before, worker = await alone(stack, LONG, {"PYKOCLAW_SPOOL_LIMIT": "2000"})
    await eventually(lambda: ended_on_disk(stack), 60)
    after = await history(stack, session)
    _check_beginning(words(before, session), words(after, session))
    assert turn(stack)["state"] == "failed"
    assert "spool_full" in turn(stack)["error"]
    assert "PYKOCLAW_SPOOL_LIMIT" in after.text(session)
    assert (await after.prompt(session, script("text There is room again.")))[
        "stopReason"
    ] == "end_turn"
    assert stack.worker(session).pid == worker.pid


@pytest.mark.long
async def test_question_survives_daemon_death_and_is_answered_later(stack: Stack) -> None:
    await stack.daemon()
    client = await stack.front()
    session = await client.new(stack.work)
    answer = client.prompting(session, script("bash touch made-it", "text Done."))
    await client.until(lambda: client.questions)
    worker = stack.worker(session)
    await stack.end_daemon(signal.SIGKILL)
    await eventually(lambda: stack.daemon_pid() is not None)
    client.reply(client.questions[0], selected("allow_once"))
    assert (await client.answer(answer))["stopReason"] == "end_turn"
    assert (stack.work / "made-it").exists()
    assert stack.worker(session).pid == worker.pid


@pytest.mark.long
@pytest.mark.parametrize(
    "step",
    [
        "worker_epoch",
        "worker_launched",
        "worker_recorded",
        "worker_ready",
        "turn_dispatched",
        "prompt_sent",
        "frames_received",
    ],
)
async def test_daemon_death_before_worker_starts_only_delays_turn(stack: Stack, step: str) -> None:
    await stack.daemon(PYKOCLAW_CRASH_AT=step)
    client = await stack.front()
    session = await client.new(stack.work)
    assert (await client.prompt(session, TURN))["stopReason"] == "end_turn"
    assert words(client, session) == WHOLE
    assert len(stack.asked()) == 1
    assert turn(stack)["state"] == "done"
    assert sum(one.is_worker for one in stack.processes()) == 1


@pytest.mark.long
@pytest.mark.parametrize(
    "step", ["worker_attached", "recovered", "worker_ready", "frames_received", "frames_committed"]
)
async def test_daemon_death_during_adoption_leaves_all_to_next(stack: Stack, step: str) -> None:
    session, _, worker = await alone(stack)
    await _dies_at(stack, step)
    after = await history(stack, session)
    assert words(after, session) == WHOLE
    assert turn(stack)["state"] == "done"
    assert stack.worker(session).pid == worker.pid
    assert len(stack.asked()) == 1


@pytest.mark.long
async def test_daemon_death_while_reading_spool_leaves_rest(stack: Stack) -> None:
    session, _, worker = await alone(stack)
    await eventually(lambda: ended_on_disk(stack), 60)
    worker.signal(signal.SIGTERM)
    await eventually(lambda: not stack.processes(), 20)
    await _dies_at(stack, "spool_taken")
    after = await history(stack, session)
    assert words(after, session) == WHOLE
    assert turn(stack)["state"] == "done"


def _check_beginning(seen: list[str], told: list[str]) -> None:
    """What was told before the end: at least what the client saw, without gaps and without
    repetition.
    """
    assert len(seen) <= len(told)
    assert told == [f"w{n}" for n in range(1, len(told) + 1)]


async def _dies_at(stack: Stack, step: str) -> None:
    with (stack.root / "doomed.log").open("ab") as log:
        doomed = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pykoclaw_acp", "serve", stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
            env={**stack.environment, "PYKOCLAW_CRASH_AT": step}, cwd="/",
        )  # fmt: skip
    assert await asyncio.wait_for(doomed.wait(), 30) == -signal.SIGKILL


@pytest.mark.long
async def test_removing_spool_of_working_worker_loses_nothing(stack: Stack) -> None:
    session, _, worker = await alone(stack)
    (spool,) = await eventually(lambda: spools(stack))
    spool.unlink()
    await eventually(lambda: ended_on_disk(stack), 60)
    worker.kill()
    await eventually(lambda: not stack.processes(), 20)
    after = await history(stack, session)
    assert words(after, session) == WHOLE
    assert turn(stack)["state"] == "done"
    assert MISSING not in after.text(session)


@pytest.mark.long
async def test_truncating_spool_of_working_worker_leaves_gap(stack: Stack) -> None:
    session, _, worker = await alone(stack)
    (spool,) = await eventually(lambda: [one for one in spools(stack) if one.stat().st_size > 2000])
    os.truncate(spool, 1000)
    await eventually(lambda: ended_on_disk(stack), 60)
    after = await history(stack, session)
    told = after.text(session)
    assert told.count(MISSING) == 1
    seen = words(after, session)
    gap = len(re.findall(r"w\d+", told.partition(MISSING)[0]))
    assert seen[:gap] == WHOLE[:gap]
    assert seen[gap:] == WHOLE[gap - len(seen) :]
    assert turn(stack)["state"] == "done"
    assert stack.worker(session).pid == worker.pid


@pytest.mark.long
async def test_turn_whose_end_spool_lost_is_over(stack: Stack) -> None:
    """Its worker lives, and is idle."""
    session, _, worker = await alone(stack)
    await eventually(lambda: ended_on_disk(stack), 60)
    (spool,) = spools(stack)
    os.truncate(spool, spool.stat().st_size // 2)
    after = await history(stack, session)
    assert after.text(session).count(MISSING) == 1
    await eventually(lambda: turn(stack)["state"] == "unknown")
    assert "how it ended is not known" in after.text(session)
    assert (await after.prompt(session, script("text On again.")))["stopReason"] == "end_turn"
    assert stack.worker(session).pid == worker.pid


@pytest.mark.long
async def test_a_damaged_line_takes_nothing_else_with_it(stack: Stack) -> None:
    session, _, worker = await alone(stack)
    await eventually(lambda: ended_on_disk(stack), 60)
    worker.kill()
    await eventually(lambda: not stack.processes(), 20)
    (spool,) = spools(stack)
    lines = spool.read_bytes().splitlines(keepends=True)
    lines[len(lines) // 2] = b"\0" * 300 + b"\n"
    spool.write_bytes(b"".join(lines))
    after = await history(stack, session)
    told = after.text(session)
    before, _, rest = told.partition(MISSING)
    assert re.findall(r"w\d+", before)[:20] == WHOLE[:20]
    assert re.findall(r"w\d+", rest)[-20:] == WHOLE[-20:]
    assert turn(stack)["state"] == "done"
    (kept,) = spool.parents[1].glob("damaged/*")
    assert str(kept) in rest
    assert kept.read_bytes() == b"".join(lines)
    status = await asyncio.to_thread(call.call, stack.places, "_pykoclaw.dev/status", {})
    assert status["damaged"] == [str(kept)]
    assert (await after.prompt(session, script("text On again.")))["stopReason"] == "end_turn"
