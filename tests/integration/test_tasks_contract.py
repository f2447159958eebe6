"""Contract of `sessions.ports.TaskStore`: a run is claimed once and has one result."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as changed

from pykoclaw_acp.channel.frames import EventFrame, Numbered, TurnStarted
from pykoclaw_acp.errors import Conflict
from pykoclaw_acp.model.branches import Branch
from pykoclaw_acp.model.conversations import Conversation
from pykoclaw_acp.model.events import WHY, Event, Text, ToolEnded, ToolStarted, UserMessage
from pykoclaw_acp.model.permissions import RequestOutcome, Settlement
from pykoclaw_acp.model.scheduled import TaskResult, TaskRun
from pykoclaw_acp.model.turns import Outcome, SessionRecord, TurnState
from pykoclaw_acp.model.work import SUBAGENTS, Work
from tests.integration.journals import BOTH, DONE, Subject, end, prompt, request, subject
from tests.integration.programs import PAST, TASK
from tests.twins.rows import QueuedDelivery, RunLog

FUTURE = "2999-01-01T00:00:00+00:00"
RUN = TaskRun("run", TASK, None, False, 1000)
RESULT = TaskResult("<reply>All is well.</reply>", None, None, 5)


@pytest.fixture(params=BOTH)
async def s(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as made:
        yield made


async def claimed(s: Subject, run: TaskRun = RUN) -> TaskRun:
    await s.others.schedule(run.task)
    await s.tasks.claim(run)
    return run


async def due(s: Subject, limit: int = 9) -> list[str]:
    return [one.id for one in await s.tasks.due(limit)]


async def delivered(s: Subject) -> list[tuple[str, str, str, str]]:
    rows = await s.others.queue()
    return [(one.task_id, one.conversation, one.message, one.status) for one in rows]


async def aside(s: Subject, name: str = "aside") -> str:
    """The session of a run, with a turn of Claude's, that was deleted again."""
    session = await s.session(name)
    _, epoch = await s.running(session, f"turn-{name}")
    ended = end(epoch, 2, f"turn-{name}")
    await s.journal.record(session, epoch, [ended], {f"turn-{name}": DONE})
    await s.journal.delete(session)
    return session


async def test_due_tasks_come_in_order_of_time(s: Subject) -> None:
    assert (await s.tasks.due(9), await s.tasks.next_due()) == ([], None)
    rows: dict[str, dict[str, Any]] = {
        "second": {"next_run": "2026-01-02T00:00:00+00:00"},
        "first": {},
        "future": {"next_run": FUTURE},
        "sooner": {"next_run": "2998-01-01T00:00:00+00:00"},
        "paused": {"status": "paused"},
        "held": {"status": "paused", "next_run": "2997-01-01T00:00:00+00:00"},
        "never": {"next_run": None},
    }
    for task_id, fields in rows.items():
        await s.others.schedule(changed(TASK, id=task_id, **fields))
    assert await s.tasks.due(1) == [changed(TASK, id="first")]
    assert await due(s) == ["first", "second"]
    assert await s.tasks.next_due() == "2998-01-01T00:00:00+00:00"


@pytest.mark.parametrize("over", [False, True])
async def test_run_goes_on_as_turn_of_parked_answer(s: Subject, over: bool) -> None:
    """Unless it is over when the answer comes."""
    run = await claimed(s)
    session = await s.session()
    _, epoch = await s.running(session, "run")
    asks = request("ask", epoch=epoch, n=2, turn_id="run")
    await s.journal.record(session, epoch, [asks], {})
    await s.journal.park(session, asks, [])
    if over:
        await s.tasks.finish(run, RESULT)
    answered = Settlement("ask", RequestOutcome.SELECTED, "allow_once")
    await s.journal.answer_parked(answered, prompt(session, "answer"))
    if over:
        assert await s.tasks.unfinished() == []
        return
    assert [one.turn_id for one in await s.tasks.unfinished()] == ["answer"]
    await s.tasks.finish(replace(run, turn_id="answer"), RESULT)
    with pytest.raises(Conflict):
        await s.tasks.finish(run, RESULT)


