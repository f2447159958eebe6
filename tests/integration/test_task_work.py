"""Runs of scheduled tasks whose turn leaves work in the background."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.channel.frames import EventFrame
from pykoclaw_acp.model.events import Event, Text, ToolEnded, ToolStarted
from pykoclaw_acp.model.permissions import PermissionRequest
from pykoclaw_acp.sessions import task_runs, work
from pykoclaw_acp.sessions.retention import Pruner
from pykoclaw_acp.store.session_journal import SessionJournal
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.queueing import fetch
from tests.integration.rig import Rig, rig
from tests.integration.scheduling import logs, scheduling, task
from tests.waiting import eventually, within

ASIDE = pytest.mark.parametrize("mode", ["isolated", "group"])
RULE = "\n\n---\n\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pykoclaw.db"


def tell(worker: MemoryChannel, turn: str | None, *events: Event) -> None:
    for event in events:
        worker.last += 1
        worker.say(EventFrame(epoch=worker.spec.epoch, n=worker.last, turn_id=turn, event=event))


async def launched(r: Rig, path: Path, mode: str) -> tuple[str, MemoryChannel]:
    """A run whose turn has ended with the words `Started.`, and a subagent that runs."""
    session = await r.session()
    one = task(path, session.record.conversation_name, "hang", context_mode=mode)
    await eventually(lambda: r.launcher.launched and r.launcher.launched[-1].acked)
    worker = r.launcher.launched[-1]
    ((turn,),) = fetch(path, "SELECT turn_id FROM acp_turns")
    worker.background(1)
    tell(worker, turn, ToolStarted("call", "Agent", "look", "think"), Text("a", "Started."))
    worker.say(worker.ended(turn))
    ended = "SELECT 1 FROM acp_turns WHERE state = 'done'"
    await eventually(lambda: fetch(path, ended))
    return one, worker


def tell_result(worker: MemoryChannel) -> None:
    """The subagent ends, and Claude begins a turn about it."""
    tell(worker, None, ToolEnded("call", "completed", background=True))
    worker.background(0)
    worker.begin_own("own", "call")
    worker.background(1)
    tell(worker, "own", Text("b", "Eight files."))


@ASIDE
async def test_run_has_result_of_its_subagent(tmp_path: Path, path: Path, mode: str) -> None:
    async with rig(tmp_path) as r, scheduling(r):
        one, worker = await launched(r, path, mode)
        assert not await within(lambda: worker.dead or logs(path, one), 0.5)
        tell_result(worker)
        worker.say(worker.ended("own"))
        worker.background(0)
        await eventually(lambda: logs(path, one))
        assert logs(path, one) == [("success", f"Started.{RULE}Eight files.", None)]
        sent: list[Any] = fetch(path, "SELECT message FROM delivery_queue")
        assert sent == [(f"Started.{RULE}Eight files.",)]
        await eventually(lambda: worker.dead == (mode == "isolated"))


async def test_awaited_work_is_not_pruned(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, scheduling(r):
        one, worker = await launched(r, path, "isolated")
        pruner = Pruner(r.sessions, SessionJournal(r.database), after=-1)
        await pruner.prune()
        tell_result(worker)
        worker.say(worker.ended("own"))
        worker.background(0)
        await eventually(lambda: logs(path, one))
        assert logs(path, one) == [("success", f"Started.{RULE}Eight files.", None)]


@ASIDE
@pytest.mark.parametrize("during", ["work", "turn"])
async def test_run_fails_whose_worker_is_lost(
    tmp_path: Path, path: Path, mode: str, during: str
) -> None:
    async with rig(tmp_path) as r, scheduling(r):
        one, worker = await launched(r, path, mode)
        if during == "turn":
            tell_result(worker)
            await eventually(lambda: worker.acked == worker.last)
        worker.kill()
        await eventually(lambda: logs(path, one))
        ((state, said, error),) = logs(path, one)
        assert (state, said.startswith("Started.")) == ("error", True)
        assert "background" in error
        assert fetch(path, "SELECT 1 FROM delivery_queue") == []


@ASIDE
async def test_endless_work_ends_the_run(
    tmp_path: Path, path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "LONGEST", 0.5)
    async with rig(tmp_path) as r, scheduling(r):
        one, worker = await launched(r, path, mode)
        await eventually(lambda: logs(path, one))
        ((state, said, error),) = logs(path, one)
        assert (state, said) == ("error", "Started.")
        assert ("was stopped" in error) == (mode == "isolated")
        await eventually(lambda: worker.dead == (mode == "isolated"))


async def test_background_work_leaves_other_tasks_room(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_runs, "MOST_RUNS", 1)
    async with rig(tmp_path) as r, scheduling(r):
        first, worker = await launched(r, path, "isolated")
        second = task(path, "acp-other", context_mode="isolated")
        await eventually(lambda: logs(path, second))
        assert logs(path, first) == []
        tell_result(worker)
        worker.say(worker.ended("own"))
        worker.background(0)
        await eventually(lambda: logs(path, first))


async def test_background_work_leaves_people_workers(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path, max_workers=2) as r, scheduling(r, workers=2):
        first, worker = await launched(r, path, "isolated")
        second = task(path, "acp-other", context_mode="isolated")
        runs = "SELECT 1 FROM acp_task_runs"
        assert not await within(lambda: len(fetch(path, runs)) > 1, 0.5)
        turn = await r.prompt(await r.session(), "say 1")
        await turn.ended
        tell_result(worker)
        worker.say(worker.ended("own"))
        worker.background(0)
        await eventually(lambda: logs(path, first) and logs(path, second))


async def test_question_does_not_prolong_work_endlessly(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "LONGEST", 0.2)
    monkeypatch.setattr(work, "ASKED", 0.5)
    async with rig(tmp_path) as r, scheduling(r):
        one, worker = await launched(r, path, "group")
        worker.begin_own("own", "call")
        worker.last += 1
        worker.say(
            PermissionRequest(
                epoch=worker.spec.epoch,
                n=worker.last,
                turn_id="own",
                ask_id="ask",
                tool_call_id="made",
                title="make",
                tool_kind="execute",
                input={"command": "make"},
                call="made",
            )
        )
        await eventually(lambda: logs(path, one))
        ((state, said, error),) = logs(path, one)
        assert (state, said) == ("error", "Started.")
        assert "It goes on in the conversation" in " ".join(error.split())


async def test_deletion_during_work_fails_the_run(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, scheduling(r):
        one, _ = await launched(r, path, "group")
        (session,) = r.sessions.live.values()
        await r.sessions.delete(session)
        await eventually(lambda: logs(path, one))
        deleted = "The conversation was deleted before the run had ended."
        assert logs(path, one) == [("error", "Started.", deleted)]
        assert fetch(path, "SELECT 1 FROM delivery_queue") == []


async def test_result_is_without_other_background_work(tmp_path: Path, path: Path) -> None:
    async with rig(tmp_path) as r, scheduling(r):
        one, worker = await launched(r, path, "group")
        tell(worker, None, ToolEnded("deploy", "failed", exit_code=1, background=True))
        worker.begin_own("other", "deploy")
        tell(worker, "other", Text("c", "The deploy failed."))
        worker.say(worker.ended("other"))
        tell_result(worker)
        worker.say(worker.ended("own"))
        worker.background(0)
        await eventually(lambda: logs(path, one))
        assert logs(path, one) == [("success", f"Started.{RULE}Eight files.", None)]
