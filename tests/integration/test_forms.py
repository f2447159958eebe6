"""Forms of MCP servers: asked of clients that can show them, settled like any question; on workers
in memory.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.model.permissions import PermissionRequest
from pykoclaw_acp.protocol.control.decisions import OperatorDecision
from pykoclaw_acp.sessions.permissions import decisions
from pykoclaw_acp.store import permissions
from tests.integration.asking import LONG, SOON, Person, begin, restarted, rig
from tests.integration.forms import ADA, FORM, PAGE, SCHEMA, given, person_asked
from tests.integration.rig import Rig
from tests.integration.rig import rig as plain_rig
from tests.integration.wires import Wire, hanging, listen
from tests.waiting import eventually, pass_loop_time

ALLOWING: tuple[OperatorDecision, ...] = ("allow_once", "allow_always")


# --- answers


@pytest.mark.parametrize(
    ("outcome", "told", "row"),
    [
        (ADA, ("accept", {"name": "Ada"}), ("accept", None, "editor")),
        ({"action": "accept"}, ("accept", None), ("accept", None, "editor")),
        (
            {"action": "decline", "content": {"name": "Ada"}},
            ("decline", None),
            ("decline", None, "editor"),
        ),
        ({"action": "cancel"}, ("cancel", None), ("cancel", None, "editor")),
        ({"action": "_later"}, ("cancel", None), ("_later", None, None)),
        (RuntimeError("no dialogue"), ("cancel", None), ("unanswered", None, None)),
    ],
)
async def test_clients_form_answer_reaches_worker_and_row(
    tmp_path: Path, outcome: Any, told: tuple[str, Any], row: tuple[Any, ...]
) -> None:
    async with rig(tmp_path) as r:
        person = Person(forms=True)
        asking = await begin(r, person)
        question = asking.ask("q1", form=FORM)
        await person.answer("q1", outcome)
        assert person.asked == [question]
        assert await asking.settled("q1") == row
        assert await given(asking) == told
        assert person.told == ["q1"]


async def test_only_clients_that_show_forms_are_asked(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        plain, able = Person("plain"), Person("able", forms=True)
        asking = await begin(r, plain, able)
        asking.ask("q1", form=FORM)
        await person_asked(able)
        asking.ask("q2")
        await person_asked(plain)
        await able.answer("q1", ADA)
        assert await asking.settled("q1") == ("accept", None, "able")
        assert plain.ids == ["q2"]


async def test_only_clients_that_open_pages_get_one(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        forms, pages = Person("forms", forms=True), Person("pages", pages=True)
        asking = await begin(r, forms, pages)
        asking.ask("q1", form=PAGE)
        await person_asked(pages)
        with pytest.raises(InvalidParams, match="only a client that opens pages"):
            decisions.by_operator(pages.asked[0], "allow_once", "cli")
        await pages.answer("q1", {"action": "accept"})
        assert await asking.settled("q1") == ("accept", None, "pages")
        assert await given(asking) == ("accept", None)
        assert forms.ids == []


async def test_form_is_cancelled_without_form_capable_clients(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        person = Person()
        asking = await begin(r, person)
        asking.ask("q1", form=FORM)
        assert await asking.settled("q1") == ("unsupported", None, None)
        assert await given(asking) == ("cancel", None)
        assert person.asked == []


async def test_first_form_answer_counts_and_others_are_told(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        first, second = Person("first", forms=True), Person("second", forms=True)
        asking = await begin(r, first, second)
        asking.ask("q1", form=FORM)
        await person_asked(first)
        await second.answer("q1", {"action": "decline"})
        assert await asking.settled("q1") == ("decline", None, "second")
        await eventually(lambda: first.withdrawn == ["q1"])


async def test_a_command_can_only_deny_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        asking = await begin(r, Person(forms=True))
        asking.ask("q1", form=FORM)
        await asking.asked("q1")
        for decision in ALLOWING:
            with pytest.raises(InvalidParams, match="only a client that shows forms"):
                await r.sessions.requests.decide("q1", decision, "cli")
        assert (await asking.row("q1"))[1] is None
        await r.sessions.requests.decide("q1", "deny", "cli")
        assert await asking.settled("q1") == ("decline", None, "cli")
        assert await given(asking) == ("decline", None)


# --- nobody is there


@pytest.mark.parametrize(
    ("policy", "timeout", "decision", "row"),
    [
        ("wait", SOON, "cancel", ("timeout", None, "timeout")),
        ("park", SOON, "cancel", ("timeout", None, "timeout")),
        ("deny", LONG, "decline", ("denied", None, "policy")),
        ("allow", LONG, "decline", ("denied", None, "policy")),
    ],
)
async def test_no_policy_fills_a_form_in(
    tmp_path: Path, policy: str, timeout: float, decision: str, row: tuple[Any, ...]
) -> None:
    async with rig(tmp_path, policy, timeout) as r:
        asking = await begin(r)
        asking.ask("q1", form=FORM)
        assert await asking.settled("q1") == row
        assert await given(asking) == (decision, None)
        assert not asking.turn.ended.done()


async def test_form_is_not_parked_when_room_is_needed(tmp_path: Path) -> None:
    async with rig(tmp_path, "park") as r:
        asking = await begin(r)
        asking.ask("q1", form=FORM)
        deadline = await asking.away("q1")
        assert abs(deadline / 1000 - time.time() - LONG) < 60
        assert (await asking.row("q1"))[0] == "wait"
        pass_loop_time(2 * SOON)  # nobody comes back
        assert asking.session.permissions.away.unattended_since is None
        r.sessions.worker_events.make_room("another")
        assert not asking.session.permissions.away.parked_turns
        person = Person(forms=True)
        asking.session.subscribe(person, 0)
        await person.answer("q1", ADA)
        assert await given(asking) == ("accept", {"name": "Ada"})


# --- a new daemon


async def test_a_restored_form_is_asked_again(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        asking = await begin(r, Person(forms=True))
        question = asking.ask("q1", form=FORM)
        await asking.asked("q1")
        session = await restarted(r, asking)
        person = Person("later", forms=True)
        session.subscribe(
            Person(), 0
        )  # that a client which shows no forms comes back first changes nothing
        session.subscribe(person, 0)
        await person.answer("q1", ADA)
        assert person.asked == [question]
        assert await asking.settled("q1") == ("accept", None, "later")
        assert await given(asking) == ("accept", {"name": "Ada"})


async def test_undelivered_form_answer_comes_from_its_row(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        asking = await begin(r, person := Person(forms=True))
        for ask_id, outcome in (
            ("yes", ADA),
            ("no", {"action": "decline"}),
            ("away", {"action": "cancel"}),
        ):
            asking.ask(ask_id, form=FORM)
            await person.answer(ask_id, outcome)
            await asking.settled(ask_id)
        rows = await permissions.settled(r.database, ["yes", "no", "away"])
        found = [decisions.stored_to_worker(7, row) for row in rows]
        assert {(one.ask_id, one.decision, str(one.content), one.epoch) for one in found} == {
            ("yes", "accept", "{'name': 'Ada'}", 7),
            ("no", "decline", "None", 7),
            ("away", "cancel", "None", 7),
        }


# --- over ACP


async def connected(r: Rig, capabilities: Any) -> Wire:
    wire = Wire(r)
    await wire.call("initialize", protocolVersion=1, clientCapabilities=capabilities)
    return wire


async def disconnect(r: Rig, wire: Wire) -> None:
    await r.sessions.live.cancel_all()
    await wire.close()


def asked_of(wire: Wire) -> list[dict[str, Any]]:
    return [line for line in wire.lines if line.get("method") == "elicitation/create"]


async def test_client_declaring_elicitation_is_asked_with_elicitation_create(
    tmp_path: Path,
) -> None:
    async with plain_rig(tmp_path) as r:
        wire = await connected(r, {"elicitation": {"form": {}}})
        session, _, channel, turn = await hanging(r, wire)
        answers = listen(channel)
        channel.last += 1
        channel.say(_form(channel.last, turn))
        (request,) = await eventually(lambda: asked_of(wire))
        assert request["id"] == "q1"
        assert request["params"] == {
            "sessionId": session,
            "mode": "form",
            "message": "secretary asks: Who are you?",
            "requestedSchema": SCHEMA,
        }
        wire.send({"id": "q1", "result": ADA})
        (answer,) = await eventually(lambda: answers)
        assert (answer.decision, answer.content) == ("accept", {"name": "Ada"})
        await disconnect(r, wire)


@pytest.mark.parametrize(
    "result", [{"action": "accept", "content": "Ada"}, {"content": {"name": "Ada"}}, {}]
)
async def test_an_answer_that_is_none_cancels(tmp_path: Path, result: Any) -> None:
    async with plain_rig(tmp_path) as r:
        wire = await connected(r, {"elicitation": {"form": {}}})
        _, _, channel, turn = await hanging(r, wire)
        answers = listen(channel)
        channel.last += 1
        channel.say(_form(channel.last, turn))
        await eventually(lambda: asked_of(wire))
        wire.send({"id": "q1", "result": result})
        (answer,) = await eventually(lambda: answers)
        assert answer.decision == "cancel"
        await disconnect(r, wire)


@pytest.mark.parametrize(
    "capabilities",
    [
        {},
        None,
        {"elicitation": None},
        {"elicitation": {}},  # no mode, unlike in MCP
        {"elicitation": {"form": None}},
        {"elicitation": {"url": {}}},
        {"elicitation": {"form": True}},
        "all",
    ],
)
async def test_client_not_declaring_elicitation_is_not_asked(
    tmp_path: Path, capabilities: Any
) -> None:
    async with plain_rig(tmp_path) as r:
        wire = await connected(r, capabilities)
        _, _, channel, turn = await hanging(r, wire)
        answers = listen(channel)
        channel.last += 1
        channel.say(_form(channel.last, turn))
        (answer,) = await eventually(lambda: answers)
        assert answer.decision == "cancel"
        assert asked_of(wire) == []
        await disconnect(r, wire)


def _form(number: int, turn: str) -> PermissionRequest:
    return PermissionRequest(
        epoch=1, n=number, ask_id="q1", turn_id=turn, tool_call_id="", title="secretary asks", tool_kind="other",
        form=FORM,
    )  # fmt: skip
