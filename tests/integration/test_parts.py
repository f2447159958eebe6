"""Questions that a client is asked part by part, when it opens the session again, or its daemon is
replaced; on workers in memory.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pykoclaw_acp.channel.frames import Answer
from pykoclaw_acp.model.questions import ANSWERS
from tests.integration.asking import BOTH, Asking, Person, begin, choice
from tests.integration.linked import Front, front, new, words
from tests.integration.rig import Rig, rig
from tests.integration.wires import Wire, client, load
from tests.integration.wires import new as new_session
from tests.integration.wires import prompt as prompt_of
from tests.waiting import eventually

ASKED = "session/request_permission"
CHOSEN = (
    ("q1.0.0", "choice_0"),
    ("q1.0.1", "done"),
    ("q1.1.0", "choice_1"),
)
GIVEN = {"Which colours?": "Red", "Which size?": "Large"}


async def asking(r: Rig, session_id: str) -> Asking:
    """Claude's two questions, in the turn that runs."""
    session = await r.sessions.find(session_id)
    assert session is not None
    await eventually(lambda: r.launcher.launched and r.launcher.launched[0].acked)
    made = Asking(r, session, next(iter(session.turns)), r.launcher.launched[0])
    made.ask("q1", questions=BOTH)
    return made


def chosen(option: str) -> dict[str, Any]:
    return {"outcome": {"outcome": "selected", "optionId": option}}


async def given(made: Asking) -> Any:
    answers: list[Answer] = await eventually(lambda: made.answers)
    return (answers[0].content or {})[ANSWERS]


def ids(wire: Wire) -> list[str]:
    """What the client was asked, in order."""
    return [str(line["id"]) for line in wire.lines if line.get("method") == ASKED]


def ids_of(one: Front) -> list[str]:
    return [str(json.loads(rest.partition(" ")[0])) for rest in one.rests("request")]


async def reply(one: Front, number: int, ask_id: str, option: str) -> None:
    await eventually(lambda: ask_id in ids_of(one))
    line = json.dumps({"jsonrpc": "2.0", "id": ask_id, "result": chosen(option)})
    one.say(f"> {number} {line}")


async def test_load_repeats_open_part_of_question(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new_session(wire)
        wire.begin("session/prompt", **prompt_of(session, "hang"))
        made = await asking(r, session)
        for at, (ask_id, option) in enumerate(CHOSEN):
            await eventually(lambda ask_id=ask_id: ids(wire)[-1:] == [ask_id])  # type: ignore[misc]
            if at == 1:
                await load(wire, session)
                await eventually(lambda: len(ids(wire)) == 3)
            wire.send({"id": ask_id, "result": chosen(option)})
        assert await given(made) == GIVEN
        assert ids(wire) == ["q1.0.0", "q1.0.1", "q1.0.1", "q1.1.0"]


async def test_waiting_question_is_not_asked_of_closed_subscription(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        person = Person()
        made = await begin(r)
        before = made.session.subscribe(person, 0)
        made.ask("q1")
        made.ask("q2")
        await eventually(lambda: person.ids == ["q1"])
        made.session.subscribe(person, 0)
        before.close()
        await eventually(lambda: person.ids == ["q1", "q1"])
        await person.answer("q1", choice("allow_once"))
        await made.settled("q1")
        await person.answer("q2", choice("allow_once"))
        await made.settled("q2")
        assert person.ids == ["q1", "q1", "q2"]


async def test_returning_front_keeps_open_part_of_question(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        one.call(2, "session/prompt", **words(session, "hang"))
        made = await asking(r, session)
        await reply(one, 3, *CHOSEN[0])
        await eventually(lambda: "q1.0.1" in ids_of(one))
        await one.leave()
        seq = one.seqs()[-1]
        hello: dict[str, Any] = {
            "sessions": {session: {"seq": seq, "opened": {}}},
            "asked": ["q1.0.1", "q3.0.0"],
        }
        async with front(r, **hello) as again:
            answered = json.dumps({"jsonrpc": "2.0", "id": "q1.0.0", "result": chosen("choice_0")})
            again.say(f">> 3 0 {answered}")
            for number, (ask_id, option) in enumerate(CHOSEN[1:], 4):
                await reply(again, number, ask_id, option)
            assert await given(made) == GIVEN
            notes = [json.loads(rest) for rest in again.rests("notify")]
            withdrawn = [
                one["params"]["requestId"] for one in notes if "requestId" in one["params"]
            ]
            assert withdrawn == ["q3.0.0"]
