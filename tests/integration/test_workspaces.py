"""Questions about trust: who answers them how, what the worker is launched with, and what is
remembered.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock
from uuid import uuid4

import msgspec
import pytest

from pykoclaw_acp.channel.steering import Steer
from pykoclaw_acp.model.events import (
    Plan,
    PlanEntry,
    Text,
    TextPart,
    ToolEnded,
    ToolStarted,
    UserMessage,
)
from pykoclaw_acp.model.trust import ANY, FIRST_USE
from pykoclaw_acp.model.turns import Turn, TurnState
from pykoclaw_acp.protocol.permissions import choices
from pykoclaw_acp.server.session_recovery import hand_over
from pykoclaw_acp.sessions import workspace_words
from pykoclaw_acp.store import events, permissions, trust
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.store.units import Statement
from pykoclaw_acp.trust.watch import Watch
from tests.integration.adopting import end_turn_tasks, recovered
from tests.integration.asking import LONG, SOON, Person, choice, write
from tests.integration.asking import rig as asking_rig
from tests.integration.callers import caller
from tests.integration.linked import there
from tests.integration.rig import Rig, take_up
from tests.integration.scheduling import task
from tests.integration.trusting import Working, act, looking, over, rig
from tests.integration.wires import Wire, client, prompt
from tests.waiting import eventually, within


@pytest.fixture
def work(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    act(path, "true")
    return path


WITHDRAWN = "Withdrawn: nobody has answered."
ORIGINS = pytest.mark.parametrize(
    "origin", [{"task_id": "t"}, {"detached": True}], ids=["task", "detached"]
)
HELPER = "\nSummarize this message in 2-3 words: hello"


async def trusted(r: Rig) -> list[str]:
    return [one.path for one in await trust.listing(r.database)]


@pytest.mark.parametrize(
    "outcome", [{"outcome": "cancelled"}, choice("allow_once"), choice("none"), RuntimeError("no")]
)
async def test_only_the_choice_to_trust_trusts(tmp_path: Path, work: Path, outcome: Any) -> None:
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        turn = await one.prompt()
        await one.person.answer(await one.asked(), outcome)
        assert (await over(turn)).state == "done"
        assert [each.restricted for each in one.options] == [True]
        assert await trusted(r) == []
        await eventually(lambda: f"trust add {work}" in one.said)
        assert "hook at Stop: true" not in one.said  # the question has it, once


@pytest.mark.parametrize(
    ("decision", "done"),
    [("allow_once", "runs without"), ("allow_always", "Trusted"), ("deny", "not sent")],
)
async def test_command_line_is_told_effect_of_its_answer(
    tmp_path: Path, work: Path, decision: str, done: str
) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        one = await Working.begin(r, work)
        turn = await one.prompt()
        await one.asked()
        (question,) = await cli.call("questions/list", whole=True)
        assert question["choices"][decision] in choices(one.person.asked[0]).values()
        assert (
            done
            in (await cli.call("questions/answer", question=question["id"], decision=decision))[
                "done"
            ]
        )
        await over(turn)


@pytest.mark.parametrize(("policy", "timeout"), [("wait", SOON), ("deny", LONG), ("allow", LONG)])
async def test_no_policy_trusts(tmp_path: Path, work: Path, policy: str, timeout: float) -> None:
    async with rig(tmp_path, policy, timeout) as r:
        one = await Working.begin(r, work)
        one.person.present = False
        assert (await over(await one.prompt())).state == "done"
        assert [each.restricted for each in one.options] == [True]
        assert await trusted(r) == []
        await eventually(lambda: "without the active content" in one.said)


def unattended(one: Working, **origin: Any) -> Turn:
    if "task_id" in origin:
        task(one.r.database.path, one.session.record.conversation_name, id=origin["task_id"])
    content = [{"type": "text", "text": "say 1"}]
    return Turn(str(uuid4()), one.session.id, content, unattended=True, **origin)


@ORIGINS
async def test_prompt_that_nobody_stands_behind_waits_for_nobody(
    tmp_path: Path, work: Path, origin: dict[str, Any]
) -> None:
    async with rig(tmp_path, "wait", LONG) as r:
        one = await Working.begin(r, work)
        one.person.present = False
        turn = await one.session.accept_unattended(unattended(one, **origin))
        assert (await over(turn)).state == "done"
        assert [each.restricted for each in one.options] == [True]
        assert await trusted(r) == []
        await eventually(lambda: "without the active content" in one.said)


async def test_clients_are_asked_about_a_task(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path, "wait", LONG) as r:
        one = await Working.begin(r, work)
        turn = await one.session.accept_unattended(unattended(one, task_id="t"))
        assert (await one.answer(turn, "allow_always")).state == "done"
        assert [each.restricted for each in one.options] == [False]


async def test_prompt_of_a_waiting_command_is_asked_about(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path, "wait", LONG) as r, caller(r, tmp_path) as cli:
        one = await Working.begin(r, work)
        one.person.present = False
        number = cli.begin("prompt", session=one.session.id, text="say 1")
        await eventually(lambda: one.session.permissions.pending_ids)
        assert not await within(lambda: not one.session.permissions.pending_ids, 0.5)
        (question,) = await cli.call("questions/list")
        await cli.call("questions/answer", question=question["id"], decision="allow_once")
        await eventually(lambda: number in cli.answers)


async def test_detached_prompt_of_a_command_waits_for_nobody(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path, "wait", LONG) as r, caller(r, tmp_path) as cli:
        one = await Working.begin(r, work)
        one.person.present = False
        await cli.call("prompt", session=one.session.id, text="say 1", detach=True)
        await eventually(lambda: "without the active content" in one.said)


@ORIGINS
async def test_prompt_of_before_waits_for_nobody(
    tmp_path: Path, work: Path, origin: dict[str, Any]
) -> None:
    """Its daemon ended while the request was open."""
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        await one.session.accept_unattended(unattended(one, **origin))
        await one.asked()
        await r.sessions.live.suspend()
    data = tmp_path / "data"
    async with asking_rig(data, "wait", LONG, **looking()) as again:
        await hand_over(await recovered(again, data), again.sessions, again.pool, again.database)
        await eventually(lambda: again.launcher.launched)
        assert again.launcher.launched[0].spec.options.restricted


async def test_policy_stands_behind_no_prompt_of_before(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        turn = await one.prompt()
        await one.asked()
        await r.sessions.live.suspend()
    data = tmp_path / "data"
    async with asking_rig(data, "allow", 0.05, **looking()) as again:
        await hand_over(await recovered(again, data), again.sessions, again.pool, again.database)
        session = await again.sessions.get(one.session.id)
        await eventually(lambda: not session.permissions.pending_ids)
        assert not await within(lambda: again.launcher.launched, 0.5)
        assert await again.states() == {turn.turn_id: "queued"}


async def test_what_is_trusted_is_remembered_until_it_changes(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        await one.answer(await one.prompt(), "allow_always")
        assert await trusted(r) == [str(work)]
        other = await Working.begin(r, work)
        await over(await other.prompt())
        assert other.person.asked == []
        assert not any(each.restricted for each in one.options + other.options)
        act(work, "curl")
        turn = await one.prompt()
        await one.person.answer(await one.asked(2), choice("allow_once"))
        await over(turn)
        assert [each.restricted for each in one.options] == [
            False,
            True,
        ]  # the worker of before is gone
        act(work, "true")  # as it was when it was trusted
        await over(await one.prompt())
        assert [each.restricted for each in one.options] == [False, True, False]
        await one.asked(2)


async def test_rules_and_tasks_outlast_another_answer_about_trust(
    tmp_path: Path, work: Path
) -> None:
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        await one.answer(await one.prompt(), "allow_always")
        row = (one.session.id, "Bash(make)", "", 1)
        await write(r, Statement("INSERT INTO acp_session_rules VALUES (?, ?, ?, ?)", row))
        tasks = (PlanEntry("Write it", "pending"),)
        await one.session.log.tell([Plan(tasks)])
        act(work, "curl")
        turn = await one.prompt()
        await one.person.answer(await one.asked(2), choice("allow_always"))
        await over(turn)
        first, second = one.options
        assert (first.rules, first.plan) == ((), ())
        assert (second.rules, second.plan) == (("Bash(make)",), tasks)


async def test_prompt_waits_if_the_turn_changed_workspace(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        await one.answer(await one.prompt(), "allow_always")
        host = await one.prompt("hang")
        worker = r.launcher.launched[-1]
        await eventually(lambda: host.taken_up)
        content = [{"type": "text", "text": "Look out."}]
        into, waits = (Turn(str(uuid4()), one.session.id, content, steers=True) for _ in range(2))
        (work / ".claude/notes").write_text("what does not act")
        await one.session.submit(into)
        await eventually(lambda: [each for each in worker.got if isinstance(each, Steer)])
        act(work, "curl")
        await one.session.submit(waits)
        assert len([each for each in worker.got if isinstance(each, Steer)]) == 1
        assert waits.state == TurnState.QUEUED
        take_up(worker, into, host)
        worker.say(worker.ended(host.turn_id), worker.ended(into.turn_id))
        await one.asked(2)  # before it is sent


async def test_question_says_what_changed_since_it_was_trusted(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        (work / "tool.sh").write_text("true")
        act(work, "./tool.sh")
        await one.answer(await one.prompt(), "allow_always")
        assert "Since it was trusted" not in shown(one)
        (work / "tool.sh").write_text("curl")
        (work / ".mcp.json").write_text(json.dumps({"mcpServers": {"x": {"command": "x"}}}))
        turn = await one.prompt()
        await one.asked(2)
        assert one.person.asked[1].title.startswith(f"Trust {work} again? ")
        changes = shown(one).partition("Since it was trusted:\n")[2].splitlines()
        assert changes[1:3] == ["changed: tool.sh", "new: .mcp.json"]
        await one.person.answer(one.person.ids[1], choice("allow_once"))
        await over(turn)
        (work / ".claude/settings.json").unlink()
        turn = await one.prompt()
        await one.asked(3)
        changes = shown(one).partition("Since it was trusted:\n")[2].splitlines()
        assert changes[1:4] == ["new: .mcp.json", "gone: .claude/settings.json", "gone: tool.sh"]
        await one.person.answer(one.person.ids[2], choice("reject_once"))
        await over(turn)


async def test_changes_since_an_upgrade_are_not_known(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r:
        await write(r, trust.add(str(work), "content of a version before", "Zed"))
        one = await Working.begin(r, work)
        turn = await one.prompt()
        await one.asked()
        assert "what has changed is not known" in shown(one)
        await one.person.answer(one.person.ids[0], choice("reject_once"))
        await over(turn)


async def test_question_of_version_without_digests_outlives_the_upgrade(
    tmp_path: Path, work: Path
) -> None:
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        turn = await one.prompt()
        ask_id = await one.asked()
        ((row,),) = await r.database.read("SELECT request FROM acp_permissions")
        question = json.loads(row)
        assert question["workspaces"][0].pop("files")
        await write(r, Statement("UPDATE acp_permissions SET request = ?", (json.dumps(question),)))
        await one.session.suspend()
    data = tmp_path / "data"
    data.chmod(0o700)
    async with asking_rig(data, **looking()) as r:
        found = await recovered(r, data)
        await hand_over(found, r.sessions, r.pool, r.database)
        again = Working(r, await r.sessions.get(one.session.id))
        assert await again.asked() == ask_id
        assert "hook at Stop: true" in shown(again)
        await again.person.answer(ask_id, choice("allow_always"))
        await eventually(lambda: not again.session.busy)
        assert [each.restricted for each in again.options] == [False]
        assert (await r.states())[turn.turn_id] == "done"
        await over(await again.prompt())
        act(work, "false")
        turn = await again.prompt()
        await again.asked(2)
        assert "changed: .claude/settings.json" in shown(again)
        await again.person.answer(again.person.ids[1], choice("reject_once"))
        await over(turn)


def shown(one: Working) -> str:
    """The last question, as its content is shown."""
    (part,) = one.person.asked[-1].content
    assert isinstance(part, TextPart)
    return part.text


async def test_trusted_and_run_without_are_told_apart(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:

        async def listed() -> list[tuple[str, bool, str]]:
            rows = await cli.call("trust/list", without=True)
            return [(row["path"], row["trusted"], row["by"]) for row in rows]

        one = await Working.begin(r, work)
        await one.answer(await one.prompt(), "allow_once")
        assert await listed() == [(str(work), False, one.person.name)]
        assert await cli.call("trust/list") == [], "to a command of a version before"
        looked = await cli.call("trust/show", path=str(work))
        assert (looked["trusted"], looked["without"]["by"]) == (False, one.person.name)
        assert [row["workspace"] for row in await cli.call("workers/list")] == ["without"]
        assert (await cli.call("sessions/show", session=one.session.id))["worker"][
            "workspace"
        ] == "without"
        assert (await ends(one))[-1].endswith(
            "Claude runs without the active content of the directory."
        )
        act(work, "curl")
        assert (await cli.call("trust/show", path=str(work)))["without"] is None, "not with this"
        turn = await one.prompt()
        await one.person.answer(await one.asked(2), choice("allow_always"))
        await over(turn)
        assert await listed() == [(str(work), True, one.person.name)]
        looked = await cli.call("trust/show", path=str(work))
        assert (looked["trusted"], looked["without"], looked["changes"]) == (True, None, [])
        assert "trusted" in [row["workspace"] for row in await cli.call("workers/list")]
        assert (await ends(one))[-1].endswith(
            "the present content of the directory takes effect until it changes."
        )
        act(work, "wget")
        looked = await cli.call("trust/show", path=str(work))
        assert looked["changes"] == ["changed: .claude/settings.json"]
        await cli.call("trust/remove", path=str(work))
        assert await listed() == []


async def ends(one: Working) -> list[str]:
    """What questions about trust show once they are settled, in the log."""
    told = [logged.event for logged in await events.read(one.r.database, one.session.id, 0, 1000)]
    return [
        event.content[-1].text
        for event in told
        if isinstance(event, ToolEnded)
        and event.content
        and isinstance(event.content[-1], TextPart)
    ]


async def test_command_clears_an_earlier_choice_to_run_without(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        one = await Working.begin(r, work)
        await one.answer(await one.prompt(), "allow_once")
        await cli.call("trust/add", path=str(work))
        rows = await cli.call("trust/list", without=True)
        assert [row["trusted"] for row in rows] == [True]
        act(work, "curl")
        looked = await cli.call("trust/show", path=str(work))
        assert looked["changes"] == ["changed: .claude/settings.json"]


async def test_a_worker_is_asked_about_once(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        await one.answer(await one.prompt(), "allow_once")
        await over(await one.prompt())
        await one.asked(1)
        assert len(one.options) == 1
        r.pool.kill(one.session.id)
        await eventually(lambda: not r.pool.is_live(one.session.id))
        turn = await one.prompt()
        await one.person.answer(await one.asked(2), choice("allow_once"))
        await over(turn)


async def test_who_refuses_sends_nothing(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        outcome = await one.answer(await one.prompt(), "reject_once")
        assert outcome.failure is not None
        assert outcome.failure.kind == "workspace_refused"
        assert one.options == []
        assert await trusted(r) == []


async def assert_failed(one: Working, end: str) -> None:
    """The first question ends after the user's words, live as in the history."""
    later = Person("later")
    one.session.subscribe(later, 0)
    await eventually(lambda: len(one.person.shown) == len(later.shown) == 5)
    for person in (one.person, later):
        message, _title, started, ended, _ = (logged.event for logged in person.shown)
        assert isinstance(message, UserMessage)
        assert isinstance(started, ToolStarted)
        assert isinstance(ended, ToolEnded)
        assert ended.tool_call_id == started.tool_call_id == one.person.asked[0].tool_call_id
        assert ended.status == "failed"
        assert ended.content[-1] == TextPart(end, beside=True)


