"""Permission questions that wait: policies, clocks, parking, races and restarts, on workers in
memory.
"""

from __future__ import annotations

import asyncio
import functools
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock
from uuid import uuid4

import pytest
from msgspec.structs import replace as replace_struct
from structlog.testing import capture_logs

from pykoclaw_acp.channel.requests import StopSubagents, StopTask
from pykoclaw_acp.errors import (
    AcpError,
    DamageMet,
    InternalError,
    InvalidParams,
    InvalidRequest,
    StoreUnavailable,
)
from pykoclaw_acp.model.away import AwayPolicy
from pykoclaw_acp.model.events import Text, UserMessage
from pykoclaw_acp.model.permissions import (
    Deadline,
    Decision,
    RequestOutcome,
    RequestPolicy,
    Settlement,
)
from pykoclaw_acp.model.session_environment import ClientEnvironment, StoredEnvironment
from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.pool import capacity, occupation
from pykoclaw_acp.sessions.permissions import decisions
from pykoclaw_acp.sessions.permissions.words import UNATTENDED
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.store import permissions
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.store.units import Statement
from tests.integration.asking import (
    LONG,
    SOON,
    Asking,
    Person,
    begin,
    choice,
    park,
    restarted,
    rig,
    times,
    write,
)
from tests.integration.linked import front
from tests.integration.rig import LISTS, Rig
from tests.integration.rig import rig as plain_rig
from tests.integration.wires import client
from tests.waiting import eventually, not_within, running
from tests.workers import OPTIONS

# --- nobody is there


@pytest.mark.parametrize(
    ("policy", "timeout", "decision", "row", "words"),
    [
        ("wait", SOON, "reject", ("timeout", None, "timeout"), "in time"),
        ("deny", LONG, "reject", ("denied", None, "policy"), "Nobody was there"),
        ("allow", LONG, "allow_once", ("selected", "allow_once", "policy"), ""),
    ],
)
async def test_the_policy_answers_when_nobody_is_there(
    tmp_path: Path, policy: str, timeout: float, decision: str, row: tuple[Any, ...], words: str
) -> None:
    async with rig(tmp_path, policy, timeout) as r:
        asking = await begin(r)
        asking.ask("q1", always="everything")
        assert await asking.settled("q1") == row
        (answer,) = await eventually(lambda: asking.answers)
        assert answer.decision == decision
        assert words in answer.message


async def test_session_policy_precedes_settings_policy(tmp_path: Path) -> None:
    async with rig(tmp_path, "wait") as r:
        asking = await begin(r)
        asking.ask("q1")
        await asking.away("q1")
        await r.sessions.set_away_policy(asking.session.id, AwayPolicy.DENY)
        assert await asking.settled("q1") == ("denied", None, "policy")
        assert (await SessionJournal(r.database).find(asking.session.id)).away_policy == "deny"  # type: ignore[union-attr]


async def test_present_client_stops_clock_and_leaving_restarts_it(tmp_path: Path) -> None:
    async with rig(tmp_path, "deny") as r:
        asking = await begin(r)
        asking.ask("q1")
        await asking.away("q1")
        person = Person()
        place = asking.session.subscribe(person, 0)
        assert await eventually(lambda: person.ids) == ["q1"]
        other = await begin(
            r
        )  # its question, asked later, is denied; the one that somebody looks at is not
        other.ask("q2")
        await other.settled("q2")
        assert await asking.row("q1") == ("attended", None, None, None)
        assert await asking.deadline("q1") is None
        place.close()
        assert await asking.settled("q1") == ("denied", None, "policy")


async def test_one_who_only_follows_is_nobody(tmp_path: Path) -> None:
    async with rig(tmp_path, "deny") as r:
        viewer = Person(present=False)
        asking = await begin(r, viewer)
        asking.ask("q1")
        await asking.away("q1")
        asking.session.subscribe(viewer, 0)
        assert await asking.settled("q1") == ("denied", None, "policy")
        assert viewer.asked == []