async def test_run_is_claimed_once_and_writes_next(s: Subject) -> None:
    run = await claimed(s, replace(RUN, claimed=PAST))
    assert await s.others.task("t1") == TASK
    assert await due(s) == []
    with pytest.raises(Conflict):
        await s.tasks.claim(replace(run, turn_id="again"))
    assert await s.tasks.unfinished() == [run]
    await s.tasks.finish(run, replace(RESULT, next_run=PAST))
    assert await due(s) == ["t1"]
    await s.tasks.claim(replace(RUN, turn_id="next", claimed=FUTURE))
    assert (await s.others.task("t1")).next_run == FUTURE


async def test_changed_or_paused_task_is_not_claimed(s: Subject) -> None:
    with pytest.raises(Conflict):
        await s.tasks.claim(RUN)
    await s.others.schedule(changed(TASK, next_run=FUTURE))
    with pytest.raises(Conflict):
        await s.tasks.claim(RUN)
    await s.others.schedule(changed(TASK, status="paused"))
    with pytest.raises(Conflict):
        await s.tasks.claim(RUN)
    assert await s.tasks.unfinished() == []
    manual = replace(RUN, manual=True, claimed=PAST)
    await s.tasks.claim(manual)
    assert await s.tasks.unfinished() == [manual]


async def test_task_with_unreadable_schedule_is_paused(s: Subject) -> None:
    await s.others.schedule(TASK)
    await s.tasks.refuse(TASK, "No such time.")
    found = await s.others.task("t1")
    assert (found.status, found.last_result) == ("paused", "Error: No such time.")
    assert found.last_run is not None
    assert await s.others.runs("t1") == [RunLog("error", None, "No such time.")]
    for other in (changed(TASK, next_run=FUTURE), changed(TASK, id="nothing")):
        with pytest.raises(Conflict):
            await s.tasks.refuse(other, "No such time.")
    assert len(await s.others.runs("t1")) == 1


async def test_places_of_runs_keep_order_of_claims(s: Subject) -> None:
    """The clock was set back meanwhile."""
    first = await claimed(s, replace(RUN, turn_id="z", task=changed(TASK, id="t2")))
    run = await claimed(s, replace(RUN, started_at=RUN.started_at - 3))
    last = await claimed(s, replace(RUN, turn_id="a", task=changed(TASK, id="t3"), started_at=3))
    placed = replace(run, turn_id="turn", session_id="one", aside=True)
    await s.tasks.place(placed, "run")
    assert await s.tasks.unfinished() == [first, placed, last]
    with pytest.raises(Conflict):
        await s.tasks.place(placed, "run")
    await s.tasks.place(replace(placed, session_id="two"), "turn")
    assert (await s.tasks.unfinished())[1].session_id == "two"


async def test_session_of_run_aside_works_for_its_conversation(s: Subject) -> None:
    run = await claimed(s)
    for aside in (False, True):
        session = await s.session(f"aside {aside}")
        placed = replace(run, session_id=session, aside=aside)
        await s.tasks.place(placed, run.turn_id)
        found = await s.journal.find(session)
        assert found is not None
        assert found.works_for == (TASK.conversation if aside else None)
    await s.tasks.finish(placed, RESULT)
    assert await s.journal.find(session) == found


async def test_result_is_written_once_and_delivered(s: Subject) -> None:
    run = await claimed(s)
    await s.tasks.finish(run, RESULT)
    with pytest.raises(Conflict):
        await s.tasks.finish(run, replace(RESULT, text="Another."))
    assert await s.tasks.unfinished() == []
    found = await s.others.task("t1")
    assert (found.status, found.next_run, found.last_result) == ("completed", None, RESULT.text)
    assert found.last_run is not None
    assert await s.others.runs("t1") == [RunLog("success", RESULT.text, None)]
    assert await delivered(s) == [("t1", "wa-andy", "All is well.", "pending")]
    with pytest.raises(Conflict):
        await s.tasks.finish(replace(run, turn_id="nothing"), RESULT)


