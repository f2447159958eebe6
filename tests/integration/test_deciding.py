"""Claude's plans and questions: asked of clients and operators, answered, parked, restored; on
workers in memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.model.events import TextPart
from pykoclaw_acp.model.permissions import PermissionRequest
from pykoclaw_acp.sessions.permissions import decisions, interview
from pykoclaw_acp.sessions.rewinding import Rewinding
from pykoclaw_acp.store import permissions
from pykoclaw_acp.store.journal.branches import SqlBranchStore
from pykoclaw_acp.translation import titles
from pykoclaw_acp.worker import whole
from tests.integration.asking import (
    BOTH,
    COLOURS,
    LONG,
    SIZE,
    SOON,
    Asking,
    Person,
    begin,
    choice,
    park,
    restarted,
    rig,
)
from tests.integration.rig import Rig
from tests.integration.rig import rig as plain_rig
from tests.integration.wires import Wire, hanging, listen
from tests.waiting import eventually

GIVEN = {"answers": {"Which colours?": "Red, Blue", "Which size?": "my own"}}


async def told(asking: Asking) -> tuple[str, Any, str]:
    """What the worker was told: decision, content and words."""
    (answer,) = await eventually(lambda: asking.answers)
    return answer.decision, answer.content, answer.message


# --- questions


async def test_answers_reach_worker_and_row(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        person = Person()
        asking = await begin(r, person)
        asking.ask("q1", questions=BOTH)
        await person.answer("q1", {"action": "accept", "content": GIVEN})
        assert await asking.settled("q1") == ("accept", None, "editor")
        assert await told(asking) == ("accept", GIVEN, "")
        rows = await permissions.settled(r.database, ["q1"])
        assert decisions.stored_to_worker(7, rows[0]).content == GIVEN


@pytest.mark.parametrize(
    ("policy", "timeout", "words"),
    [("wait", SOON, "assumed"), ("deny", LONG, "assumed"), ("allow", LONG, "assumed")],
)
async def test_no_policy_answers_for_the_user(
    tmp_path: Path, policy: str, timeout: float, words: str
) -> None:
    async with rig(tmp_path, policy, timeout) as r:
        asking = await begin(r)
        asking.ask("q1", questions=BOTH)
        decision, content, said = await told(asking)
        assert decision in ("decline", "cancel")
        assert content is None
        assert words in said


async def test_operator_answers_each_question_or_none(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        asking = await begin(r, Person())
        asking.ask("q1", questions=BOTH)
        await asking.asked("q1")
        decide = r.sessions.requests.decide
        for answers in ((), ("Red",), ("Red", "Small", "more"), ("", " ")):
            with pytest.raises(InvalidParams, match="2 question"):
                await decide("q1", "allow_once", "cli", "", answers)
        await decide("q1", "allow_once", "cli", "", ("Red, Blue", " my own "))
        assert await told(asking) == ("accept", GIVEN, "")


async def test_denied_questions_come_with_the_reason(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        asking = await begin(r, Person())
        asking.ask("q1", questions=BOTH)
        asking.ask("q2")
        await asking.asked("q2")
        with pytest.raises(InvalidParams, match="nothing to answer"):
            await r.sessions.requests.decide("q2", "allow_once", "cli", "", ("Red",))
        await r.sessions.requests.decide("q2", "deny", "cli", "Use make check.")
        assert "Use make check." in (await told(asking))[2]
        rows = await permissions.settled(r.database, ["q2"])
        assert "Use make check." in decisions.stored_to_worker(1, rows[0]).message
        asking.answers.clear()
        await r.sessions.requests.decide("q1", "deny", "cli", "No time.")
        decision, _, words = await told(asking)
        assert decision == "decline"
        assert "No time." in words


async def test_parked_questions_begin_a_turn_with_their_answers(tmp_path: Path) -> None:
    async with rig(tmp_path, "park") as r:
        asking = await park(r, questions=BOTH)
        await r.sessions.requests.decide("q1", "allow_once", "cli", "", ("Red, Blue", "my own"))
        await eventually(lambda: len(r.launcher.launched) == 2 and r.launcher.launched[1].acked)
        prompt = r.launcher.launched[1].prompts[-1]
        assert "You asked: Which colours?\nThe user's answer: Red, Blue" in prompt
        assert "You asked: Which size?\nThe user's answer: my own" in prompt
        person = Person()
        asking.session.subscribe(person, 0)
        (turn,) = asking.session.turns
        Asking(r, asking.session, turn, r.launcher.launched[1]).ask("q2", questions=BOTH)
        await eventually(lambda: person.ids == ["q2"])  # asked anew: nothing is answered for him


async def test_restored_questions_are_asked_again(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        asking = await begin(r, Person())
        question = asking.ask("q1", questions=BOTH)
        await asking.asked("q1")
        session = await restarted(r, asking)
        person = Person("later")
        session.subscribe(person, 0)
        await person.answer("q1", {"action": "accept", "content": GIVEN})
        assert person.asked == [question]
        assert await told(asking) == ("accept", GIVEN, "")


# --- plans


@pytest.mark.parametrize(
    ("answer", "decision", "words"),
    [
        (choice("allow_once"), "allow_once", ""),
        (choice("allow_always"), "allow_always", ""),
        (choice("allow_former"), "allow_former", ""),
        ({**choice("reject_once"), "reason": "Shorter."}, "reject", "should change:\nShorter."),
        (choice("reject_once"), "reject", "Ask what should change"),
        ({"outcome": "cancelled"}, "reject", "The plan is not approved"),
    ],
)
async def test_decision_on_a_plan_reaches_claude(
    tmp_path: Path, answer: Any, decision: str, words: str
) -> None:
    async with rig(tmp_path) as r:
        person = Person()
        asking = await begin(r, person)
        asking.ask("q1", plan=True, always="edits", former="dontAsk")
        await person.answer("q1", answer)
        found = await told(asking)
        assert found[0] == decision
        assert words in found[2]


async def test_former_mode_needs_to_be_offered(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        person = Person()
        asking = await begin(r, person)
        asking.ask("q1", plan=True, always="edits")
        await person.answer("q1", choice("allow_former"))
        assert (await told(asking))[0] == "reject"


async def test_next_worker_gets_mode_before_plan(tmp_path: Path) -> None:
    async with plain_rig(tmp_path) as r:
        session = await r.session()
        for mode in ("dontAsk", "plan"):
            await session.choosing.choose("modeId", mode=mode)
        await r.run(session, "say 1")
        assert r.launcher.launched[-1].spec.options.before_plan == "dontAsk"


async def test_away_policy_approves_plan_asking_about_edits(tmp_path: Path) -> None:
    async with rig(tmp_path, "allow") as r:
        asking = await begin(r)
        asking.ask("q1", plan=True, always="edits")
        assert (await told(asking))[0] == "allow_once"


async def test_parked_plan_begins_a_turn_with_its_approval(tmp_path: Path) -> None:
    async with rig(tmp_path, "park") as r:
        await park(r, plan=True, always="edits")
        await r.sessions.requests.decide("q1", "allow_always", "cli")
        await eventually(lambda: len(r.launcher.launched) == 2 and r.launcher.launched[1].prompts)
        prompt = r.launcher.launched[1].prompts[-1]
        assert "approved; edits are accepted unasked" in prompt


# --- rules that last


async def test_rule_lasts_in_the_directory_of_its_session(tmp_path: Path) -> None:
    async with rig(tmp_path, "park") as r:
        person = Person()
        asking = await begin(r, person)
        asking.ask("q1", always="`make`", rules=("Bash(make)",))
        asking.ask("q2", always="`make`")
        await person.answer("q1", choice("allow_lasting"))
        assert (await told(asking))[0] == "allow_always"
        assert await r.journal.rules("/", "") == ("Bash(make)",)
        asking.answers.clear()
        await person.answer("q2", choice("allow_lasting"))  # which was not offered
        assert (await told(asking))[0] == "reject"


async def test_next_worker_of_the_directory_has_the_rule(tmp_path: Path) -> None:
    async with rig(tmp_path, "park") as r:
        await park(r, always="`make`", rules=("Bash(make)",))
        await r.sessions.requests.decide("q1", "allow_lasting", "cli")
        await eventually(lambda: len(r.launcher.launched) == 2 and r.launcher.launched[1].prompts)
        assert r.launcher.launched[0].spec.options.rules == ()
        assert r.launcher.launched[1].spec.options.rules == ("Bash(make)",)


async def test_session_rule_holds_for_its_workers_alone(tmp_path: Path) -> None:
    """Also for those after a rewind."""
    async with rig(tmp_path, "park") as r:
        person = Person()
        asking = await begin(r, person)
        asking.ask("q1", always="`make`", rules=("Bash(make)",))
        asking.ask("q2", always="`make --token x`")
        await person.answer("q1", choice("allow_always"))
        await person.answer("q2", choice("allow_always"))
        await eventually(lambda: len(asking.answers) == 2)
        session = asking.session
        asking.channel.say(asking.channel.ended(asking.turn.turn_id))
        await session.idle()
        r.pool.retire(session.id)
        await r.run(session, "say 1")
        assert r.launcher.launched[-1].spec.options.rules == ("Bash(make)",)
        rewinding = Rewinding(SqlBranchStore(r.database), r.pool)
        await rewinding.rewind(session, None, files=False, dry=False)
        await r.run(session, "say 1")
        assert r.launcher.launched[-1].spec.options.rules == ("Bash(make)",)
        await r.run(await r.session(), "say 1")
        assert not r.launcher.launched[-1].spec.options.rules


# --- over ACP


async def asked_over_acp(
    r: Rig, capabilities: Any = None, name: str | None = "an editor", **request: Any
) -> tuple[Wire, Any]:
    """A client that was asked; the answers that its worker gets."""
    wire = Wire(r)
    info = {} if name is None else {"clientInfo": {"name": name, "version": "1"}}
    await wire.call("initialize", protocolVersion=1, clientCapabilities=capabilities or {}, **info)
    _, _, channel, turn = await hanging(r, wire)
    answers = listen(channel)
    channel.last += 1
    channel.say(
        PermissionRequest(
            epoch=1, n=channel.last, ask_id="q1", turn_id=turn, tool_call_id="c1", tool_kind="other",
            **{"title": "A call", **request},
        )
    )  # fmt: skip
    return wire, answers


async def end(r: Rig, wire: Wire) -> None:
    await r.sessions.live.cancel_all()
    await wire.close()


def requests(wire: Wire, method: str = "session/request_permission") -> list[dict[str, Any]]:
    return [line for line in wire.lines if line.get("method") == method]


FORMS: dict[str, Any] = {"elicitation": {"form": {}}}


async def test_client_with_forms_gets_all_questions_together(tmp_path: Path) -> None:
    async with plain_rig(tmp_path) as r:
        wire, answers = await asked_over_acp(r, FORMS, questions=BOTH)
        (form,) = await eventually(lambda: requests(wire, "elicitation/create"))
        assert form["id"] == "q1"
        assert form["params"]["toolCallId"] == "c1"
        fields = form["params"]["requestedSchema"]["properties"]
        assert list(fields) == [
            "question_0", "question_0_custom", "question_1", "question_1_custom",
        ]  # fmt: skip
        assert fields["question_0"]["items"]["anyOf"][0] == {
            "const": "Red", "title": "Red", "description": "As a rose",
        }  # fmt: skip
        assert fields["question_1"]["description"] == "Which size?"
        own = [fields[f"question_{at}_custom"]["title"] for at in (0, 1)]
        assert [title.partition(": ")[2] for title in own] == [
            "in your own words", "in your own words, in place of a choice",
        ]  # fmt: skip
        content = {
            "question_0": ["Red", "Blue"],
            "question_1": "Large",
            "question_1_custom": "my own",
        }
        wire.send({"id": "q1", "result": {"action": "accept", "content": content}})
        (answer,) = await eventually(lambda: answers)
        assert (answer.decision, answer.content) == ("accept", GIVEN)
        await end(r, wire)


async def test_client_without_forms_gets_choices_one_by_one(tmp_path: Path) -> None:
    async with plain_rig(tmp_path) as r:
        wire, answers = await asked_over_acp(r, questions=(COLOURS, SIZE, COLOURS))
        for number, option in enumerate(("choice_1", "choice_0", "choice_1", "choice_0", "done")):
            await eventually(lambda: len(requests(wire)) == number + 1)  # noqa: B023
            asked = requests(wire)[-1]
            wire.send({"id": asked["id"], "result": {"outcome": choice(option)}})
        names = [[one["name"] for one in asked["params"]["options"]] for asked in requests(wire)]
        assert names[0] == ["Red", "Blue", "Answer in the chat"]
        assert names[1] == ["Red", "That is all: Blue", "Answer in the chat"]
        assert names[4] == ["Blue", "That is all: Red", "Answer in the chat"]
        (answer,) = await eventually(lambda: answers)
        assert answer.content == {"answers": {"Which colours?": "Red", "Which size?": "Large"}}
        await end(r, wire)


@pytest.mark.parametrize(
    ("outcome", "decision", "words"),
    [
        (choice("in_chat"), "decline", "as text, and end your turn"),
        ({"outcome": "cancelled"}, "cancel", "did not answer"),
        (choice("done"), "cancel", "did not answer"),
        (choice("choice_9"), "cancel", "did not answer"),
    ],
)
async def test_what_chooses_nothing_answers_nothing(
    tmp_path: Path, outcome: Any, decision: str, words: str
) -> None:
    async with plain_rig(tmp_path) as r:
        wire, answers = await asked_over_acp(r, questions=BOTH)
        (asked,) = await eventually(lambda: requests(wire))
        wire.send({"id": asked["id"], "result": {"outcome": outcome}})
        (answer,) = await eventually(lambda: answers)
        assert (answer.decision, answer.content) == (decision, None)
        assert words in answer.message
        await end(r, wire)


@pytest.mark.parametrize(("name", "together"), [("zed", True), ("an editor", False)])
async def test_requests_come_together_where_the_client_shows_several(
    tmp_path: Path, name: str, together: bool
) -> None:
    async with rig(tmp_path) as r:
        wire, answers = await asked_over_acp(r, name=name)
        await eventually(lambda: requests(wire))
        channel = r.launcher.launched[-1]
        channel.last += 1
        channel.say(
            PermissionRequest(
                epoch=1, n=channel.last, ask_id="q2", turn_id=next(iter(await r.states())),
                tool_call_id="c2", title="Another", tool_kind="other",
            )
        )  # fmt: skip
        (session,) = r.sessions.live.values()
        await eventually(lambda: len(session.permissions.pending_ids) == 2)
        if together:
            await eventually(lambda: len(requests(wire)) == 2)
        else:
            await wire.call("session/list")
            assert len(requests(wire)) == 1
        for number in (1, 2):
            asked = (await eventually(lambda: requests(wire)[number - 1 :]))[0]  # noqa: B023
            wire.send({"id": asked["id"], "result": {"outcome": choice("allow_once")}})
        await eventually(lambda: len(answers) == 2)
        await end(r, wire)


async def test_client_that_approves_by_itself_answers_no_question(tmp_path: Path) -> None:
    """Mitto takes the first option that allows, and its user sees titles alone."""
    async with plain_rig(tmp_path) as r:
        wire, answers = await asked_over_acp(r, name="mitto", questions=(SIZE,))
        (asked,) = await eventually(lambda: requests(wire))
        first = next(one for one in asked["params"]["options"] if one["kind"].startswith("allow_"))
        wire.send({"id": asked["id"], "result": {"outcome": choice(first["optionId"])}})
        (answer,) = await eventually(lambda: answers)
        assert (answer.decision, answer.content) == ("decline", None)
        assert "2. Large" in wire.text()
        await end(r, wire)


async def test_client_with_forms_is_asked_what_should_change(tmp_path: Path) -> None:
    async with plain_rig(tmp_path) as r:
        wire, answers = await asked_over_acp(r, FORMS, plan=True, always="edits")
        (asked,) = await eventually(lambda: requests(wire))
        assert asked["params"]["options"][-1]["name"] == "Keep planning, and say what should change"
        wire.send({"id": "q1", "result": {"outcome": choice("reject_once")}})
        (form,) = await eventually(lambda: requests(wire, "elicitation/create"))
        content = {"reason": "Shorter."}
        wire.send({"id": form["id"], "result": {"action": "accept", "content": content}})
        (answer,) = await eventually(lambda: answers)
        assert answer.decision == "reject"
        assert "Shorter." in answer.message
        await end(r, wire)


async def test_refusals_reason_is_asked_where_client_can(tmp_path: Path) -> None:
    async with plain_rig(tmp_path) as r:
        wire, answers = await asked_over_acp(r, FORMS)
        (asked,) = await eventually(lambda: requests(wire))
        options = [(one["optionId"], one["kind"]) for one in asked["params"]["options"]]
        assert options[-2:] == [
            ("reject_once", "reject_once"), ("reject_with_reason", "reject_once"),
        ]  # fmt: skip
        wire.send({"id": "q1", "result": {"outcome": choice("reject_with_reason")}})
        (form,) = await eventually(lambda: requests(wire, "elicitation/create"))
        content = {"reason": "Use make check."}
        wire.send({"id": form["id"], "result": {"action": "accept", "content": content}})
        (answer,) = await eventually(lambda: answers)
        assert "Use make check." in answer.message
        await end(r, wire)


async def test_refusal_may_bring_its_reason_along(tmp_path: Path) -> None:
    async with plain_rig(tmp_path) as r:
        wire, answers = await asked_over_acp(r)
        await eventually(lambda: requests(wire))
        meta = {"pykoclaw.dev/reason": "Use make check."}
        wire.send({"id": "q1", "result": {"outcome": {**choice("reject_once"), "_meta": meta}}})
        (answer,) = await eventually(lambda: answers)
        assert answer.decision == "reject"
        assert "Use make check." in answer.message
        await end(r, wire)


async def test_client_showing_only_titles_is_told_plan(tmp_path: Path) -> None:
    async with plain_rig(tmp_path) as r:
        plan = (TextPart("# Cache it"),)
        wire, _ = await asked_over_acp(r, name="mitto", plan=True, always="edits", content=plan)
        await eventually(lambda: requests(wire))
        assert "# Cache it" in wire.text()
        await end(r, wire)


@pytest.mark.parametrize(
    ("tool", "arguments", "hidden"),
    [
        ("Bash", {"command": f"true {'x' * 1200} && rm -r all"}, "&& rm -r all\n"),
        (
            "Edit",
            {"file_path": f"/w/{'d/' * 80}key", "old_string": "a", "new_string": "b"},
            "d/key",
        ),
        ("mcp__db__run", {"query": f"SELECT {'x, ' * 50} y", "force": True}, "force: true"),
        ("Bash", {"command": "make"}, ""),
    ],
)
async def test_client_showing_only_titles_is_told_calls(
    tmp_path: Path, tool: str, arguments: dict[str, Any], hidden: str
) -> None:
    """Whose title does not hold all of them."""
    content = whole.parts(tool, arguments, "/w", None)
    async with plain_rig(tmp_path) as r:
        asked = {"tool": tool, "content": content, "input": arguments}
        title = titles.asked(tool, arguments, "/w")
        wire, _ = await asked_over_acp(r, name="mitto", title=title, **asked)
        await eventually(lambda: requests(wire))
        assert hidden in wire.text()
        assert bool(wire.text().strip()) is bool(hidden)
        await end(r, wire)


# --- a client in front of which nobody is


class Window(Person):
    """Mitto: `cancelled` says that no window shows the session."""

    cancels_when_absent = True


CANCELLED = {"outcome": "cancelled"}


async def test_absent_users_decision_falls_to_away_policy(tmp_path: Path) -> None:
    async with rig(tmp_path, "deny") as r:
        window = Window()
        asking = await begin(r, window)
        asking.ask("q1")
        await window.answer("q1", CANCELLED)
        assert await asking.settled("q1") == ("denied", None, "policy")
        assert "Nobody was there" in (await told(asking))[2]


async def test_absent_user_is_reasked_at_sign_of_life(tmp_path: Path) -> None:
    async with rig(tmp_path, "wait") as r:
        window = Window()
        asking = await begin(r, window)
        asking.ask("q1")
        await window.answer("q1", CANCELLED)
        await asking.away("q1")
        assert window.ids == ["q1"]
        asking.session.subscriptions[0].noticed.set()
        await window.answer("q1", choice("allow_once"))
        assert window.ids == ["q1", "q1"]
        assert await asking.settled("q1") == ("selected", "allow_once", "editor")


async def test_absent_user_is_reasked_after_pauses_until_present(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interview, "FIRST", 0.01)
    monkeypatch.setattr(interview, "SEEN_AFTER", 0.05)
    async with rig(tmp_path, "wait") as r:
        window = Window()
        asking = await begin(r, window)
        asking.ask("q1")
        for _ in range(3):
            await window.answer("q1", CANCELLED)
        await eventually(lambda: len(window.ids) == 4)
        await eventually(lambda: _is(asking, "attended"))  # it stays open: the clock stops
        await window.answer("q1", CANCELLED)  # after its 300 s
        await asking.away("q1")
        await window.answer("q1", choice("reject_once"))
        assert await asking.settled("q1") == ("selected", "reject_once", "editor")


async def _is(asking: Asking, policy: str) -> Any:
    return bool((await asking.row("q1"))[0] == policy)


async def test_parked_question_is_asked_again_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interview, "FIRST", 0.01)
    async with rig(tmp_path, "park") as r:
        window = Window()
        asking = await begin(r, window)
        asking.ask("q1")
        while not asking.turn.ended.done():
            await window.answer("q1", CANCELLED)
        await eventually(lambda: _is(asking, "parked"))
        await window.answer("q1", choice("allow_once"))
        assert await asking.settled("q1") == ("selected", "allow_once", "editor")


async def test_somebody_elsewhere_decides_for_an_absent_user(tmp_path: Path) -> None:
    async with rig(tmp_path, "deny") as r:
        window, person = Window(), Person()
        asking = await begin(r, window, person)
        asking.ask("q1")
        await window.answer("q1", CANCELLED)
        await person.answer("q1", choice("allow_once"))
        assert await asking.settled("q1") == ("selected", "allow_once", "editor")


async def test_pauses_grow_from_ten_seconds_to_five_minutes() -> None:
    assert [interview.pause(times) for times in range(1, 8)] == [10, 20, 40, 80, 160, 300, 300]


@pytest.mark.parametrize(
    ("name", "waits"),
    [
        ("mitto", True),
        (None, True),  # Mitto does not always give its name
        ("zed", False),
        ("acpx", False),
        ("toad", False),
        ("opencode", False),
        ("an editor", False),
    ],
)
async def test_traits_say_what_cancelled_means(
    tmp_path: Path, name: str | None, waits: bool
) -> None:
    async with plain_rig(tmp_path) as r:
        wire, answers = await asked_over_acp(r, name=name)
        await eventually(lambda: requests(wire))
        wire.send({"id": "q1", "result": {"outcome": CANCELLED}})
        if waits:
            session = requests(wire)[0]["params"]["sessionId"]
            await eventually(lambda: _clock_runs(r, session))
            await wire.call("session/set_mode", sessionId=session, modeId="plan")
            await eventually(lambda: len(requests(wire)) == 2)
            wire.send({"id": "q1", "result": {"outcome": choice("allow_once")}})
        (answer,) = await eventually(lambda: answers)
        assert answer.decision == ("allow_once" if waits else "reject")
        await end(r, wire)


async def _clock_runs(r: Rig, session: str) -> Any:
    rows = await r.database.read(
        "SELECT 1 FROM acp_permissions WHERE acp_session_id = ? AND deadline IS NOT NULL",
        (session,),
    )
    return bool(rows)
