"""Contract of `sessions.ports.TurnJournal`: states only move forward, and each change is told in
the log with it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from pykoclaw_acp.channel.frames import Gap, TurnStarted
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import Conflict, NoPlaceForEnd, RowRefused, StaleEpoch
from pykoclaw_acp.model.events import Failure, Text, TitleChanged, UserMessage
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.model.turns import Outcome, PromptKeys, TurnState
from tests.integration.journals import (
    BOTH,
    CANCELLED,
    DONE,
    Subject,
    end,
    events,
    places,
    prompt,
    request,
    said,
    subject,
)
from tests.integration.programs import TASK

FAILED = Outcome(
    TurnState.FAILED,
    failure=TurnFailure(ErrorKind.OVERLOADED, "Too much.", 529, retry_after=3, begun=True),
)


@pytest.fixture(params=BOTH)
async def s(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as made:
        yield made


async def test_accepted_prompt_waits_and_marks_session_prompted(s: Subject) -> None:
    session = await s.session()
    keys = PromptKeys("front:1", "mine", "print")
    await s.journal.accept(
        prompt(session, "a", keys=keys, client="mitto", client_process="one", detached=True)
    )
    found = await s.journal.find(session)
    assert found is not None
    assert (found.prompted, found.auxiliary) == (True, False)
    assert await s.journal.has_unfinished(session, PromptKeys(request="front:1"))
    assert await s.journal.has_unfinished(
        session, PromptKeys(request="front:9", idempotency="mine")
    )
    assert not await s.journal.has_unfinished(
        session, PromptKeys(request="front:9", fingerprint="print")
    )
    assert not await s.journal.has_unfinished("other", PromptKeys(request="front:1"))
    known = await s.journal.find_unfinished(session, PromptKeys(request="front:1"))
    assert known is not None
    assert (known.turn_id, known.state, known.recovered) == ("a", TurnState.QUEUED, True)
    assert (known.client, known.client_process, known.detached) == ("mitto", "one", True)
    for other in (PromptKeys(request="front:9"), PromptKeys(idempotency="mine")):
        assert await s.journal.find_unfinished(session, other) is None
    assert await s.journal.find_unfinished("other", PromptKeys(request="front:1")) is None
    assert await s.journal.turns_of_front(session, "front") == {"a": "front:1"}
    assert await s.journal.turns_of_front(session, "fron") == {}


async def test_detached_prompt_is_found_as_such(s: Subject) -> None:
    session = await s.session()
    await s.journal.accept(prompt(session, "a", keys=PromptKeys("front:1")))
    await s.journal.detach("a")
    known = await s.journal.find_unfinished(session, PromptKeys("front:1"))
    assert known is not None
    assert known.detached


async def test_no_prompt_is_accepted_twice(s: Subject) -> None:
    session = await s.session()
    await s.journal.accept(prompt(session, "a", keys=PromptKeys("front:1", "mine")))
    await s.session("two")
    for refused in (
        prompt(session, "a", keys=PromptKeys("front:2")),
        prompt("two", "b", keys=PromptKeys("front:1")),
        prompt(session, "b", keys=PromptKeys("front:2", "mine")),
    ):
        with pytest.raises(RowRefused):
            await s.journal.accept(refused)
    with pytest.raises(Conflict):
        await s.journal.accept(prompt("nowhere", "b", keys=PromptKeys("front:2")))
    await s.journal.accept(
        prompt("two", "b", keys=PromptKeys("front:2", "mine"))
    )  # of another session


async def test_a_turn_leaves_once(s: Subject) -> None:
    session = await s.session()
    turn = prompt(session)
    await s.journal.accept(turn)
    epoch = await s.workers.next_epoch(session)
    message = UserMessage("u", {"type": "text", "text": "Hello"})
    assert await s.journal.dispatch(turn, epoch, [message, TitleChanged("Hello")]) == [1, 2]
    with pytest.raises(Conflict):
        await s.journal.dispatch(turn, epoch, [message])
    found = await s.journal.find(session)
    assert found is not None
    assert (found.title, found.last_seq) == ("Hello", 2)
    assert events(await s.journal.read(session, 0, 10)) == [message, TitleChanged("Hello")]


async def test_a_turn_that_has_ended_is_not_dispatched(s: Subject) -> None:
    session = await s.session()
    await s.ended(session, "turn", CANCELLED)
    with pytest.raises(Conflict):
        await s.journal.dispatch(prompt(session), await s.workers.next_epoch(session), [])
    assert await s.state(session, "turn") == "cancelled"


@pytest.mark.parametrize("by_worker", [False, True])
async def test_words_of_cancelled_prompt_are_logged_once(s: Subject, by_worker: bool) -> None:
    session = await s.session()
    await s.ended(session, "other", CANCELLED)
    unsaid = replace(CANCELLED, told=True, unsaid=True)
    if by_worker:
        _, epoch = await s.running(session)
        await s.journal.record(session, epoch, [end(epoch, 2, "turn")], {"turn": unsaid})
    else:
        await s.journal.accept(prompt(session))
        await s.journal.finish(session, "turn", unsaid, ())
    words = [UserMessage("turn", {"type": "text", "text": "Hello"})]
    assert await s.journal.say_cancelled(session, "turn", words) == [1]
    for turn_id in ("turn", "other", "unknown"):
        with pytest.raises(Conflict):
            await s.journal.say_cancelled(session, turn_id, words)
    assert [one.event for one in await s.journal.read(session, 0, 10)] == words


async def test_frames_become_events_states_and_the_claude_session(s: Subject) -> None:
    session = await s.session()
    _, epoch = await s.running(session)
    frames = [*said(epoch, 2, "turn", "one ", "two"), end(epoch, 4, "turn")]
    logged = await s.journal.record(session, epoch, frames, {"turn": DONE})
    assert places(logged) == [1, 2]
    assert [one.turn_id for one in logged] == ["turn", "turn"]
    assert await s.texts(session) == "one two"
    ((turn, outcome),) = await s.journal.ended_turns(session, "request_key", "front:turn")
    assert (turn.state, outcome) == ("done", DONE)
    found = await s.journal.find(session)
    assert found is not None
    assert found.claude_session_id == "claude"


async def test_frames_of_an_older_worker_are_refused(s: Subject) -> None:
    session = await s.session()
    _, epoch = await s.running(session)
    await s.workers.next_epoch(session)
    with pytest.raises(StaleEpoch):
        await s.journal.record(session, epoch, said(epoch, 2, "turn", "late"), {})
    with pytest.raises(StaleEpoch):
        await s.journal.record(session, epoch, [end(epoch, 2, "turn")], {"turn": DONE})
    assert await s.texts(session) == ""
    assert await s.journal.has_unfinished(session, PromptKeys(request="front:turn"))


async def test_refused_frames_leave_nothing_recorded(s: Subject) -> None:
    session = await s.session()
    _, epoch = await s.running(session)
    await s.journal.record(session, epoch, [request("asked", epoch=epoch)], {})
    again = [*said(epoch, 3, "turn", "lost"), request("asked", epoch=epoch, n=4)]
    with pytest.raises(RowRefused):
        await s.journal.record(session, epoch, again, {})
    assert await s.texts(session) == ""
    assert places(await s.journal.record(session, epoch, said(epoch, 3, "turn", "kept"), {})) == [1]


async def test_only_a_dispatched_turn_starts(s: Subject) -> None:
    session = await s.session()
    turn, epoch = await s.running(session)
    await s.journal.record(session, epoch, [end(epoch, 2, turn.turn_id)], {turn.turn_id: DONE})
    await s.journal.record(
        session, epoch, [TurnStarted(epoch=epoch, n=3, turn_id=turn.turn_id)], {}
    )
    assert await s.state(session, "turn") == "done"


async def test_the_first_end_counts(s: Subject) -> None:
    session = await s.session()
    _, epoch = await s.running(session)
    assert await s.journal.finish(
        session, "turn", FAILED, [Failure("f", "Too much.", "overloaded")]
    ) == (FAILED, [1])
    assert await s.journal.finish(session, "turn", CANCELLED, [Text("m", "not said")]) == (
        FAILED,
        [],
    )
    await s.journal.record(session, epoch, [end(epoch, 2, "turn")], {"turn": DONE})
    assert (await s.journal.ended_turns(session, "request_key", "front:turn"))[0][1] == FAILED
    assert await s.texts(session) == ""
    with pytest.raises(NoPlaceForEnd):
        await s.journal.finish(session, "nothing", CANCELLED, [])


async def test_a_silent_end_leaves_the_log(s: Subject) -> None:
    session = await s.session()
    await s.running(session)
    before = await s.journal.read(session, 0, 10)
    assert await s.journal.finish(session, "turn", FAILED, (), silent=True) == (FAILED, [])
    assert await s.state(session, "turn") == "failed"
    assert await s.journal.read(session, 0, 10) == before
    assert await s.journal.finish(session, "turn", CANCELLED, (), silent=True) == (FAILED, [])
    with pytest.raises(NoPlaceForEnd):
        await s.journal.finish(session, "nothing", CANCELLED, (), silent=True)


async def test_cancel_that_was_asked_for_is_known(s: Subject) -> None:
    session = await s.session()
    key = PromptKeys(request="front:1")
    await s.journal.accept(prompt(session, "a", keys=key))
    for asked in (False, True):
        known = await s.journal.find_unfinished(session, key)
        assert known is not None
        assert known.cancelled.is_set() == asked
        await s.journal.ask_cancel("a")


async def test_a_background_turn_is_nobodys_prompt(s: Subject) -> None:
    session = await s.session()
    await s.ended(session, "mine")
    epoch = await s.workers.next_epoch(session)
    started = TurnStarted(epoch=epoch, n=1, turn_id="own", background=True)
    await s.journal.record(
        session,
        epoch,
        [started, *said(epoch, 2, "own", "Done."), end(epoch, 3, "own")],
        {"own": DONE},
    )
    newest = await s.journal.newest_turn(session, 0)
    assert newest is not None
    assert newest[0].turn_id == "mine"
    assert await s.texts(session) == "Done."


async def test_spool_gap_is_noted_in_log(s: Subject) -> None:
    session = await s.session()
    _, epoch = await s.running(session)
    logged = await s.journal.record(
        session, epoch, [Gap(epoch=epoch, n=5, first=2, turn_id="turn", file="/kept")], {}
    )
    assert places(logged) == [1]
    assert "at least 4 of its entries" in await s.texts(session)


async def test_an_ended_turn_is_found_by_its_keys(s: Subject) -> None:
    session = await s.session()
    await s.others.schedule(TASK)
    await s.ended(session, "a", keys=PromptKeys("front:1", "mine", "print"), task_id=TASK.id)
    for column, value in (("request_key", "front:1"), ("idempotency_key", "mine")):
        ((turn, outcome),) = await s.journal.ended_turns(session, column, value)  # type: ignore[arg-type]
        assert (turn.turn_id, turn.content, turn.keys.fingerprint) == ("a", [], "print")
        assert (outcome, turn.task_id) == (DONE, TASK.id)
        assert not turn.answered
    await s.journal.mark_answered("a")
    assert (await s.journal.ended_turns(session, "idempotency_key", "mine"))[0][0].answered
    assert await s.journal.ended_turns("other", "request_key", "front:1") == []
    await s.journal.accept(prompt(session, "b"))
    assert await s.journal.ended_turns(session, "request_key", "front:b") == [], "it has not ended"


async def test_the_newest_turn_is_the_last_one_accepted(s: Subject) -> None:
    session = await s.session()
    assert await s.journal.newest_turn(session, 0) is None
    await s.ended(session, "a", created_at=2000)
    await s.ended(session, "b", created_at=1000)
    newest = await s.journal.newest_turn(session, 0)
    assert newest is not None
    assert newest[0].turn_id == "b", "by its place, not by a clock"
    assert await s.journal.newest_turn(session, s.journal.clock.now() + 1) is None, (
        "it ended before"
    )
    await s.journal.accept(prompt(session, "c"))
    assert await s.journal.newest_turn(session, 0) is None, "the newest one has not ended"


async def test_preparing_counts_for_queued_turns_only(s: Subject) -> None:
    session = await s.session()
    await s.journal.accept(prompt(session))
    await s.journal.begin_attempt("turn")
    assert await s.attempts("turn") == 1
    await s.journal.undo_attempt("turn")
    assert await s.attempts("turn") == 0
    await s.journal.begin_attempt("nothing")
    await s.journal.finish(session, "turn", CANCELLED, [])
    await s.journal.begin_attempt("turn")
    assert await s.attempts("turn") == 0
    await s.journal.accept(prompt(session, "begun", begun=True))
    assert await s.attempts("begun") == 1, "it was begun as it was accepted"