@pytest.mark.parametrize(
    ("fields", "row", "message"),
    [
        ({"text": "", "error": "It broke."}, RunLog("error", None, "It broke."), None),
        ({"text": "A part", "error": "It broke."}, RunLog("error", "A part", "It broke."), None),
        ({"text": ""}, RunLog("success", None, None), None),
        ({"text": "Seen.", "shown": True}, RunLog("success", "Seen.", None), "delivered"),
    ],
)
async def test_failures_and_shown_results_are_not_delivered(
    s: Subject, fields: dict[str, Any], row: RunLog, message: str | None
) -> None:
    run = await claimed(s)
    result = replace(RESULT, **fields)
    await s.tasks.finish(run, result)
    assert await s.others.runs("t1") == [row]
    assert (await s.others.task("t1")).last_result == result.summary
    assert [one[-1] for one in await delivered(s)] == ([] if message is None else [message])


async def test_result_leaves_changed_schedules_alone(s: Subject) -> None:
    run = await claimed(s)
    await s.others.schedule(changed(TASK, next_run=PAST))
    await s.tasks.finish(run, replace(RESULT, next_run=FUTURE))
    found = await s.others.task("t1")
    assert (found.status, found.next_run) == ("active", PAST)
    manual = replace(RUN, turn_id="manual", manual=True, claimed=PAST)
    await s.tasks.claim(manual)
    await s.tasks.finish(manual, RESULT)
    found = await s.others.task("t1")
    assert (found.status, found.next_run, len(await s.others.runs("t1"))) == ("active", PAST, 2)
    repeated = replace(RUN, turn_id="repeated", claimed=PAST)
    await s.tasks.claim(repeated)
    await s.tasks.finish(repeated, replace(RESULT, next_run=FUTURE))
    found = await s.others.task("t1")
    assert (found.status, found.next_run) == ("active", FUTURE)


async def test_result_begins_conversation_unless_there_is_one(s: Subject) -> None:
    new, begun = (
        Conversation("wa-new", "claude-1", "/work", "hash"),
        Conversation("wa-begun", "own"),
    )
    empty, owned = (
        Conversation("wa-empty", "claude-2", "/work"),
        Conversation("acp-one", "claude-3"),
    )
    await s.session()
    await s.others.upsert(begun)
    await s.others.upsert(replace(empty, claude_session_id=""))
    for number, row in enumerate((new, replace(begun, claude_session_id="x"), empty, owned)):
        task = changed(TASK, id=f"t{number}")
        run = await claimed(s, replace(RUN, turn_id=f"run-{number}", task=task))
        await s.tasks.finish(run, replace(RESULT, begins=row))
    assert await s.journal.conversation("wa-new") == new
    assert await s.journal.conversation("wa-begun") == begun
    assert await s.journal.conversation("wa-empty") == empty
    found = await s.journal.conversation("acp-one")
    assert found is not None
    assert found.claude_session_id is None


async def test_turn_of_ended_run_is_not_accepted(s: Subject) -> None:
    session = await s.session()
    run = await claimed(s)
    await s.tasks.finish(run, RESULT)
    with pytest.raises(Conflict):
        await s.journal.accept(prompt(session, "run", task_id="t1"))
    await s.journal.accept(prompt(session, "other", task_id="t1"))


async def test_turn_of_deleted_task_never_begins(s: Subject) -> None:
    session = await s.session()
    await claimed(s)
    epoch = await s.workers.next_epoch(session)
    turn = prompt(session, "run", task_id="t1")
    await s.journal.accept(turn)
    assert await s.tasks.without_task(["t1", "t2"]) == {"t2"}
    await s.others.unschedule("t1")
    assert await s.tasks.without_task(["t1", "t2"]) == {"t1", "t2"}
    with pytest.raises(Conflict):
        await s.journal.dispatch(turn, epoch, ())
    with pytest.raises(Conflict):
        await s.journal.accept(prompt(session, "other", task_id="t1"))


