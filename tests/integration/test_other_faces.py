"""A client that no connection stands behind, as another face than ACP over a socket has it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from pykoclaw_acp.model.client_traits import DEFAULT
from pykoclaw_acp.model.events import UserMessage
from pykoclaw_acp.sessions import opening, prompting
from pykoclaw_acp.sessions.opening import OpenOptions
from pykoclaw_acp.sessions.prompting import ClientPrompt
from pykoclaw_acp.sessions.subscriber import Subscriber
from tests.integration.asking import Person, running_in
from tests.integration.rig import Client, Rig, rig
from tests.waiting import eventually

WHERE = OpenOptions("/proc", (), ())  # holds nothing that acts


def subscriber(r: Rig, front: str) -> tuple[Subscriber, Client]:
    client = Client()
    return subscribed(r, front, client), client


def subscribed(r: Rig, front: str, client: Client) -> Subscriber:
    made = Subscriber(r.sessions, client, client_process="browser", front=front)
    made.introduce("browser", "1")
    return made


async def test_a_face_without_connections_creates_prompts_and_resumes(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        asking, client = subscriber(r, "tab-1")
        assert asking.traits is DEFAULT
        session_id = (await opening.create(asking, WHERE, None)).session_id
        accepted = await prompting.accept(
            asking, ClientPrompt(session_id, [{"type": "text", "text": "say 5"}], number=1)
        )
        assert accepted is not None
        outcome = await asyncio.wait_for(asking.outcome(accepted[1], session_id), 30)
        assert outcome.stop_reason == "end_turn"
        assert client.text
        assert not any(isinstance(one.event, UserMessage) for one in client.shown), (
            "it has its own words already"
        )
        asking.confirm_updates(session_id, client.places[0])
        assert asking.confirm_answer(1)
        assert not asking.confirm_answer(1)
        asking.close()

        other, shown = subscriber(r, "tab-2")
        opened = await opening.resume(other, session_id, WHERE)
        for follow_up in opened.follow_ups:  # as after its answer
            await follow_up()
        end = accepted[0].last_seq
        await asyncio.wait_for(other.subscription(accepted[0], session_id).reached(end), 30)
        assert shown.places == client.places[1:]
        other.close()


async def test_face_that_resumes_is_shown_pending_request_again(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        person = Person("browser")
        face = subscribed(r, "tab-1", person)
        session_id = (await opening.create(face, WHERE, None)).session_id
        prompt = ClientPrompt(session_id, [{"type": "text", "text": "hang"}], number=1)
        assert await prompting.accept(face, prompt) is not None
        asking = await running_in(r)
        asking.ask("q1")
        await eventually(lambda: person.asked)
        opened = await opening.resume(face, session_id, WHERE)
        assert person.repeated == []
        for follow_up in opened.follow_ups:  # as after its answer
            await follow_up()
        assert person.repeated == ["q1"]
        assert person.ids == ["q1"]
        face.close()