async def test_refused_question_fails_live_and_in_history(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        await one.answer(await one.prompt(), "reject_once")
        await assert_failed(one, workspace_words.DONE["reject_once"])


async def test_question_of_a_cancelled_prompt_fails(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        turn = await one.prompt()
        await one.asked()
        one.session.cancel()
        await over(turn)
        await assert_failed(one, WITHDRAWN)


@pytest.mark.parametrize("resident", [True, False])
async def test_cancelled_prompts_question_fails_after_kill(
    tmp_path: Path, work: Path, resident: bool
) -> None:
    """With `resident` the next daemon asks again; else it ends the prompt, as one over stdio does."""
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        await one.prompt()
        await one.asked()
        await end_turn_tasks()
    data = tmp_path / "data"
    data.chmod(0o700)
    async with asking_rig(data, **looking()) as r:
        found = await recovered(r, data, resident=resident)
        again = Working(r, await r.sessions.get(one.session.id))
        again.person.asked += one.person.asked
        await hand_over(found, r.sessions, r.pool, r.database)
        again.session.cancel()
        await assert_failed(again, WITHDRAWN)


async def test_question_fails_that_a_change_has_replaced(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        turn = await one.prompt()
        await one.asked()
        await one.session.suspend()
    act(work, "curl")
    data = tmp_path / "data"
    data.chmod(0o700)
    async with asking_rig(data, **looking()) as r:
        found = await recovered(r, data)
        again = Working(r, await r.sessions.get(one.session.id))
        await hand_over(found, r.sessions, r.pool, r.database)
        for waiting in again.session.turns:
            again.session.unclaimed.claim_by_id(waiting.turn_id)
        await eventually(lambda: again.person.ids[-1:] not in ([], one.person.ids))
        await again.person.answer(again.person.ids[-1], choice("allow_once"))
        await eventually(lambda: not again.session.busy)
        assert (await r.states())[turn.turn_id] == "done"
        told = [logged.event for logged in await SessionLog(r, again).read()]
        ended = [each for each in told if isinstance(each, ToolEnded)]
        assert [(each.tool_call_id, each.status) for each in ended] == [
            (one.person.ids[0], "failed"),
            (again.person.ids[-1], "completed"),
        ]
        assert isinstance(told[0], UserMessage)


@pytest.mark.parametrize(("rules", "sent"), [(10, True), (4000, False)])
async def test_prohibitions_count_without_trust_or_nothing_is_sent(
    tmp_path: Path, work: Path, rules: int, sent: bool
) -> None:
    denied = [f"Read(./file-{number})" for number in range(rules)]
    local = {"permissions": {"deny": denied}}
    (work / ".claude/settings.local.json").write_text(json.dumps(local))
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        outcome = await one.answer(await one.prompt(), "allow_once")
        assert [options.restrictions for options in one.options] == (
            [{"deny": tuple(denied)}] if sent else []
        )
        assert (outcome.state == "done") == sent
        if outcome.failure is not None:
            assert "forbid more than can be kept without trust" in outcome.failure.message


async def test_a_cancel_withdraws_the_question(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        turn = await one.prompt()
        ask_id = await one.asked()
        one.session.cancel()
        assert (await over(turn)).state == "cancelled"
        await eventually(lambda: one.person.withdrawn == [ask_id])
        assert one.options == []
        assert await r.sessions.requests.list_pending() == []


async def test_question_closes_if_cancelled_while_being_written(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        insert = SessionJournal.insert_request

        async def cancelling(self: SessionJournal, *given: Any) -> None:
            one.session.cancel()
            await insert(self, *given)

        monkeypatch.setattr(SessionJournal, "insert_request", cancelling)
        turn = await one.prompt()
        assert (await over(turn)).state == "cancelled"

        closed = "SELECT 1 FROM acp_permissions WHERE outcome = 'interrupted'"
        await there(r, closed)
        assert one.session.permissions.trust_request(turn.turn_id) is None


async def test_in_a_clients_helper_session_nobody_is_asked(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        turn = await one.prompt(HELPER)
        await eventually(lambda: [each.restricted for each in one.options] == [True])
        assert one.person.asked == []
        one.session.cancel()
        await over(turn)


async def test_users_helper_prompt_of_before_asks_nobody(tmp_path: Path, work: Path) -> None:
    """One that an earlier daemon had accepted, by the user's own setting."""
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        turn = Turn(str(uuid4()), one.session.id, [{"type": "text", "text": "say 1"}])
        await r.journal.accept(turn)
    data = tmp_path / "data"
    data.chmod(0o700)
    async with asking_rig(data, **looking()) as r:
        known = r.sessions.catalogue
        known.settings = replace(known.settings, helper_prompts=("say 1",))
        found = await recovered(r, data)
        await hand_over(found, r.sessions, r.pool, r.database)
        again = Working(r, await r.sessions.get(one.session.id))
        again.session.unclaimed.claim_by_id(turn.turn_id)
        await eventually(lambda: not again.session.busy)
        assert [each.restricted for each in again.options] == [True]
        assert again.person.asked == []
        assert (await r.states())[turn.turn_id] == "done"


async def test_change_while_question_waits_is_asked_about(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        turn = await one.prompt()
        first = await one.asked()
        act(work, "curl")
        await one.person.answer(first, choice("allow_always"))
        await one.asked(2)
        assert one.options == []
        assert "curl" in one.person.asked[1].title + str(one.person.asked[1].content)
        await one.person.answer(one.person.ids[1], choice("allow_always"))
        await over(turn)
        assert [each.restricted for each in one.options] == [False]


async def test_constant_harmless_changes_refuse_no_prompt(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Watch, "unchanged", AsyncMock(return_value=False))
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        assert (await one.answer(await one.prompt(), "allow_once")).state == "done"
        assert [each.restricted for each in one.options] == [True]
        assert len(one.person.asked) == 1


@pytest.mark.parametrize("tree", [False, True])
async def test_command_that_trusts_answers_open_question(
    tmp_path: Path, work: Path, tree: bool
) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        one = await Working.begin(r, work)
        other = Person("other")
        one.session.subscribe(other, 0)
        turn = await one.prompt()
        ask_id = await one.asked()
        await eventually(lambda: ask_id in other.ids)
        await cli.call("trust/add", path=str(work), tree=tree)
        assert (await over(turn)).state == "done"
        assert (one.person.withdrawn, other.withdrawn) == ([ask_id], [ask_id])
        assert [each.restricted for each in one.options] == [False]
        told = [logged.event for logged in await SessionLog(r, one).read()]
        (ended,) = (each for each in told if isinstance(each, ToolEnded))
        assert ended.content[-1] == TextPart(workspace_words.DONE["allow_always"], beside=True)
        await there(r, "SELECT 1 FROM acp_permissions WHERE answered_by = 'cli'")


async def test_follower_is_told_who_answered(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        one = await Working.begin(r, work)
        cli.begin("follow", session=one.session.id, live=True, present=True)
        turn = await one.prompt()
        await eventually(lambda: cli.told("question"))
        await one.answer(turn, "reject_once")
        turn = await one.prompt()
        await one.asked(2)
        await eventually(lambda: len(cli.told("question")) == 2)
        one.session.cancel()
        await over(turn)
        await eventually(lambda: len(cli.told("settled")) == 2)
        assert cli.told("settled") == [
            {"id": one.person.ids[0], "outcome": "selected", "decision": "deny", "by": "editor"},
            {"id": one.person.ids[1], "outcome": None, "decision": None, "by": None},
        ]


async def asked_over_acp(wire: Wire, work: Path) -> str:
    """A session whose prompt waits for an answer about trust; its id."""
    opened = await wire.call("session/new", cwd=str(work), mcpServers=[])
    session = str(opened["result"]["sessionId"])
    wire.begin("session/prompt", **prompt(session, "say 1"))
    await eventually(lambda: len(stream(wire)) > 1)
    return session


def stream(wire: Wire) -> list[tuple[str, str | None]]:
    """What a client is told of the question about trust, in order: kinds and statuses."""
    found: list[tuple[str, str | None]] = []
    for line in wire.lines:
        params = line.get("params", {})
        call = params.get("toolCall") or params.get("update", {})
        if line.get("method") == "session/request_permission":
            found.append(("request", call["status"]))
        elif call.get("sessionUpdate", "").startswith("tool_call"):
            found.append((call["sessionUpdate"], call["status"]))
    return found


BEFORE_ANSWER = [("tool_call", "pending"), ("request", "pending")]


async def test_call_of_question_precedes_its_request(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r, client(r, "editor") as wire:
        await asked_over_acp(wire, work)
        assert stream(wire) == BEFORE_ANSWER
        (asked,) = (one for one in wire.lines if one.get("method") == "session/request_permission")
        wire.send({"id": asked["id"], "result": {"outcome": choice("allow_once")}})
        updates = [("tool_call_update", "in_progress"), ("tool_call_update", "completed")]
        await eventually(lambda: stream(wire) == [*BEFORE_ANSWER, *updates])
        await eventually(lambda: "without the active content" in wire.text())
        assert "hook at Stop" not in wire.text()


async def test_load_during_question_announces_it_again(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r, client(r, "editor") as wire:
        session = await asked_over_acp(wire, work)
        loaded = await wire.call("session/load", sessionId=session, cwd=str(work), mcpServers=[])
        assert "result" in loaded
        await eventually(lambda: stream(wire) == BEFORE_ANSWER * 2)


async def test_client_with_titles_alone_is_told_findings(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r, client(r, "mitto") as wire:
        await asked_over_acp(wire, work)
        assert wire.text().count("hook at Stop: true") == 1


async def test_tree_answers_question_that_cannot_trust(tmp_path: Path, work: Path) -> None:
    (work / ".claude/commands").mkdir()
    for number in range(300):  # more than a question shows
        (work / f".claude/commands/{number}.md").write_text("!`true`")
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        one = await Working.begin(r, work)
        turn = await one.prompt()
        await one.asked()
        assert one.person.asked[0].always is None
        await cli.call("trust/add", path=str(work), tree=True)
        assert (await over(turn)).state == "done"
        assert [each.restricted for each in one.options] == [False]
        assert [each["trusted"] for each in await cli.call("trust/list", without=True)] == [True]


async def test_trust_of_other_content_answers_nothing(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        await cli.call("trust/add", path=str(work))
        act(work, "curl")
        one = await Working.begin(r, work)
        turn = await one.prompt()
        await one.asked()
        act(work, "true")  # not what is shown
        await cli.call("trust/add", path=str(work))
        await cli.call("trust/remove", path=str(work))
        assert not await within(lambda: one.person.withdrawn or turn.ended.done(), 0.3)
        assert (await one.answer(turn, "reject_once")).state == "failed"


async def test_answer_in_one_session_settles_others(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r:
        one, other = await Working.begin(r, work), await Working.begin(r, work)
        turn, waits = await one.prompt(), await other.prompt()
        await other.asked()
        await one.answer(turn, "allow_always")
        assert (await over(waits)).state == "done"
        assert [each.restricted for each in other.options] == [False]


async def test_trust_given_while_question_is_written(
    tmp_path: Path, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        one = await Working.begin(r, work)
        insert = SessionJournal.insert_request

        async def trusting(self: SessionJournal, *given: Any) -> None:
            await cli.call("trust/add", path=str(work))
            await insert(self, *given)

        monkeypatch.setattr(SessionJournal, "insert_request", trusting)
        assert (await over(await one.prompt())).state == "done"
        assert [each.restricted for each in one.options] == [False]


async def test_park_waits_without_limit_until_approved(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path, "park") as r:
        one = await Working.begin(r, work)
        one.person.present = False
        turn = await one.prompt()

        async def waiting() -> Any:
            return await r.sessions.requests.list_pending()

        found: Any = await eventually(waiting)
        (question,) = found
        assert question.request.title.startswith(f"Trust {work}?")
        await until_policy(r, question.request.ask_id, "park")
        await r.sessions.requests.decide(question.request.ask_id, "allow_always", "cli")
        await over(turn)
        assert [(one.path, one.by) for one in await trust.listing(r.database)] == [
            (str(work), "cli")
        ]
        assert [each.restricted for each in one.options] == [False]


async def test_park_waits_with_client_before_which_nobody_is(tmp_path: Path, work: Path) -> None:
    """As Mitto says it within milliseconds while none of its windows shows the session."""
    async with rig(tmp_path, "park") as r:
        one = await Working.begin(r, work)
        one.person.cancels_when_absent = True
        turn = await one.prompt()
        question = await one.asked()
        await one.person.answer(question, {"outcome": "cancelled"})
        await until_policy(r, question, "park")
        assert one.options == []
        one.session.subscriptions[0].noticed.set()
        await one.person.answer(question, choice("allow_once"))
        assert (await over(turn)).state == "done"
        assert [each.restricted for each in one.options] == [True]


async def until_policy(r: Rig, ask_id: str, policy: str) -> None:
    async def look() -> Any:
        rows = await r.database.read(
            "SELECT policy FROM acp_permissions WHERE permission_id = ?", (ask_id,)
        )
        return rows == [(policy,)]

    await eventually(look)


async def test_trust_by_command_covers_additional_directory_too(tmp_path: Path, work: Path) -> None:
    more = tmp_path / "more"
    (more / ".claude").mkdir(parents=True)
    (more / ".claude/settings.json").write_text(json.dumps({"enabledPlugins": {"a@b": True}}))
    (more / ".mcp.json").write_text(json.dumps({"mcpServers": {"x": {"command": "x"}}}))
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        for path in (work, more):
            assert (await cli.call("trust/add", path=str(path)))["trusted"]
        assert [one["path"] for one in await cli.call("trust/list")] == [str(more), str(work)]
        one = Working(r, await r.sessions.create(str(work), (str(more),), ()))
        assert (await over(await one.prompt())).state == "done"
        assert (one.person.asked, [each.restricted for each in one.options]) == ([], [False])
        (more / ".claude/settings.json").write_text(json.dumps({"enabledPlugins": {"c@d": True}}))
        turn = await one.prompt()
        await one.asked()
        assert (await one.answer(turn, "allow_once")).state == "done"


async def test_a_tree_is_trusted_whatever_it_holds(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r:
        await write(r, trust.add(str(tmp_path), ANY, "cli"))
        one = await Working.begin(r, work)
        await over(await one.prompt())
        act(work, "curl")
        await over(await one.prompt())
        assert one.person.asked == []
        assert [each.restricted for each in one.options] == [False]
        for statement in trust.remove(str(tmp_path)):
            await write(r, statement)
        turn = await one.prompt()
        await one.person.answer(await one.asked(), choice("allow_once"))
        await over(turn)
        assert [each.restricted for each in one.options] == [False, True]


async def test_name_with_trusted_tree_as_prefix_is_untrusted(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r:
        await write(r, trust.add(str(work)[:-1], ANY, "cli"))
        one = await Working.begin(r, work)
        await one.answer(await one.prompt(), "allow_once")
        assert [each.restricted for each in one.options] == [True]


async def test_old_conversation_directories_trusted_as_found_on_use(
    tmp_path: Path, work: Path
) -> None:
    async with rig(tmp_path) as r:
        await write(r, trust.add(str(work), FIRST_USE, "upgrade"))
        one = await Working.begin(r, work)
        await over(await one.prompt())
        assert one.person.asked == []
        assert [each.restricted for each in one.options] == [False]
        act(work, "curl")
        await one.answer(await one.prompt(), "allow_once")
        assert [each.restricted for each in one.options] == [False, True]


async def test_old_conversation_does_not_trust_directory_beside_it(
    tmp_path: Path, work: Path
) -> None:
    """An old project is opened with a fresh clone as its additional directory."""
    clone = tmp_path / "clone"
    (clone / ".claude").mkdir(parents=True)
    (clone / ".claude/settings.json").write_text(json.dumps({"enabledPlugins": {"a@b": True}}))
    link = tmp_path / "link"
    link.symlink_to(work)
    async with rig(tmp_path) as r:
        await write(r, trust.add(str(link), FIRST_USE, "upgrade"))
        one = Working(r, await r.sessions.create(str(link), (str(clone),), ()))
        turn = await one.prompt()
        await one.asked()
        (request,) = one.person.asked
        assert [place.path for place in request.workspaces] == [str(clone)]
        await one.answer(turn, "allow_once")
        assert [each.restricted for each in one.options] == [True]


async def test_old_directory_is_not_trusted_as_additional_one(tmp_path: Path, work: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (work / ".claude/settings.json").write_text(json.dumps({"enabledPlugins": {"a@b": True}}))
    async with rig(tmp_path) as r:
        await write(r, trust.add(str(work), FIRST_USE, "upgrade"))
        one = Working(r, await r.sessions.create(str(other), (str(work),), ()))
        turn = await one.prompt()
        await one.asked()
        await one.answer(turn, "allow_once")
        assert [each.restricted for each in one.options] == [True]
        (row,) = await r.journal.trusted([str(work)])
        assert row.content == FIRST_USE


async def test_settings_left_out_are_shown_on_request(tmp_path: Path, work: Path) -> None:
    given = looking()
    given["options"] = msgspec.structs.replace(given["options"], setting_sources=())
    async with asking_rig(tmp_path, "wait", **given) as r, caller(r, tmp_path) as cli:
        assert (await cli.call("trust/show", path=str(work)))["found"] == []
        looked = await cli.call("trust/show", path=str(work), allSources=True)
        assert (bool(looked["found"]), looked["trusted"]) == (True, False)


async def test_empty_old_conversation_directory_gets_no_advance_trust(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    async with rig(tmp_path) as r:
        await write(r, trust.add(str(empty), FIRST_USE, "upgrade"))
        one = await Working.begin(r, empty)
        await over(await one.prompt())
        act(empty, "curl")
        await one.answer(await one.prompt(), "allow_once")
        assert [each.restricted for each in one.options] == [False, True]


@pytest.mark.parametrize("below", ["", "project"], ids=["itself", "above it"])
async def test_link_that_leads_elsewhere_now_is_asked_about(tmp_path: Path, below: str) -> None:
    """Both workers start where was looked, and not where the link leads by then."""
    good, bad, link = tmp_path / "good", tmp_path / "bad", tmp_path / "link"
    for place in (good / below, bad / below):
        place.mkdir(parents=True)
    act(bad / below, "true")
    link.symlink_to(good)
    async with rig(tmp_path) as r:
        w = await Working.begin(r, link / below)
        assert (await over(await w.prompt())).state == "done"
        assert w.person.ids == []
        link.unlink()
        link.symlink_to(bad)
        turn = await w.prompt()
        await w.asked()
        assert (await w.answer(turn, "allow_always")).state == "done"
        assert [one.cwd for one in w.options] == [str(good / below), str(bad / below)]


async def test_empty_directory_is_not_asked_about(tmp_path: Path, work: Path) -> None:
    (work / ".claude/settings.json").unlink()
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        await over(await one.prompt())
        assert one.person.asked == []
        assert [each.workspace for each in one.options] == [""]


async def test_log_has_question_and_omissions_after_user_words(tmp_path: Path, work: Path) -> None:
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        await one.answer(await one.prompt(), "allow_once")
        events = [logged.event for logged in await SessionLog(r, one).read()]
        kinds = [type(event) for event in events]
        assert kinds[:4] == [UserMessage, ToolStarted, ToolEnded, Text]


class SessionLog:
    def __init__(self, r: Rig, one: Working) -> None:
        self.r, self.one = r, one

    async def read(self) -> Any:
        return await SessionJournal(self.r.database).read(self.one.session.id, 0, 100)


async def test_question_survives_daemon_restart_while_prompt_waits(
    tmp_path: Path, work: Path
) -> None:
    async with rig(tmp_path) as r:
        one = await Working.begin(r, work)
        turn = await one.prompt()
        ask_id = await one.asked()
        await write(r, permissions.interrupt_all())
        await write(r, permissions.interrupt_all([one.session.id]))
        assert [
            question.request.ask_id for question in await r.sessions.requests.list_pending()
        ] == [ask_id]
        await one.answer(turn, "allow_once")
        attempts = await r.database.read(
            "SELECT attempts FROM acp_turns WHERE turn_id = ?", (turn.turn_id,)
        )
        assert attempts == [(1,)]
