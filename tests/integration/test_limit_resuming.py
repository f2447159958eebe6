"""What runs while nobody is there, of sessions whose client gives a credential that is not stored."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.events import UserMessage
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.model.imports import ImportedPiece, TranscriptRow
from pykoclaw_acp.model.limit_waits import PROMPT, LimitWait
from pykoclaw_acp.model.session_environment import ClientEnvironment, StoredEnvironment
from pykoclaw_acp.model.turns import PromptKeys, TurnState
from pykoclaw_acp.sessions import prompting, rounds, session_environment
from pykoclaw_acp.sessions.limit_resuming import LimitResumer
from pykoclaw_acp.sessions.ports import RowStanding
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.turns import limits
from pykoclaw_acp.store import limit_waits
from pykoclaw_acp.store.condition import unavailable
from pykoclaw_acp.store.database import Statement, Unit
from tests.integration.limit_waiting import TOKEN, waiting
from tests.integration.linked import there, until_there_is
from tests.integration.rig import TIMES, Client, Rig, hanging, rig
from tests.integration.scheduling import logs, scheduling, task
from tests.integration.scripted_transcripts import ScriptedTranscripts
from tests.waiting import eventually, not_within, pass_loop_time

PATIENCE: Final = 0.3  # s in which a cancel is not to be done


@asynccontextmanager
async def resuming(r: Rig) -> AsyncIterator[None]:
    running = asyncio.create_task(LimitResumer(r.sessions, r.journal).run())
    try:
        yield
    finally:
        running.cancel()


def come_back(session: Session) -> None:
    given = ClientEnvironment(account=None, variables={TOKEN: "token"})
    session.subscribe(Client(), 0).given = given


async def newest(r: Rig) -> str:
    rows = await r.database.read("SELECT state FROM acp_turns ORDER BY position DESC LIMIT 1")
    return str(rows[0][0])


async def waits_for_nothing(r: Rig) -> bool:
    return not await limit_waits.every(r.database)


async def test_continuing_session_waits_for_its_returning_client(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await waiting(r)
        async with resuming(r):
            await eventually(lambda: session.busy)
            assert await newest(r) == TurnState.QUEUED
            come_back(session)
            await eventually(
                lambda: any(PROMPT in text for text in r.launcher.launched[-1].prompts)
            )
            assert await limit_waits.every(r.database) == []
            environment = r.launcher.launched[-1].spec.options.environment
            assert environment is not None
            assert environment[TOKEN] == "token"


async def test_session_due_while_daemon_stops_is_left(tmp_path: Path) -> None:
    """To the next daemon: the pool of this one launches no worker any more."""
    async with rig(tmp_path) as r:
        session = await waiting(r)
        await eventually(lambda: session.dormant)
        r.sessions.live.forget(-1, r.pool)
        await r.sessions.live.suspend()
        await r.pool.detach()
        async with resuming(r):
            await eventually(lambda: r.sessions.live.get(session.id))
            come_back(r.sessions.live[session.id])
            over: bool = await eventually(lambda: waits_for_nothing(r))
            assert over
            await not_within(lambda: r.sessions.live[session.id].busy)
        assert await newest(r) == TurnState.QUEUED


@pytest.mark.parametrize(
    ("origin", "rests"), [("terminal", True), ("whatsapp", True), ("scheduler", False)]
)
async def test_prompt_in_another_program_ends_wait(
    tmp_path: Path, origin: str, rests: bool
) -> None:
    """It is found only when the session is to go on: nobody has looked before."""
    transcripts = ScriptedTranscripts()
    async with rig(tmp_path, transcripts=transcripts) as r:
        session = await waiting(r)
        said = UserMessage("u1", {"type": "text", "text": "Never mind."}, origin)
        row = TranscriptRow("claude", "/t/claude.jsonl", 100, 1, 1, 80, "{}", "u1", related=True)
        piece = ImportedPiece(row, [("u1:0", said)])
        transcripts.find(
            RowStanding.SAME, meanwhile=lambda: r.journal.commit_piece(session.id, piece)
        )
        come_back(session)
        async with resuming(r):
            over: bool = await eventually(lambda: waits_for_nothing(r))
            assert over
        went_on = await r.database.read("SELECT 1 FROM acp_turns WHERE request_key LIKE 'limit:%'")
        assert bool(went_on) is not rests


async def test_fault_of_one_session_delays_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        faulty, sound = await waiting(r), await waiting(r)
        real = r.sessions.get

        async def get(session_id: str) -> Session:
            if session_id == faulty.id:
                raise RuntimeError("a fault")
            return await real(session_id)

        monkeypatch.setattr(r.sessions, "get", get)
        async with resuming(r):
            await eventually(lambda: sound.busy)
        assert [one.session_id for one in await limit_waits.every(r.database)] == [faulty.id]


@pytest.mark.parametrize("tries", [0, limits.MOST_TRIES])
async def test_session_unable_to_continue_retries_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tries: int
) -> None:
    monkeypatch.setattr(session_environment, "RETURN", 0.0)
    async with rig(tmp_path) as r:
        await waiting(r, tries)
        async with resuming(r):
            await until_there_is(r, "state = 'failed'")
        ((failed,),) = await r.database.read("SELECT turn_id FROM acp_turns WHERE state = 'failed'")
        waits = await limit_waits.every(r.database)
        assert [(one.turn_id, one.tries) for one in waits] == ([] if tries else [(failed, 1)])
        assert all(one.due > 1 for one in waits)


async def test_session_that_went_on_before_restore_rests(tmp_path: Path) -> None:
    """Claude's transcript has the prompt, which the database that was put back does not."""
    async with rig(tmp_path) as r:
        session = await waiting(r)
        (wait,) = await limit_waits.every(r.database)
        come_back(session)
        gone_on = "SELECT turn_id FROM acp_turns WHERE request_key LIKE 'limit:%'"
        async with resuming(r):
            await eventually(
                lambda: any(PROMPT in text for text in r.launcher.launched[-1].prompts)
            )
            ((turn_id,),) = await r.database.read(gone_on)
            worker = r.launcher.launched[-1]
            worker.say(worker.ended(turn_id))
            await until_there_is(r, "request_key LIKE 'limit:%' AND state = 'done'")
        prompts = sum(len(one.prompts) for one in r.launcher.launched)
        forgotten = Statement("DELETE FROM acp_turns WHERE turn_id = ?", (turn_id,))
        seen = Statement(
            "INSERT INTO acp_transcript_turns (acp_session_id, prompt_uuid, claude_session_id, position, own, told)"
            " VALUES (?, ?, 'claude', 1, 0, 1)",
            (session.id, turn_id),
        )
        await r.database.commit(Unit((forgotten, seen, limit_waits.add(wait))))
        async with resuming(r):
            await until_there_is(r, "request_key LIKE 'limit:%' AND state = 'failed'")
        assert await limit_waits.every(r.database) == []
        ((error,),) = await r.database.read(gone_on.replace("turn_id", "error"))
        assert ErrorKind.RESTORED in error
        assert sum(len(one.prompts) for one in r.launcher.launched) == prompts