async def test_answer_of_turn_has_rule_at_tools(s: Subject) -> None:
    session = await s.session()
    _, epoch = await s.running(session)
    call = ToolStarted("call", "Bash", "ls", "execute")
    said: list[Event] = [Text("a", "I look."), call, Text("b", "Done.")]
    frames = [
        EventFrame(epoch=epoch, n=n, turn_id="turn", event=one) for n, one in enumerate(said, 2)
    ]
    await s.journal.record(session, epoch, frames, {})
    await s.journal.append(session, [Text("c", "Of no turn.")])
    assert (await s.journal.work("turn")).text == "I look.\n\n---\n\nDone."
    assert await s.journal.work("nothing") == Work()


@pytest.mark.parametrize("ends_before", [True, False])
async def test_prompt_ends_what_turn_leads_to(s: Subject, ends_before: bool) -> None:
    session = await s.session()
    _, epoch = await s.running(session)
    call = EventFrame(
        epoch=epoch, n=2, turn_id="turn", event=ToolStarted("call", "Agent", "a", "think")
    )
    over = end(epoch, 3, "turn")
    await s.journal.record(session, epoch, [call, over], {"turn": DONE})
    if ends_before:
        await s.journal.append(session, [ToolEnded("call", "completed")])
    await s.journal.append(session, [UserMessage("next", {"type": "text", "text": "next"})])
    if not ends_before:
        await s.journal.append(session, [ToolEnded("call", "completed")])
    own = TurnStarted(epoch=epoch, n=4, turn_id="own", background=True)
    why = Text(f"own{WHY}", "Why.", note=True, calls=() if ends_before else ("call",))
    explained = EventFrame(epoch=epoch, n=5, turn_id=None, event=why)
    said = EventFrame(epoch=epoch, n=6, turn_id="own", event=Text("b", "Done."))
    await s.journal.record(session, epoch, [own, explained, said], {})
    work = await s.journal.work("turn")
    assert work.turns == (("turn",) if ends_before else ("turn", "own"))
    assert (work.text, work.beside) == (("", False) if ends_before else ("Done.", True))


STARTED = ToolStarted("mine", "Agent", "a", "think")
MINE = ToolEnded("mine", "completed", background=True)
SENT = ToolStarted("sent", "SendMessage", "a", "think", continues="mine")
AGAIN = ToolStarted("again", "Agent", "a", "think")
AGAIN_OVER = ToolEnded("again", "completed", background=True)
SHELL = ToolStarted("mine", "Bash", "a", "execute", input={"run_in_background": True})
MINE_LATER = changed(MINE, exit_code=0)  # outside of turns
FOREIGN = ToolEnded("foreign", "completed", background=True)
LOOK = ToolStarted("look", "Bash", "ls", "execute")
LOOKED = ToolEnded("look", "completed")
MONITOR = ToolStarted("mine", "Monitor", "a", "execute")
HAPPENS = {
    "one after the other": ([], [FOREIGN, "b:foreign", MINE, "c:mine"], ["c"]),
    "ends in its turn": ([FOREIGN], ["b:foreign", MINE, "c:mine"], ["c"]),
    "both end together": ([], [FOREIGN, MINE, "b:foreign", "c:mine"], ["c"]),
    "told of both at once": ([], [FOREIGN, MINE, "b:foreign,mine"], ["b"]),
    "told within its turn": ([LOOK, MINE, LOOKED], ["b:foreign"], []),
    "goes on with a message": ([MINE], [SENT, "b:sent"], ["b"]),
    "follow-up in the other turn": (
        [],
        [FOREIGN, "b:foreign", LOOK, MINE, LOOKED, AGAIN, AGAIN_OVER, "c:again"],
        ["b", "c"],
    ),
    "told within the other turn": ([], [FOREIGN, "b:foreign", LOOK, MINE, LOOKED], ["b"]),
    "subagent hears of its own work": (
        [changed(LOOK, parent_id="mine")],
        [FOREIGN, "b:foreign", changed(LOOKED, background=True), MINE, "c:mine"],
        ["c"],
    ),
    "waits for work of its own": ([], ["b:mine", MINE, "c:mine"], ["b", "c"]),
    "nothing ends": ([], ["b:", MINE, "c:mine"], ["c"]),
    "news of its monitor": ([MONITOR], ["b:", FOREIGN, "c:foreign"], ["b"]),
    "it was stopped": ([], [changed(MINE, status="failed", background=False), "b:"], []),
    "ends without a word": ([], [FOREIGN, "b:foreign", MINE_LATER, "c"], ["c"]),
    "earlier version, in its turn": ([SHELL, changed(MINE, background=False)], ["b?"], ["b"]),
    "earlier version": ([], [ToolEnded("mine", "completed"), "b?"], ["b"]),
}


