"""Contract of `notify.ports.NoticeStore`: what happened is told once, to each target until it
accepts.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed

from pykoclaw_acp.channel.frames import TurnStarted
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.cursors import Cursor, CursorChange
from pykoclaw_acp.model.events import Text, TitleChanged
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.model.notices import (
    DeliveryTarget,
    DueNotification,
    Notice,
    NoticeKind,
    NoticeSession,
    NotificationOutcome,
)
from pykoclaw_acp.model.permissions import RequestPolicy, Settlement
from pykoclaw_acp.model.scheduled import TaskRun
from pykoclaw_acp.model.turns import Outcome, TurnState
from pykoclaw_acp.store.group_commit import GroupCommit
from tests.integration.journals import (
    BOTH,
    CANCELLED,
    DONE,
    Subject,
    end,
    prompt,
    request,
    subject,
)
from tests.integration.programs import TASK
from tests.waiting import eventually, not_within

PLACE = NoticeSession("one", "acp-one", None, "/work")
NOTICE = Notice("turn-a", NoticeKind.TURN_ENDED, 1000, PLACE, "A turn has ended.")
ACCEPTED = NotificationOutcome.ACCEPTED
FAILED = Outcome(TurnState.FAILED, failure=TurnFailure(ErrorKind.OVERLOADED, "Busy.", 529))


@pytest.fixture(params=BOTH)
async def s(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as made:
        yield made


async def asked(s: Subject, session: str, *names: str) -> None:
    """Requests that nobody is there to decide."""
    _, epoch = await s.running(session, f"turn of {session}")
    for name in names:
        ask = request(name, f"turn of {session}", epoch=epoch)
        await s.journal.record(session, epoch, [ask], {})
        await s.journal.set_clock(name, RequestPolicy.WAIT, None)


async def helper(s: Subject) -> str:
    """A session that no person has prompted."""
    session = await s.session("helper")
    turn = prompt(session, "of helper", client="Mitto")
    turn.helper = True
    await s.journal.accept(turn)
    await s.journal.finish(session, "of helper", DONE, [])
    return session


async def due(s: Subject, until: int | None = None, key: str = "t") -> list[DueNotification]:
    until = s.notices.clock.now() if until is None else until
    return [replace(one, age=0) for one in await s.notices.due(key, until)]


async def test_what_ends_from_the_first_begin_is_missed(s: Subject) -> None:
    session = await s.session()
    await s.ended(session, "before")
    before = s.notices.clock.now()
    await eventually(lambda: s.notices.clock.now() > before)
    assert await s.notices.begin() == ([], [])
    await s.ended(session, "a")
    await s.ended(session, "cancelled", CANCELLED)
    await s.ended(session, "b", FAILED)
    await helper(s)
    deleted = await s.session("deleted")
    await s.ended(deleted, "of deleted")
    await s.journal.delete(deleted)
    for _ in range(2):
        turns, questions = await s.notices.begin()
        assert (sorted(turns), questions) == (["a", "b"], [])
    assert await s.notices.add(NOTICE, "{}", [], [])
    assert await s.notices.begin() == (["b"], [])


async def test_questions_before_the_first_begin_are_missed(s: Subject) -> None:
    session = await s.session()
    await asked(s, session, "a", "b", "c", "d")
    await s.journal.set_clock("b", RequestPolicy.ATTENDED, None)
    await s.journal.settle(Settlement("c", "selected", "allow_once"))
    for _ in range(2):
        assert await s.notices.begin() == ([], ["a", "d"])
    await s.notices.add(replace(NOTICE, notice_id="question-a"), "{}", [], [])
    assert await s.notices.begin() == ([], ["d"])
    await s.journal.delete(session)
    assert await s.notices.begin() == ([], [])


async def test_what_was_decided_is_not_missed(s: Subject) -> None:
    session = await s.session()
    moment = s.notices.clock.now() + 3_600_000
    await s.notices.settle_until(moment)
    await s.notices.begin()
    await s.ended(session, "a")
    assert (await s.notices.begin())[0] == ["a"]
    await s.notices.settle_until(moment)
    assert (await s.notices.begin())[0] == []
    await s.notices.settle_until(0)
    assert (await s.notices.begin())[0] == []


async def test_end_that_waited_for_database_stays_missed(
    s: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(_: GroupCommit) -> Exception:
        return OSError(errno.ENOSPC, "The disk is full.")

    session = await s.session()
    await s.notices.begin()
    await s.journal.accept(prompt(session, "a"))
    with monkeypatch.context() as outage:
        outage.setattr(GroupCommit, "probe_write", full)
        s.condition.failed(DatabaseState.BLOCKED, "The disk is full.")
        ending = asyncio.create_task(s.journal.finish(session, "a", DONE, []))
        await not_within(ending.done, 0.05)
        settling = asyncio.create_task(s.notices.settle_until(s.notices.clock.now()))
        await not_within(settling.done, 0.05)
    s.condition.recovered()
    await asyncio.gather(ending, settling)
    assert (await s.notices.begin())[0] == ["a"]


async def test_ended_turn_is_told_until_it_has_notice(s: Subject) -> None:
    session = await s.session()
    await s.journal.accept(prompt(session, "queued"))
    await s.ended(session, "a", FAILED)
    await s.journal.append(session, [])
    found = await s.notices.ended_turn("a")
    assert found is not None
    assert (found.turn_id, found.place, found.outcome) == ("a", PLACE, FAILED)
    assert found.ended_at > 0
    for unknown in ("queued", "nothing"):
        assert await s.notices.ended_turn(unknown) is None
    await s.notices.add(NOTICE, "{}", [], [])
    assert await s.notices.ended_turn("a") is None


async def test_turns_of_helpers_and_deleted_sessions_are_nobodys(s: Subject) -> None:
    await helper(s)
    session = await s.session()
    await s.ended(session, "a")
    await asked(s, session, "ask")
    assert await s.notices.waiting_request("ask") is not None
    await s.journal.delete(session)
    assert await s.notices.ended_turn("of helper") is None
    assert await s.notices.ended_turn("a") is None
    assert await s.notices.waiting_request("ask") is None


async def aside(s: Subject, run: str, **fields: Any) -> str:
    """The session that a run of a task has for itself."""
    session = await s.session(f"aside {run}")
    claimed = TaskRun(run, changed(TASK, id=run, **fields), None, False, 1000)
    await s.others.schedule(claimed.task)
    await s.tasks.claim(claimed)
    await s.tasks.place(replace(claimed, session_id=session, aside=True), run)
    return session


async def test_runs_aside_are_told_by_their_conversation(s: Subject) -> None:
    await s.journal.append(await s.session(), [TitleChanged("The garden")])
    await s.notices.begin()
    for conversation, title in (("wa-andy", None), (PLACE.conversation, "The garden")):
        run = f"run in {conversation}"
        session = await aside(s, run, conversation=conversation)
        _, epoch = await s.running(session, run, task_id=run, aside=True)
        ask = request(f"ask in {run}", run, epoch=epoch)
        await s.journal.record(session, epoch, [ask], {})
        await s.journal.set_clock(ask.ask_id, RequestPolicy.WAIT, None)
        waiting = await s.notices.waiting_request(ask.ask_id)
        await s.journal.finish(session, run, FAILED, [])
        ended = await s.notices.ended_turn(run)
        assert waiting is not None
        assert ended is not None
        place = NoticeSession(session, conversation, title, "/work")
        assert (ended.place, waiting.place) == (place, place)
        assert (ended.watched, ended.of_task, waiting.of_task) == (False, True, True)
        turns, _ = await s.notices.begin()
        assert run in turns


@pytest.mark.parametrize("origin", ["run", "own"])
async def test_answers_of_runs_aside_are_watched(s: Subject, origin: str) -> None:
    session = await aside(s, "run")
    _, epoch = await s.running(session, "run", task_id="run", aside=True)
    await s.journal.record(session, epoch, [end(epoch, 2, "run")], {"run": DONE})
    own = TurnStarted(epoch=epoch, n=3, turn_id="own", background=True)
    await s.journal.record(session, epoch, [own, end(epoch, 4, "own")], {"own": DONE})
    found = await s.notices.ended_turn(origin)
    assert found is not None
    assert (found.watched, found.of_task) == (True, True)


@pytest.mark.parametrize(
    ("who", "watched"),
    [
        ("nobody", False),
        ("answered", True),
        ("task", True),
        ("failed task", False),
        ("shown", True),
        ("behind", False),
    ],
)
async def test_turn_is_watched_by_whoever_got_its_end(s: Subject, who: str, watched: bool) -> None:
    session = await s.session()
    await s.others.schedule(TASK)
    await s.running(session, "a", task_id=TASK.id if "task" in who else None)
    outcome = FAILED if who == "failed task" else DONE
    await s.journal.finish(session, "a", outcome, [Text("m", "The end.")])
    if who == "answered":
        await s.journal.mark_answered("a")
    if who in ("shown", "behind"):
        await s.journal.add_alias("alias", session, only=True)
        seen = Cursor("instance", "front", 1 if who == "shown" else 0)
        change = CursorChange("alias", "Mitto", "instance", "front", seen, whole=True)
        await s.journal.change_cursors([change])
    found = await s.notices.ended_turn("a")
    assert found is not None
    assert (found.watched, found.of_task) == (watched, "task" in who)


async def test_question_is_pending_until_settled(s: Subject) -> None:
    session = await s.session()
    await asked(s, session, "a", "b")
    found = await s.notices.waiting_request("a")
    assert found is not None
    assert (found.place, found.policy) == (PLACE, RequestPolicy.WAIT)
    assert (found.request.ask_id, found.asked_at > 0) == ("a", True)
    assert await s.notices.is_pending("a")
    await s.journal.settle(Settlement("a", "selected", "allow_once"))
    for settled in ("a", "nothing"):
        assert await s.notices.waiting_request(settled) is None
        assert not await s.notices.is_pending(settled)
    await s.notices.add(replace(NOTICE, notice_id="question-b"), "{}", [], [])
    assert await s.notices.waiting_request("b") is None
    assert await s.notices.is_pending("b")


async def test_notice_is_added_once_with_its_deliveries(s: Subject) -> None:
    await s.session()
    to = [DeliveryTarget("wa-andy", "wa"), DeliveryTarget("tg-andy", "tg")]
    assert await s.notices.next_due("t") is None
    assert await s.notices.add(NOTICE, "{}", ["t", "u"], to)
    assert not await s.notices.add(NOTICE, "other", ["v"], [DeliveryTarget("wa-other", "wa")])
    rows = await s.others.queue()
    assert [(one.conversation, one.channel, one.message, one.status) for one in rows] == [
        ("wa-andy", "wa", "A turn has ended.", "pending"),
        ("tg-andy", "tg", "A turn has ended.", "pending"),
    ]
    assert {one.task_id for one in rows} == {"acp-notify"}
    assert len({one.delivery_id for one in rows}) == 2
    for key in ("t", "u"):
        assert await due(s, key=key) == [
            DueNotification("turn-a", key, NoticeKind.TURN_ENDED, "{}", 0, 0)
        ]
    assert await due(s, key="v") == []


async def test_notice_of_deleted_session_is_not_wanted(s: Subject) -> None:
    session = await s.session()
    assert not await s.notices.is_wanted("turn-a")
    await s.notices.add(NOTICE, "{}", ["t"], [])
    assert await s.notices.is_wanted("turn-a")
    await s.journal.delete(session)
    assert not await s.notices.is_wanted("turn-a")
    late = replace(NOTICE, notice_id="turn-b")
    assert not await s.notices.add(late, "{}", ["t"], [DeliveryTarget("wa-andy", "wa")])
    assert not await s.notices.is_wanted("turn-b")
    assert await s.others.queue() == []


async def test_failed_notification_is_tried_again_then(s: Subject) -> None:
    await s.session()
    for name in ("a", "b"):
        await s.notices.add(replace(NOTICE, notice_id=f"turn-{name}"), "{}", ["t"], [])
    (first, second), now = await due(s), s.notices.clock.now()
    await s.notices.note_failure(first, "Refused.", now + 60_000)
    await s.notices.note_failure(second, "Refused.", now + 50_000)
    await s.notices.note_failure(replace(first, target="other"), "Refused.", 1)
    assert await due(s, now + 1000) == []
    assert await s.notices.next_due("t") == now + 50_000
    assert await s.notices.next_due("other") is None
    again = [replace(one, attempts=1) for one in (second, first)]
    assert await due(s, now + 60_000) == again
    (late, _) = await s.notices.due("t", now + 3_600_000)
    assert 3500 < late.age <= 3660


async def test_settled_notification_is_not_tried_again(s: Subject) -> None:
    await s.session()
    await s.notices.add(NOTICE, "{}", ["t", "u"], [])
    (first,), (second,) = await due(s), await due(s, key="u")
    await s.notices.note_outcome(first, ACCEPTED)
    assert (await due(s), await due(s, key="u")) == ([], [second])
    await s.notices.note_outcome(second, NotificationOutcome.GIVEN_UP, "Refused.")
    await s.notices.note_outcome(second, ACCEPTED)
    await s.notices.note_failure(first, "Late.", 1)
    for key in ("t", "u"):
        assert (await due(s, key=key), await s.notices.next_due(key)) == ([], None)


async def test_removed_targets_are_asked_no_more(s: Subject) -> None:
    await s.session()
    await s.notices.add(NOTICE, "{}", ["t", "u"], [])
    await s.notices.remove_others(["t", "v"])
    assert [one.target for one in await due(s)] == ["t"]
    assert await due(s, key="u") == []
    await s.notices.remove_others([])
    assert await due(s) == []
