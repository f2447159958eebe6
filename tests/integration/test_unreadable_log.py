"""A log that cannot be read for a moment, while a client is behind: it is shown the rest later, and told
the truth about its prompt.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.errors import StoreUnavailable
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.events import Text
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.permissions import PermissionRequest, StoredRequest
from pykoclaw_acp.server import command_prompts
from pykoclaw_acp.server.acp_client import AcpClient
from pykoclaw_acp.server.command_client import CommandClient
from pykoclaw_acp.server.methods import METHODS
from pykoclaw_acp.sessions import subscription
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.store import work
from pykoclaw_acp.store.condition import unavailable
from tests.integration import asking, linked
from tests.integration.asking import Person
from tests.integration.linked import front, new, words
from tests.integration.rig import Client, Rig, rig
from tests.waiting import eventually

NOT_SHOWN = subscription.NOT_SHOWN.strip()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "READ_AGAIN", 0.01)


class Gate:
    """Clients that do not read while it is shut."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, kind: type[Any]) -> None:
        self.open = asyncio.Event()
        self.open.set()
        deliver = kind.deliver

        async def late(client: Any, session_id: str, logged: Logged) -> None:
            await self.open.wait()
            await deliver(client, session_id, logged)

        monkeypatch.setattr(kind, "deliver", late)


def fail_once(r: Rig, session: Session, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The next read of the log fails, as while another program has locked it; nothing is in memory."""
    session.log.forget()
    real = r.journal.read
    failed: list[str] = []

    async def read(*given: Any) -> list[Logged]:
        if not failed:
            failed.append("locked")
            raise StoreUnavailable(DatabaseState.LOCKED, "Another program keeps it locked.")
        found: list[Logged] = await real(*given)
        return found

    monkeypatch.setattr(r.journal, "read", read)
    return failed


def damage(r: Rig, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log cannot be read any more; nothing is in memory."""
    session.log.forget()

    async def read(*_: Any) -> list[Logged]:
        raise unavailable(DatabaseState.DAMAGED, "The database is damaged.")

    monkeypatch.setattr(r.journal, "read", read)


async def turn_is_done(r: Rig) -> None:
    """Wait until the journal says so."""

    async def look() -> bool:
        return "done" in (await r.states()).values()

    done: bool = await eventually(look)
    assert done


async def test_done_turn_is_answered_despite_failed_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, AcpClient)
    async with rig(tmp_path) as r, front(r) as one:
        session = await r.sessions.get(await new(one))
        gate.open.clear()
        one.call(2, "session/prompt", **words(session.id, "say 3"))
        await turn_is_done(r)
        failed = fail_once(r, session, monkeypatch)
        gate.open.set()
        assert (await one.answer(2))["result"]["stopReason"] == "end_turn"
        assert failed
        assert one.text() == "0 1 2 "
        await session.log.tell([Text("later", "of another turn")])
        await eventually(lambda: one.text().endswith("of another turn"))


async def test_client_behind_damage_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, AcpClient)
    async with rig(tmp_path) as r, front(r) as one:
        session = await r.sessions.get(await new(one))
        gate.open.clear()
        one.call(2, "session/prompt", **words(session.id, "say 3"))
        await turn_is_done(r)
        damage(r, session, monkeypatch)
        gate.open.set()
        assert (await one.answer(2))["result"]["stopReason"] == "end_turn"
        one.call(3, "session/prompt", **words(session.id, "say 1"))
        assert (await one.answer(3))["result"]["stopReason"] == "end_turn"
        told = [rest for rest in one.rests("notify") if NOT_SHOWN in rest]
        assert len(told) == 1