@pytest.mark.parametrize(("within", "after", "told"), HAPPENS.values(), ids=HAPPENS)
async def test_turn_leads_to_what_its_calls_do(
    s: Subject, within: list[Event], after: list[Event | str], told: list[str]
) -> None:
    session = await s.session()
    _, epoch = await s.running(session)
    frames: list[Numbered] = []

    def frame(turn: str | None, event: Event) -> None:
        frames.append(EventFrame(epoch=epoch, n=len(frames) + 2, turn_id=turn, event=event))

    for event in [STARTED, *within]:
        frame("turn", event)
    frames.append(end(epoch, len(frames) + 2, "turn"))
    turn = None
    for one in after:
        if isinstance(one, str):
            turn, is_explained, named = one[0], len(one) > 1, one[2:]
            frames.append(
                TurnStarted(epoch=epoch, n=len(frames) + 2, turn_id=turn, background=True)
            )
            if is_explained:
                calls = None if one[1] == "?" else tuple(filter(None, named.split(",")))
                frame(None, Text(f"{turn}{WHY}", "Why.", note=True, calls=calls))
                frame(turn, Text(turn, f"Said in {turn}."))
            else:
                frame(turn, Text(f"{turn}-failed", "It failed.", note=True))
        else:
            frame(None if one in (MINE_LATER, SENT) else turn, one)
    await s.journal.record(session, epoch, frames, {"turn": DONE})
    work = await s.journal.work("turn")
    assert work.turns == ("turn", *told)
    explained = [one for one in told if one not in after]
    assert work.text == "\n\n---\n\n".join(f"Said in {one}." for one in explained)
    begun = {one.tool_call_id for one in (*within, *after) if isinstance(one, ToolStarted)}
    assert work.calls == {"mine", *begun}


async def test_calls_of_other_subagents_are_foreign(s: Subject) -> None:
    session = await s.session()
    _, epoch = await s.running(session)
    inner = ToolStarted("inner", "Agent", "a", "think", parent_id="foreign")
    said: list[Event] = [STARTED, inner, MINE]
    frames = [
        EventFrame(epoch=epoch, n=n, turn_id="turn", event=one) for n, one in enumerate(said, 2)
    ]
    await s.journal.record(session, epoch, [*frames, end(epoch, 5, "turn")], {"turn": DONE})
    work = await s.journal.work("turn")
    assert (work.calls, work.beside) == (frozenset({"mine"}), False)