async def test_client_returning_within_grace_was_never_away(tmp_path: Path) -> None:
    async with rig(tmp_path, "deny") as r:
        asking = await begin(r, Person())
        asking.ask("q1")
        await asking.asked("q1")
        for place in list(asking.session.subscriptions):
            place.close()
        await asking.away("q1")
        back = Person()
        asking.session.subscribe(back, 0)
        other = await begin(r)
        other.ask("q2")
        await other.settled("q2")
        await back.answer("q1", choice("allow_once"))
        assert await asking.settled("q1") == ("selected", "allow_once", "editor")


# --- parked


async def parked(r: Rig, always: str | None = None) -> Asking:
    asking = await begin(r)
    asking.ask("q1", always=always)
    outcome, _ = await asyncio.wait_for(asking.turn.ended, 30)
    assert outcome.state == "cancelled"
    await eventually(lambda: not r.launcher.live)
    assert await asking.row("q1") == ("parked", None, None, None)
    return asking


def going_on(r: Rig) -> str:
    """The prompt that the newest worker got."""
    return r.launcher.launched[-1].prompts[-1]


async def test_parked_question_frees_worker_and_answer_starts_turn(tmp_path: Path) -> None:
    async with rig(tmp_path, "park") as r:
        asking = await parked(r)
        person = Person()
        asking.session.subscribe(person, 0)
        await person.answer("q1", choice("allow_once"))
        assert await asking.settled("q1") == ("selected", "allow_once", "editor")
        await eventually(lambda: len(r.launcher.launched) == 2 and r.launcher.launched[1].prompts)
        assert "Bash: make" in going_on(r)
        assert "The user's answer: allowed, this once." in going_on(r)
        assert r.launcher.launched[1].spec.resume_session_id is not None
        texts = [one.event.text for one in person.shown if isinstance(one.event, Text)]
        assert any("still waits" in text for text in texts)
        await eventually(
            lambda: any(isinstance(one.event, UserMessage) and one.seq > 2 for one in person.shown)
        )
        assert person.told == ["q1"]


async def test_parked_question_stays_if_nobody_gives_key(tmp_path: Path) -> None:
    async with rig(tmp_path, "park") as r:
        asking = await parked(r)
        asking.session.record.environment = StoredEnvironment(secrets=("ANTHROPIC_API_KEY",))
        for decision in ("allow_once", "deny"):
            with pytest.raises(InvalidRequest, match=r"ANTHROPIC_API_KEY.* Nothing was changed"):
                await r.sessions.requests.decide("q1", decision, "cli")
        assert await asking.row("q1") == ("parked", None, None, None)
        given = ClientEnvironment.of({"ANTHROPIC_API_KEY": "sk-1"})
        await r.sessions.requests.decide("q1", "allow_once", "cli", given=given)
        await eventually(lambda: len(r.launcher.launched) == 2 and r.launcher.launched[1].prompts)
        assert "The user's answer: allowed, this once." in going_on(r)
        variables = r.launcher.launched[1].spec.options.environment
        assert variables is not None
        assert variables["ANTHROPIC_API_KEY"] == "sk-1"


async def test_ended_answer_keeps_no_secrets(tmp_path: Path) -> None:
    """A run that goes on with it finds it all the same."""
    async with rig(tmp_path, "park") as r:
        asking = await parked(r)
        given = ClientEnvironment.of({"ANTHROPIC_API_KEY": "sk-1"})
        await r.sessions.requests.decide("q1", "allow_once", "cli", given=given)
        await eventually(lambda: len(r.launcher.launched) == 2 and r.launcher.launched[1].prompts)
        answer_to, worker = asking.session.permissions.answer_to, r.launcher.launched[1]
        turn = await answer_to(asking.turn.turn_id)
        assert turn is not None
        assert turn.given is not None
        worker.say(worker.ended(turn.turn_id))
        await asking.session.idle()
        kept = await answer_to(asking.turn.turn_id)
        assert kept is not None
        assert (kept.turn_id, kept.content, kept.given) == (turn.turn_id, [], None)
        assert kept.ended is turn.ended