async def test_session_not_reaching_service_tries_again(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session, turn, channel = await hanging(r)
        turn.keys = PromptKeys(request=LimitWait(session.id, "stopped", 1, 2).request_key)
        failure = TurnFailure(ErrorKind.SERVICE_UNREACHABLE, "Not reached.")
        channel.say(replace(channel.ended(turn.turn_id), stop_reason=None, error=failure))
        outcome, _ = await asyncio.wait_for(turn.ended, 60)
        assert outcome.failure is not None
        assert "tries again" in outcome.failure.message
        (wait,) = await limit_waits.every(r.database)
        assert (wait.turn_id, wait.tries) == (turn.turn_id, 3)


async def test_task_due_at_start_waits_for_returning_client(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        session.record.environment = StoredEnvironment(secrets=(TOKEN,))
        one = task(r.database.path, str(session.record.conversation_name))
        async with scheduling(r):
            await eventually(lambda: session.environment.options().withheld)
            come_back(session)
            await eventually(lambda: logs(r.database.path, one))
        assert [state for state, _, _ in logs(r.database.path, one)] == ["success"]


async def met_in_own_turn(r: Rig, *, stopped: bool = False, together: bool = False) -> Session:
    """A session in which a turn that Claude began by itself has met the limit."""
    session = await r.session()
    await r.run(session, "say 1")
    worker = r.launcher.launched[-1]
    begun = worker.started("own", background=True)
    limit = TurnFailure(ErrorKind.USAGE_LIMIT, "You have hit it.", resets_at=1)
    ended = replace(worker.ended("own"), stop_reason=None, error=limit)
    if together:
        worker.say(begun, ended)
    else:
        worker.say(begun)
        await eventually(lambda: session.background)
        if stopped:
            worker.deaf = True
            await asyncio.wait(session.cancel())
        worker.say(ended)
    await until_there_is(r, "turn_id = 'own' AND state = 'failed'")
    return session


@pytest.mark.parametrize("together", [False, True])
async def test_session_resumes_after_limit_of_claudes_own_turn(
    tmp_path: Path, together: bool
) -> None:
    async with rig(tmp_path, times=dataclasses.replace(TIMES, usage_limit="wait")) as r:
        session = await met_in_own_turn(r, together=together)
        (wait,) = await limit_waits.every(r.database)
        assert (wait.session_id, wait.turn_id) == (session.id, "own")
        assert wait.due > time.time(), "a limit that goes on is not met all the time"
        ((error,),) = await r.database.read("SELECT error FROM acp_turns WHERE turn_id = 'own'")
        assert "resumes by itself" in error
        due = Statement("UPDATE acp_limit_waits SET due = 1", ())
        await r.database.commit(Unit((due,)))
        async with resuming(r):
            await eventually(
                lambda: any(PROMPT in text for text in r.launcher.launched[-1].prompts)
            )
        assert await limit_waits.every(r.database) == []


async def test_own_turn_that_was_stopped_waits_for_nothing(tmp_path: Path) -> None:
    async with rig(tmp_path, times=dataclasses.replace(TIMES, usage_limit="wait")) as r:
        await met_in_own_turn(r, stopped=True)
        assert await limit_waits.every(r.database) == []


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_wait_is_given_up_whose_turn_was_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The turn's end is being committed when the user stops it, or closes the session."""
    async with rig(tmp_path, times=dataclasses.replace(TIMES, usage_limit="wait")) as r:
        session, turn, worker = await hanging(r)
        record, committing, goes_on = r.journal.record, asyncio.Event(), asyncio.Event()

        async def slow(*given: Any) -> Any:
            committing.set()
            await goes_on.wait()
            return await record(*given)

        monkeypatch.setattr(r.journal, "record", slow)
        resets_at = int(time.time()) + 3600
        limit = TurnFailure(ErrorKind.USAGE_LIMIT, "You have hit it.", resets_at=resets_at)
        worker.say(replace(worker.ended(turn.turn_id), stop_reason=None, error=limit))
        await committing.wait()
        if how == "cancel":
            leaving = await prompting.cancel(r.sessions, session.id)
            await asyncio.wait(leaving, timeout=PATIENCE)
        else:
            leaving = [asyncio.create_task(r.sessions.close(session))]
            await there(r, "SELECT 1 FROM acp_sessions WHERE closed_at IS NOT NULL")
        goes_on.set()
        await asyncio.wait_for(asyncio.gather(*leaving), 60)
        outcome, _ = await asyncio.wait_for(turn.ended, 60)
        assert outcome.failure is not None
        assert "resumes by itself" in outcome.failure.message
        assert await r.database.read("SELECT 1 FROM acp_limit_waits") == []


async def test_damaged_waits_are_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with rig(tmp_path) as r:
        looks: list[int] = []
        limit = LimitResumer(r.sessions, r.journal)

        async def damaged() -> list[LimitWait]:
            looks.append(len(looks))
            await asyncio.sleep(0)  # as a real read lets others run
            raise unavailable(DatabaseState.DAMAGED, "The database is damaged.")

        monkeypatch.setattr(r.journal, "limit_waits", damaged)
        with capture_logs() as told:
            running = asyncio.create_task(limit.run())
            await eventually(lambda: looks)
            limit.changed.set()
            await not_within(lambda: len(looks) > 1)
            pass_loop_time(rounds.AFTER_FAILURE)
            await eventually(lambda: len(looks) == 2)
            running.cancel()
        assert [one["action"] for one in told] == ["limit_waits_failed"]