async def test_work_of_subagents_leaves_out_commands(s: Subject) -> None:
    session = await s.session()
    _, epoch = await s.running(session)
    shell = changed(SHELL, tool_call_id="shell")
    told = Text(f"own{WHY}", "Why.", note=True, calls=("mine",))
    frames: list[Numbered] = [
        *(
            EventFrame(epoch=epoch, n=n, turn_id="turn", event=e)
            for n, e in ((2, STARTED), (3, shell))
        ),
        end(epoch, 4, "turn"),
        TurnStarted(epoch=epoch, n=5, turn_id="own", background=True),
        EventFrame(epoch=epoch, n=6, turn_id=None, event=told),
        EventFrame(epoch=epoch, n=7, turn_id="own", event=Text("b", "Done.")),
        end(epoch, 8, "own"),
    ]
    stopped = Outcome(TurnState.DONE, "max_tokens", usage={"totalTokens": 3})
    await s.journal.record(session, epoch, frames, {"turn": DONE, "own": stopped})
    every = await s.journal.work("turn")
    assert every.calls == {"mine", "shell"}
    assert every.subagents == {"mine"}
    only = await s.journal.work("turn", SUBAGENTS)
    assert only.calls == {"mine"}
    assert (only.turns, only.own) == (("turn", "own"), (stopped,))


@pytest.mark.parametrize(
    ("call", "background", "over"),
    [(STARTED, True, True), (STARTED, False, False), (SHELL, False, True)],
    ids=["background", "foreground", "earlier version"],
)
async def test_background_call_ended_in_turn_is_just_over(
    s: Subject, call: ToolStarted, background: bool, over: bool
) -> None:
    session = await s.session()
    _, epoch = await s.running(session)
    of_turn: list[Event] = [call, changed(MINE, background=background)]
    frames = [
        EventFrame(epoch=epoch, n=n, turn_id="turn", event=one) for n, one in enumerate(of_turn, 2)
    ]
    await s.journal.record(session, epoch, [*frames, end(epoch, 4, "turn")], {"turn": DONE})
    work = await s.journal.work("turn")
    assert (work.beside, work.just_over) == (False, over)


async def test_session_of_conversation_may_be_deleted(s: Subject) -> None:
    assert await s.tasks.session_of("acp-one") is None
    session = await s.session()
    assert await s.tasks.session_of("acp-one") == session
    await s.journal.delete(session)
    assert await s.tasks.session_of("acp-one") == session


async def test_earlier_runs_are_known_until_forgotten(s: Subject) -> None:
    names = ("first", "beside", "second", "nowhere")
    for name in names:
        run = await claimed(s, replace(RUN, turn_id=name))
        session = None if name == "nowhere" else f"session-{name}"
        run = replace(run, session_id=session, aside=name != "beside")
        await s.tasks.place(run, name)
        await s.tasks.finish(run, RESULT)
    await claimed(s, replace(RUN, turn_id="other", task=changed(TASK, id="t2")))
    last = await claimed(s, replace(RUN, turn_id="last", started_at=RUN.started_at + 1))
    assert sorted(await s.tasks.left_aside(last)) == ["session-first", "session-second"]
    second = replace(RUN, turn_id="second")
    assert await s.tasks.left_aside(second) == ["session-first"]
    await s.tasks.forget_earlier(second)
    assert await s.tasks.left_aside(last) == ["session-second"]
    await s.tasks.forget_earlier(last)
    await s.tasks.forget_earlier(last)
    assert await s.tasks.left_aside(last) == []
    assert {one.turn_id for one in await s.tasks.unfinished()} == {"other", "last"}


async def test_run_with_which_person_goes_on_stays(s: Subject) -> None:
    run = await claimed(s, replace(RUN, turn_id="first"))
    await s.tasks.place(replace(run, session_id=await s.session("first"), aside=True), "first")
    await s.tasks.finish(run, RESULT)
    last = await claimed(s, replace(RUN, turn_id="last", started_at=RUN.started_at + 1))
    assert await s.tasks.left_aside(last) == ["first"]
    await s.ended("first", "prompted")
    assert await s.tasks.left_aside(last) == []
    await s.tasks.forget_earlier(last)
    await s.journal.delete("first")
    assert await s.tasks.outlived() == [("first", "first")]