async def test_claude_is_not_reasked_about_answered_call(tmp_path: Path) -> None:
    async with rig(tmp_path, "park") as r:
        asking = await parked(r, always="make")
        await r.sessions.requests.decide("q1", "allow_always", "cli")
        await eventually(lambda: len(r.launcher.launched) == 2 and r.launcher.launched[1].acked)
        (turn,) = asking.session.turns
        person = Person()
        asking.session.subscribe(person, 0)
        again = Asking(r, asking.session, turn, r.launcher.launched[1])
        again.ask("other", call="another call")
        again.ask("same", always="make")
        assert await again.settled("same") == ("selected", "allow_always", "cli")
        assert await eventually(lambda: [one.decision for one in again.answers]) == ["allow_always"]
        again.ask("same again")
        await person.answer("other", choice("reject_once"))
        await eventually(lambda: person.ids == ["other", "same again"])


async def test_only_a_choice_settles_a_parked_question(tmp_path: Path) -> None:
    async with rig(tmp_path, "park") as r:
        asking = await parked(r)
        for outcome in (
            {"outcome": "cancelled"},
            choice("no_such_option"),
            RuntimeError("no dialogue"),
        ):
            person = Person()
            place = asking.session.subscribe(person, 0)
            await person.answer("q1", outcome)
            await eventually(lambda: person.told == ["q1"])  # noqa: B023  the front need not keep the answer
            place.close()
            assert await asking.row("q1") == ("parked", None, None, None)
        await r.sessions.requests.decide("q1", "deny", "cli")
        assert await asking.settled("q1") == ("selected", "reject_once", "cli")
        await eventually(lambda: len(r.launcher.launched) == 2 and r.launcher.launched[1].prompts)
        assert "refused" in going_on(r)


@pytest.mark.parametrize("deleted", [False, True])
async def test_session_that_is_closed_withdraws_its_parked_question(
    tmp_path: Path, deleted: bool
) -> None:
    """`deleted`: else it is asked again once somebody loads the session."""
    async with rig(tmp_path, "park") as r:
        asking = await parked(r)
        person = Person()
        asking.session.subscribe(person, 0)
        await eventually(lambda: "q1" in person.unanswered)
        await (r.sessions.delete if deleted else r.sessions.close)(asking.session)
        await eventually(lambda: person.withdrawn == ["q1"])
        assert person.told == ["q1"], "its front need not keep what it has of an answer"
        assert bool(asking.session.permissions.pending_ids) is not deleted
        if not deleted:
            asking.session.subscribe(person, 0)
            await eventually(lambda: person.ids == ["q1", "q1"])
            await person.answer("q1", choice("allow_once"))
            assert await asking.settled("q1") == ("selected", "allow_once", "editor")


async def test_answer_to_question_of_closed_session_is_acknowledged(tmp_path: Path) -> None:
    """Its user had answered before it was told that the question is withdrawn."""
    async with rig(tmp_path, "park") as r:
        asking = await parked(r)
        async with front(r) as one:
            place = {"sessionId": asking.session.id, "cwd": "/", "mcpServers": []}
            await one.result(1, "session/load", **place)
            await eventually(lambda: one.rests("request"))
            await r.sessions.close(asking.session)
            await eventually(
                lambda: any("$/cancel_request" in note for note in one.rests("notify"))
            )
            answer = {"jsonrpc": "2.0", "id": "q1", "result": {"outcome": choice("allow_once")}}
            one.say(f"> 2 {json.dumps(answer)}")
            await eventually(lambda: "2" in one.rests("ack"))
            assert await asking.row("q1") == ("parked", None, None, None)
            await one.result(3, "session/load", **place)
            await eventually(lambda: len(one.rests("request")) == 2)
            one.say(f"> 4 {json.dumps(answer)}")
            assert await asking.settled("q1") == ("selected", "allow_once", "editor")
            await eventually(lambda: "4" in one.rests("ack"))