async def test_damage_after_other_trouble_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failing disk reports an error first, and other bytes then."""
    gate = Gate(monkeypatch, AcpClient)
    async with rig(tmp_path) as r, front(r) as one:
        session = await r.sessions.get(await new(one))
        gate.open.clear()
        one.call(2, "session/prompt", **words(session.id, "say 3"))
        await turn_is_done(r)
        states = iter([DatabaseState.BLOCKED, DatabaseState.BLOCKED])

        async def read(*_: Any) -> list[Logged]:
            raise unavailable(next(states, DatabaseState.DAMAGED), "The disk reports an error.")

        monkeypatch.setattr(r.journal, "read", read)
        session.log.forget()
        gate.open.set()
        assert (await one.answer(2))["result"]["stopReason"] == "end_turn"
        assert any(NOT_SHOWN in rest for rest in one.rests("notify"))


async def test_client_behind_is_asked_after_failed_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person = Person()
    gate = Gate(monkeypatch, Person)
    async with asking.rig(tmp_path, "deny") as r:
        claude = await asking.begin(r, person)
        gate.open.clear()
        for at in range(3):
            claude.channel.say(claude.channel.event(claude.turn.turn_id, f"w{at}"))
        await eventually(lambda: claude.session.last_seq >= 3)
        claude.ask("q")
        await claude.asked("q")
        failed = fail_once(claude.r, claude.session, monkeypatch)
        gate.open.set()
        await eventually(lambda: failed and person.ids)
        assert not claude.answers
        await person.answer("q", asking.choice("allow_once"))
        await eventually(lambda: claude.answers)


async def test_event_that_cannot_be_shown_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver = AcpClient.deliver

    async def fail(client: AcpClient, session_id: str, logged: Logged) -> None:
        if isinstance(logged.event, Text) and "1" in logged.event.text:
            raise ValueError("a fault of ours")
        await deliver(client, session_id, logged)

    monkeypatch.setattr(AcpClient, "deliver", fail)
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        one.call(2, "session/prompt", **words(session, "say 3"))
        assert (await one.answer(2))["result"]["stopReason"] == "end_turn"
        assert any(NOT_SHOWN in rest for rest in one.rests("notify"))
        one.call(3, "session/prompt", **words(session, "say 1"))
        assert (await one.answer(3))["result"]["stopReason"] == "end_turn"
        assert one.text().endswith("0 ")


async def test_load_says_that_log_is_unreadable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        session = await r.sessions.get(await new(one))
        await r.run(session, "say 3")
        for shown in session.subscriptions:
            await shown.reached(session.last_seq)
        fail_once(r, session, monkeypatch)
        params: dict[str, Any] = {"sessionId": session.id, "cwd": "/", "mcpServers": []}
        one.call(2, "session/load", **params)
        assert (await one.answer(2))["error"]["data"]["errorKind"] == "store_locked"
        one.call(3, "session/load", **params)
        assert "result" in await one.answer(3)


async def test_done_commands_prompt_is_answered_despite_failed_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(monkeypatch, CommandClient)
    async with rig(tmp_path) as r:
        prompts = command_prompts.CommandPrompts(r.sessions, r.database, tmp_path, r.sessions.get)
        monkeypatch.setattr(linked, "METHODS", {**METHODS, **prompts.methods})
        session = await r.session()
        session.subscribe(Client(), 0)
        real: Any = work.words
        said: list[Any] = []

        async def once(*given: Any) -> str:
            said.append(given)
            if len(said) == 1:
                raise StoreUnavailable(DatabaseState.LOCKED, "Another program keeps it locked.")
            return str(await real(*given))

        monkeypatch.setattr(work, "words", once)
        async with front(r) as one:
            gate.open.clear()
            one.call(2, "_pykoclaw.dev/prompt", session=session.id, text="say 3")
            await turn_is_done(r)
            failed = fail_once(r, session, monkeypatch)
            gate.open.set()
            answer = await one.answer(2)
            assert (answer["result"]["state"], answer["result"]["text"]) == ("done", "0 1 2 ")
            assert failed
            assert len(said) == 2


async def test_command_is_told_that_its_turn_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        prompts = command_prompts.CommandPrompts(r.sessions, r.database, tmp_path, r.sessions.get)
        monkeypatch.setattr(linked, "METHODS", {**METHODS, **prompts.methods})
        session = await r.session()

        async def damaged(*_: Any) -> str:
            raise unavailable(DatabaseState.DAMAGED, "The database is damaged.")

        monkeypatch.setattr(work, "words", damaged)
        async with front(r) as one:
            one.call(2, "_pykoclaw.dev/prompt", session=session.id, text="say 3")
            error = (await one.answer(2))["error"]
        assert "The prompt was accepted" in error["message"]
        assert error["data"]["errorKind"] == "store_damaged"
        assert (error["data"]["turnState"], error["data"]["retryable"]) == ("unknown", False)


async def test_command_is_told_of_question_after_failed_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_prompts, "LOOK", 0.01)
    async with rig(tmp_path) as r:
        prompts = command_prompts.CommandPrompts(r.sessions, r.database, tmp_path, r.sessions.get)
        monkeypatch.setattr(linked, "METHODS", {**METHODS, **prompts.methods})
        session = await r.session()
        real, looks = r.sessions.requests.list_pending, list[int]()

        async def once() -> list[StoredRequest]:
            looks.append(1)
            if len(looks) == 1:
                raise StoreUnavailable(DatabaseState.LOCKED, "Another program keeps it locked.")
            return await real()

        monkeypatch.setattr(r.sessions.requests, "list_pending", once)
        async with front(r) as one:
            one.call(2, "_pykoclaw.dev/prompt", session=session.id, text="hang")
            await eventually(lambda: r.launcher.launched and r.launcher.launched[0].acked)
            (turn,), (worker,) = session.turns, r.launcher.launched
            worker.last += 1
            worker.say(
                PermissionRequest(
                    epoch=1, n=worker.last, ask_id="a", turn_id=turn.turn_id, tool_call_id="c",
                    title="Run", tool_kind="execute",
                )
            )  # fmt: skip
            (told,) = await eventually(
                lambda: [rest for rest in one.rests("notify") if "_pykoclaw.dev/question" in rest]
            )
            assert json.loads(told)["params"]["id"] == "a"
            assert len(looks) == 2