@pytest.mark.parametrize("following", [PAST, None])
async def test_run_aside_used_while_task_runs_again(s: Subject, following: str | None) -> None:
    session = await s.session("aside")
    later = s.journal.clock.now() + 1
    assert await s.journal.unused(later) == [session]
    run = await claimed(s)
    await s.tasks.place(replace(run, session_id=session, aside=True), "run")
    assert await s.journal.unused(later) == []
    assert not await s.journal.prune(session, later)
    await s.tasks.finish(run, replace(RESULT, next_run=following))
    assert await s.journal.unused(later) == ([] if following else [session])
    await s.others.unschedule("t1")
    assert await s.journal.prune(session, later)


async def test_runs_that_nobody_needs_are_outlived(s: Subject) -> None:
    names = ("quiet", "emptied", "person", "nowhere", "unfinished")
    for name in names:
        run = await claimed(s, replace(RUN, turn_id=name, task=changed(TASK, id=name)))
        if name != "nowhere":
            session = await s.session(name)
            await s.tasks.place(replace(run, session_id=session, aside=True), name)
        if name != "unfinished":
            await s.tasks.finish(run, RESULT)
    await s.ended("person", "prompted")
    assert await s.tasks.outlived() == []
    assert await s.journal.prune("emptied", s.journal.clock.now() + 1)
    assert await s.tasks.outlived() == [("emptied", "emptied")]
    for name in names:
        await s.others.unschedule(name)
    quiet = ("quiet", "quiet")
    assert sorted(await s.tasks.outlived()) == [("emptied", "emptied"), ("nowhere", None), quiet]
    for name in ("emptied", "nowhere"):
        await s.tasks.forget(name)
    assert await s.tasks.outlived() == [quiet]
    await s.journal.delete("person")
    assert sorted(await s.tasks.outlived()) == [("person", "person"), quiet]


async def test_later_runs_are_not_forgotten(s: Subject) -> None:
    first = await claimed(s)
    await s.tasks.finish(first, RESULT)
    later = replace(RUN, turn_id="later", started_at=RUN.started_at - 1)  # by a clock set back
    await claimed(s, later)
    later = replace(later, session_id="session", aside=True)
    await s.tasks.place(later, "later")
    await s.tasks.finish(later, RESULT)
    assert await s.tasks.left_aside(first) == []
    await s.tasks.forget_earlier(first)
    newest = await claimed(s, replace(RUN, turn_id="newest", started_at=later.started_at - 1))
    assert await s.tasks.left_aside(newest) == ["session"]


async def test_only_unneeded_claude_sessions_are_aside(s: Subject) -> None:
    session = await s.session()
    assert await s.tasks.claude_sessions_aside(session) == set()
    assert await s.tasks.claude_sessions_aside("nothing") == set()
    gone = await aside(s)
    assert await s.tasks.claude_sessions_aside(gone) == {gone, "claude"}
    await s.journal.lose_context(session, Branch(gone), None, [])
    assert await s.tasks.claude_sessions_aside(gone) == {"claude"}
    await s.others.upsert(Conversation("wa-goes-on", "claude"))
    assert await s.tasks.claude_sessions_aside(gone) == set()


async def test_deleted_run_leaves_nothing_unless_others_know(s: Subject) -> None:
    await s.session("living")
    unknown, scheduled, awaited, moved = [
        await aside(s, name) for name in ("unknown", "scheduled", "awaited", "moved")
    ]
    await s.others.schedule(changed(TASK, target_conversation=f"acp-{scheduled}"))
    await s.others.enqueue(QueuedDelivery("d1", f"acp-{awaited}", "News."))
    await s.others.upsert(Conversation(f"acp-{moved}", "elsewhere"))
    for session in (unknown, scheduled, awaited, moved, "living", "nothing", unknown):
        await s.tasks.discard_aside(session)
    left = [
        await s.journal.name_taken(f"acp-{one}") for one in (unknown, scheduled, awaited, moved)
    ]
    assert left == [False, True, True, True]
    assert await s.journal.id_taken(unknown)
    assert await s.journal.find("living") is not None
    await s.journal.create(SessionRecord("new", f"acp-{unknown}", "/work"))