async def test_early_answer_survives_failed_look_at_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As to a new daemon, which is yet to ask: the front shows the question to nobody again."""
    async with rig(tmp_path, "park") as r:
        asking = await parked(r)
        async with front(r) as one:
            locked = AsyncMock(side_effect=StoreUnavailable("locked", "It is locked."))
            answer = {"jsonrpc": "2.0", "id": "q1", "result": {"outcome": choice("allow_once")}}
            with monkeypatch.context() as patch:
                patch.setattr(r.sessions, "is_open", locked)
                one.say(f"> 1 {json.dumps(answer)}")
                await eventually(lambda: locked.await_count)
            place = {"sessionId": asking.session.id, "cwd": "/", "mcpServers": []}
            await one.result(2, "session/load", **place)
            assert await asking.settled("q1") == ("selected", "allow_once", "editor")
            await eventually(lambda: "1" in one.rests("ack"))


@pytest.mark.parametrize("asked_before", [False, True])
async def test_a_parked_question_outlives_the_daemon(tmp_path: Path, asked_before: bool) -> None:
    async with rig(tmp_path, "park") as r:
        first = await parked(r)
        await write(r, permissions.interrupt_all())
        later = Sessions(SessionJournal(r.database), OPTIONS, times("park"), LISTS)
        later.workers = r.pool
        vars(r.sessions.worker_events).update(vars(later.worker_events))  # whom the pool tells
        vars(r.sessions).update(vars(later))
        person = Person()
        session = await later.find(first.session.id)
        assert session is not None
        session.subscribe(person, 0)
        assert await eventually(lambda: person.ids) == ["q1"]
        (waiting,) = await later.requests.list_pending()
        assert (waiting.request.title, waiting.policy) == ("Bash: make", "parked")
        await later.requests.decide("q1", "allow_once", "cli")
        await eventually(lambda: person.withdrawn == ["q1"])
        await eventually(lambda: len(r.launcher.launched) == 2 and r.launcher.launched[1].acked)
        # The daemon dies once more while that turn runs: the answer still holds for the call.
        (row,) = await SessionJournal(r.database).find_active(session.id)
        (turn,) = session.turns
        assert (row.turn_id, row.outcome, row.option) == (turn.turn_id, "selected", "allow_once")
        again = Asking(r, session, turn, r.launcher.launched[1])
        if asked_before:  # and the daemon died before it could say so
            again.unanswered.append("same")
            same = replace_struct(row.request, ask_id="same", turn_id=turn.turn_id)
            await write(r, permissions.insert(session.id, same, r.database.clock.now()))
        again.session = await restarted(r, again)
        if not asked_before:
            again.ask("same")
        assert await again.settled("same") == ("selected", "allow_once", "cli")
        assert await SessionJournal(r.database).find_active(session.id) == [], (
            "once is once, also for the next daemon"
        )


async def test_question_that_cannot_be_parked_times_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = replace(times("park"), permission_timeout=LONG)
    async with plain_rig(tmp_path, times=limited, stall_timeout=3 * LONG) as r:
        asking, editor, tried = await begin(r), Person(), asyncio.Event()

        async def park(*_: object) -> list[int]:
            tried.set()
            raise StoreUnavailable("blocked", "The disk is full.")

        monkeypatch.setattr(r.journal, "park", park)
        asking.ask("q1")
        await tried.wait()
        asking.session.subscribe(editor, 0)  # whose user does not decide
        await eventually(lambda: editor.ids == ["q1"])
        await asking.times_out_in("q1", LONG)


async def test_parked_question_frees_worker_before_next_prompt(tmp_path: Path) -> None:
    async with rig(tmp_path, "park") as r:
        asking = await begin(r)
        later = Turn(str(uuid4()), asking.session.id, [{"type": "text", "text": "hang"}])
        await asking.session.submit(later)
        asking.ask("q1")
        await eventually(lambda: len(r.launcher.launched) == 2 and r.launcher.launched[1].acked)
        assert asking.turn.ended.done()
        assert not later.ended.done()
        assert r.launcher.live == [r.launcher.launched[1]]
        assert not asking.session.parking.gives_up_worker


@pytest.mark.parametrize("work", [(), (1, 0)])
async def test_parked_question_frees_worker_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: tuple[int, ...]
) -> None:
    """`work`: how much runs in the background during the turn; Claude could tell of its end."""
    monkeypatch.setattr(occupation, "SETTLED", LONG)
    async with rig(tmp_path, "wait", max_workers=2) as r:
        asking = await begin(r), await begin(r)
        for one in asking:
            for running in work:
                one.channel.background(running)
            one.ask(f"of {one.session.id}")
            away = one.session.permissions.away
            await eventually(functools.partial(getattr, away, "unattended_since"))
        assert (await r.run(await r.session(), "say 1")).state == "done"
        assert [one.turn.ended.done() for one in asking] == [True, False], "one is enough"


@pytest.mark.parametrize("busy", [True, False])
async def test_parked_question_of_ended_turn_stops_subagent(tmp_path: Path, busy: bool) -> None:
    """`busy`: another turn runs, which is not stopped."""
    async with rig(tmp_path, "park") as r:
        asking = await begin(r)
        asking.channel.background(1)
        asking.channel.say(asking.channel.ended(asking.turn.turn_id))
        await asking.session.idle()
        other = await r.prompt(asking.session, "hang") if busy else None
        for one in list(asking.session.subscriptions):
            one.close()
        await eventually(lambda: asking.channel.acked == asking.channel.last)
        asking.ask("q1", parent_id="agent")
        kind = StopTask if busy else StopSubagents
        (frame,) = await eventually(
            lambda: [one for one in asking.channel.got if isinstance(one, kind)]
        )
        assert frame.why == UNATTENDED
        assert other is None or not other.ended.done()


async def test_parked_question_leaves_worker_to_another_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path, "park", LONG) as r:
        asking, go_on = await begin(r), asyncio.Event()
        dispatch, entered = r.journal.dispatch, asyncio.Event()

        async def later(*given: Any) -> None:
            entered.set()
            await go_on.wait()
            await dispatch(*given)

        monkeypatch.setattr(r.journal, "dispatch", later)
        content = [{"type": "text", "text": "Look out."}]
        steered = Turn(str(uuid4()), asking.session.id, content, steers=True)
        submitting = asyncio.create_task(asking.session.submit(steered), name="submit")
        await entered.wait()
        asking.ask("q1")
        await asking.away("q1")
        asking.session.permissions.away.park_oldest()
        await asking.turn.over()
        await eventually(lambda: not asking.session.parking.gives_up_worker)
        assert r.launcher.live == [asking.channel]
        go_on.set()
        await submitting
        worker = asking.channel
        worker.say(worker.started(steered.turn_id), worker.ended(steered.turn_id))
        assert (await steered.ended)[0].state == "done"


async def test_question_parked_by_clock_frees_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(occupation, "SETTLED", LONG)
    async with rig(tmp_path, "park") as r:
        asking = await begin(r)
        asking.channel.background(1)
        asking.channel.background(0)
        asking.ask("q1")
        await eventually(lambda: asking.turn.ended.done() and not r.launcher.live)


async def test_oldest_unattended_question_makes_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capacity, "RETRY_INTERVAL", 0.05)
    async with rig(tmp_path, "wait", max_workers=2) as r:
        person = Person()
        looked_at = await begin(r, person)
        looked_at.ask("seen")
        await eventually(lambda: person.asked)
        alone = await begin(r)
        alone.ask("alone")
        await alone.away("alone")
        third = await r.session()
        assert (await r.run(third, "say 1")).state == "done"
        assert (await alone.turn.ended)[0].state == "cancelled"
        assert (await alone.row("alone"))[0] == "parked"
        assert (await looked_at.row("seen"))[:2] == ("attended", None)
        assert not looked_at.turn.ended.done()


# --- several who answer


async def test_first_of_two_answers_wins_both_clients_told(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        one, other = Person("one"), Person("other")
        asking = await begin(r, one, other)
        asking.ask("q1")
        await eventually(lambda: one.asked)
        await eventually(lambda: other.asked)
        one.unanswered["q1"].set_result(choice("reject_once"))
        other.unanswered["q1"].set_result(choice("allow_once"))
        assert await asking.settled("q1") == ("selected", "reject_once", "one")
        assert [answer.decision for answer in await eventually(lambda: asking.answers)] == [
            "reject"
        ]
        assert one.told == other.told == ["q1"]


@pytest.mark.parametrize("outcome", [{"outcome": "cancelled"}, RuntimeError("no dialogue")])
async def test_client_not_choosing_leaves_question_to_others(tmp_path: Path, outcome: Any) -> None:
    async with rig(tmp_path, "wait") as r:
        one, other = Person("one"), Person("other")
        asking = await begin(r, one, other)
        asking.ask("q1")
        await one.answer("q1", outcome)
        await eventually(lambda: one.told == ["q1"])
        await other.answer("q1", choice("allow_once"))
        assert await asking.settled("q1") == ("selected", "allow_once", "other")
        asking.ask("q2")
        await other.answer("q2", outcome)
        await one.answer("q2", {"outcome": "cancelled"})
        assert (await asking.settled("q2"))[:2] == ("cancelled", None)
        asking.ask("q3")
        await one.answer("q3", {"outcome": "cancelled"})
        await eventually(lambda: other.ids == ["q1", "q2", "q3"] and one.told[-1:] == ["q3"])
        asking.session.subscriptions[1].close()
        assert (await asking.settled("q3"))[:2] == ("cancelled", None), "who is left had its say"


async def test_late_answerer_is_told_question_is_settled(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        person = Person()
        asking = await begin(r, person)
        asking.ask("q1", always="make")
        await eventually(lambda: person.asked)
        await r.sessions.requests.decide("q", "allow_always", "cli")
        assert await asking.row("q1") == ("attended", "selected", "allow_always", "cli")
        await eventually(lambda: person.withdrawn == ["q1"] and person.told == ["q1"])
        with pytest.raises(InvalidRequest, match="no longer pending"):
            await r.sessions.requests.decide("q1", "deny", "cli")


async def test_client_is_asked_one_question_at_a_time(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        person = Person()
        asking = await begin(r, person)
        for ask_id in ("q1", "q2", "q3"):
            asking.ask(ask_id)
        await asking.asked("q3")
        await r.sessions.requests.decide("q2", "deny", "cli")
        assert person.ids == ["q1"]
        await person.answer("q1", choice("allow_once"))
        await person.answer("q3", choice("reject_once"))
        await eventually(lambda: len(asking.answers) == 3)
        assert person.ids == ["q1", "q3"]


@pytest.mark.parametrize(
    ("question", "decision", "error", "words"),
    [
        ("nothing", "deny", InvalidParams, "No permission request"),
        ("", "deny", InvalidParams, "No permission request"),
        ("q", "deny", InvalidParams, "2 pending requests"),
        ("q1", "allow_always", InvalidParams, "with: --allow, --deny"),
        ("old", "deny", InvalidRequest, "no longer pending"),
    ],
)
async def test_an_approval_that_cannot_be_says_why(
    tmp_path: Path, question: str, decision: Any, error: type[AcpError], words: str
) -> None:
    async with rig(tmp_path) as r:
        asking = await begin(r)
        asking.ask("old")
        await asking.asked("old")
        await r.sessions.requests.decide("old", "deny", "cli")
        asking.ask("q1")
        asking.ask("q10")
        await asking.asked("q10")
        with pytest.raises(error, match=words):
            await r.sessions.requests.decide(question, decision, "cli")
        assert [one.request.ask_id for one in await r.sessions.requests.list_pending()] == [
            "q1",
            "q10",
        ]


# --- a new daemon


async def test_a_restored_question_is_asked_of_whoever_comes(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        asking = await begin(r, Person())
        question = asking.ask("q1", always="make")
        await asking.asked("q1")
        session = await restarted(r, asking)
        person = Person("later")
        session.subscribe(person, 0)
        await person.answer("q1", choice("allow_always"))
        assert person.asked == [question]
        assert await asking.settled("q1") == ("selected", "allow_always", "later")
        assert [answer.decision for answer in await eventually(lambda: asking.answers)] == [
            "allow_always"
        ]


async def test_a_restored_deadline_goes_on(tmp_path: Path) -> None:
    async with rig(tmp_path, "wait", timeout=LONG) as r:
        asking = await begin(r)
        asking.ask("q1")
        before = await asking.away("q1")
        assert abs(before / 1000 - time.time() - LONG) < 60
        (row,) = await SessionJournal(r.database).find_active(asking.session.id)
        assert row.deadline_clock is not None
        await write(
            r,
            permissions.set_clock(
                "q1", RequestPolicy.WAIT, Deadline(before, row.deadline_clock - 1_000_000)
            ),
        )
        asking.session = await restarted(r, asking)
        await asking.times_out_in("q1", LONG - 1000)


async def test_deadline_passed_without_daemon_leaves_clients_reconnect_time(tmp_path: Path) -> None:
    async with rig(tmp_path, "wait", timeout=LONG) as r:
        asking = await begin(r)
        asking.ask("q1")
        await asking.away("q1")
        await write(r, permissions.set_clock("q1", RequestPolicy.WAIT, Deadline(1, 1)))
        begun = time.monotonic()
        await restarted(r, asking)
        assert await asking.settled("q1") == ("timeout", None, "timeout")
        assert time.monotonic() - begun >= SOON


async def test_daemon_that_died_while_parking_stops_turn_later(tmp_path: Path) -> None:
    async with rig(tmp_path, "wait") as r:
        asking = await begin(r)
        asking.ask("q1")
        await asking.away("q1")
        await write(r, permissions.park("q1"))
        await restarted(r, asking)
        assert (await asyncio.wait_for(asking.turn.ended, 30))[0].state == "cancelled"
        assert (await asking.row("q1"))[:2] == ("parked", None)


async def test_undelivered_answer_comes_from_its_row(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        asking = await begin(r)
        asking.ask("yes")
        asking.ask("no")
        asking.ask("open")
        asking.ask("parked")
        await asking.asked("parked")
        await write(r, permissions.park("parked"))
        await write(
            r,
            permissions.settle_parked(
                Settlement("parked", "selected", "allow_once"), asking.turn.turn_id
            ),
        )
        await r.sessions.requests.decide("yes", "allow_once", "cli")
        await r.sessions.requests.decide("no", "deny", "cli")
        rows = await permissions.settled(r.database, ["yes", "no", "open", "parked", "never asked"])
        given = [decisions.stored_to_worker(7, row) for row in rows]
        assert {(one.ask_id, one.decision, one.epoch) for one in given} == {
            ("yes", "allow_once", 7),
            ("no", "reject", 7),
        }


async def test_only_questions_of_dead_workers_are_interrupted(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        adopted, dead, waits = [await begin(r) for _ in range(3)]
        for asking, ask_id in ((adopted, "adopted"), (dead, "dead"), (waits, "parked")):
            asking.ask(ask_id)
            await asking.away(ask_id)
        await write(r, permissions.park("parked"))
        await write(r, permissions.interrupt_all([adopted.session.id]))
        rows = dict(await r.database.read("SELECT permission_id, outcome FROM acp_permissions"))
        assert rows == {"adopted": None, "dead": "interrupted", "parked": None}


async def test_a_worker_that_dies_takes_its_question_along(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        person = Person()
        asking = await begin(r, person)
        asking.ask("q1")
        await eventually(lambda: person.asked)
        asking.channel.kill()
        assert (await asking.settled("q1"))[0] == "interrupted"
        await eventually(lambda: person.withdrawn == ["q1"] and person.told == ["q1"])


async def test_request_is_left_when_the_database_closes(tmp_path: Path) -> None:
    """To the next daemon: it is not parked in vain again and again."""
    async with rig(tmp_path, "park", grace=0.1) as r:
        asking = await begin(r)
        with capture_logs() as logs:
            asking.ask("q1")
            await asking.asked("q1")
            await r.sessions.live.suspend()
            await r.pool.detach()
            await r.database.close()
            await eventually(lambda: asking.session.permissions.parked)
            await not_within(lambda: not asking.session.permissions.parked)
        assert [one for one in logs if one["log_level"] == "error"] == []


REFUSED = (
    "CREATE TRIGGER refused BEFORE UPDATE ON acp_permissions WHEN NEW.outcome IS NOT NULL"
    " BEGIN SELECT RAISE(ABORT, 'no'); END"
)
"""As of another program: no state of the disk, after which it would be tried again."""


async def test_unrecorded_answer_leaves_nothing_pending(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        person = Person()
        asking = await begin(r, person)
        await write(r, Statement(REFUSED, ()))
        asking.ask("q1")
        await eventually(lambda: person.asked)
        with pytest.raises(InternalError, match="could not be recorded"):
            await r.sessions.requests.decide("q1", "allow_once", "cli")
        await write(r, Statement("DROP TRIGGER refused", ()))
        assert (await asking.settled("q1"))[0] == "interrupted"
        assert await r.sessions.requests.list_pending() == []


async def test_parked_request_outlives_an_unrecorded_answer(tmp_path: Path) -> None:
    async with rig(tmp_path, "park") as r:
        asking = await park(r)
        person, later = Person(), Person()
        asking.session.subscribe(person, 0)
        await eventually(lambda: person.asked)
        await write(r, Statement(REFUSED, ()))
        decide = functools.partial(r.sessions.requests.decide, "q1", "allow_once", "cli")
        with pytest.raises(InternalError, match="could not be recorded"):
            await decide()
        await write(r, Statement("DROP TRIGGER refused", ()))
        assert person.withdrawn == ["q1"]
        assert [one.request.ask_id for one in await r.sessions.requests.list_pending()] == ["q1"]
        asking.session.subscribe(later, 0)
        await eventually(lambda: later.asked)
        await decide()
        assert (await asking.settled("q1"))[0] == "selected"
        await asking.session.idle()
        assert "It is answered now." in r.launcher.launched[-1].prompts[-1]


async def test_settled_parked_request_is_not_revived(tmp_path: Path) -> None:
    """A rewind was committed just before its answer."""
    async with rig(tmp_path, "park") as r:
        asking = await park(r)
        await write(r, Statement("UPDATE acp_permissions SET outcome = 'interrupted'", ()))
        decision = Decision(RequestOutcome.SELECTED, "allow_once", "cli")
        with pytest.raises(InternalError, match="could not be recorded"):
            await asking.session.permissions.decide("q1", decision)
        assert asking.session.permissions.pending_ids == []


async def test_unrecorded_answer_is_given_up_when_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        person = Person()
        asking = await begin(r, person)
        settle = AsyncMock(side_effect=DamageMet("The table is damaged."))
        monkeypatch.setattr(SessionJournal, "settle", settle)
        asking.ask("q1")
        await eventually(lambda: person.asked)
        with pytest.raises(InternalError, match="could not be recorded"):
            await r.sessions.requests.decide("q1", "allow_once", "cli")
        await eventually(lambda: settle.await_count == 2)
        await eventually(lambda: not running("Settler._give_up"))
        assert settle.await_count == 2
        monkeypatch.undo()


# --- over ACP


async def test_a_client_chooses_the_policy_of_its_session(tmp_path: Path) -> None:
    async with plain_rig(tmp_path) as r, client(r) as wire:

        async def policies() -> list[Any]:
            return [
                policy
                for (policy,) in await r.database.read("SELECT away_policy FROM acp_sessions")
            ]

        def wanting(policy: Any) -> dict[str, Any]:
            return {"_meta": {"pykoclaw.dev/awayPolicy": policy}}

        for bad in ("later", 1, ["deny"]):
            refused = await wire.call("session/new", cwd="/", mcpServers=[], **wanting(bad))
            assert refused["error"]["code"] == -32602
            assert "pykoclaw.dev/awayPolicy" in refused["error"]["message"]
        assert await policies() == []
        made = await wire.call("session/new", cwd="/", mcpServers=[], **wanting("deny"))
        assert await policies() == ["deny"]
        session = made["result"]["sessionId"]
        await wire.call("session/resume", sessionId=session, cwd="/", **wanting("park"))
        assert await policies() == ["park"]
        await wire.call("session/load", sessionId=session, cwd="/", mcpServers=[])
        assert await policies() == ["park"]
        await wire.call(
            "session/load", sessionId=session, cwd="/", mcpServers=[], **wanting("allow")
        )
        assert await policies() == ["allow"]
