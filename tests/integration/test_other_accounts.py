"""Sessions of several accounts in one directory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from pykoclaw_acp.model import conversations
from pykoclaw_acp.model.choices import Model, Offer
from pykoclaw_acp.model.conversations import Conversation
from pykoclaw_acp.model.session_environment import ClientEnvironment, DaemonEnvironment
from pykoclaw_acp.sessions import worker_options
from pykoclaw_acp.sessions.new_session import Beginnings
from tests.integration import linked
from tests.integration.programs import upsert_row
from tests.integration.rig import Rig, rig
from tests.integration.wires import Wire, client
from tests.workers import OPTIONS

ACCOUNT = "pykoclaw.dev/account"
MODEL = "pykoclaw.dev/model"
OPUS = Offer(models=(Model("default", "Default"), Model("opus", "Opus")))
HAIKU = Offer(models=(Model("default", "Default"), Model("haiku", "Haiku")))


@pytest.fixture
async def r(tmp_path: Path) -> AsyncIterator[Rig]:
    """It has an account `work` besides Claude's own configuration."""
    (tmp_path / "accounts/work").mkdir(parents=True)
    async with rig(tmp_path) as made:
        made.sessions.daemon_environment = DaemonEnvironment(accounts=str(tmp_path / "accounts"))
        made.sessions.beginnings = Beginnings(made.sessions.daemon_environment, OPTIONS)
        yield made


async def new(wire: Wire, **meta: Any) -> dict[str, Any]:
    return await wire.call("session/new", cwd="/", mcpServers=[], _meta=meta)


async def load(wire: Wire, session: str, **meta: Any) -> dict[str, Any]:
    return await wire.call("session/load", sessionId=session, cwd="/", mcpServers=[], _meta=meta)


async def choose(wire: Wire, session: str, model: str) -> dict[str, Any]:
    return await wire.call(
        "session/set_config_option", sessionId=session, configId="model", value=model
    )


def models(answer: dict[str, Any]) -> list[str]:
    (picker,) = (one for one in answer["result"]["configOptions"] if one["id"] == "model")
    return [one["value"] for one in picker["options"]]


async def test_each_account_chooses_among_its_own_models(r: Rig) -> None:
    async with client(r) as wire:
        own = (await new(wire))["result"]["sessionId"]
        work = (await new(wire, **{ACCOUNT: "work"}))["result"]["sessionId"]
        await (await r.sessions.get(work)).choosing.keep_offer(HAIKU, starts=True)
        await (await r.sessions.get(own)).choosing.keep_offer(OPUS, starts=True)
        assert "result" in await choose(wire, work, "haiku")
        assert "default, haiku" in (await choose(wire, work, "opus"))["error"]["message"]
        assert models(await load(wire, work)) == ["default", "haiku"]
        assert models(await load(wire, own)) == ["default", "opus"]
        for model, unchecked in (("haiku", None), ("opus", "opus")):
            made = await new(wire, **{ACCOUNT: "work", MODEL: model})
            await load(wire, work, **{ACCOUNT: "work", MODEL: model})
            for session in (made["result"]["sessionId"], work):
                options = (await r.sessions.get(session)).record.options
                assert options.unchecked_model == unchecked, "its worker looks"


async def test_models_of_other_account_settle_nothing(r: Rig) -> None:
    """Claude has not said yet what the account has; its worker takes back what that is not."""
    async with client(r) as wire:
        own = (await new(wire))["result"]["sessionId"]
        await (await r.sessions.get(own)).choosing.keep_offer(OPUS, starts=True)
        made = await new(wire, **{ACCOUNT: "work", MODEL: "fable"})
        session = await r.sessions.get(made["result"]["sessionId"])
        assert session.record.options.unchecked_model == "fable"


async def test_gateway_and_login_have_own_models(r: Rig) -> None:
    given = {"ANTHROPIC_BASE_URL": "https://gateway", "ANTHROPIC_AUTH_TOKEN": "verysecret"}
    async with linked.front(r, "one", environment=given) as one, linked.front(r, "two") as two:
        here, sessions = {"cwd": "/", "mcpServers": []}, []
        for front, offer in ((one, HAIKU), (two, OPUS)):
            sessions.append((await front.result(1, "session/new", **here))["sessionId"])
            session = await r.sessions.get(sessions[-1])
            assert await session.choosing.offer() is None
            await session.choosing.keep_offer(offer, starts=True)
        for front, session, model in ((one, *sessions[:1], "haiku"), (two, *sessions[1:], "opus")):
            loaded = await front.result(2, "session/load", sessionId=session, **here)
            assert models({"result": loaded}) == ["default", model]
        kept = str(await r.database.read("SELECT cwd, account, configuration FROM acp_offers"))
        assert "gateway" not in kept
        assert "verysecret" not in kept


async def test_callers_gateway_keeps_its_models_to_itself(r: Rig) -> None:
    """A command's prompt has a worker with the command's own environment."""
    given = {"ANTHROPIC_BASE_URL": "https://gateway", "ANTHROPIC_AUTH_TOKEN": "verysecret"}
    session = await r.session()
    theirs, ours = (session.environment.options(one) for one in (ClientEnvironment.of(given), None))
    assert (bool(theirs.service), ours.service) == (True, "")
    for epoch, (options, offer) in enumerate(((theirs, HAIKU), (ours, OPUS)), 1):
        session.choosing.note_launched(epoch, options)
        await session.choosing.keep_offer(offer, starts=True)
        found = await session.choosing.offer()
        assert (found is not None) == (options is ours)
    for options, offer in ((theirs, HAIKU), (ours, OPUS)):
        wanted = worker_options.configuration(session.record, options)
        under = msgspec.structs.replace(wanted, service=options.service)
        found = await r.journal.offer(options.cwd, under)
        assert found is not None
        assert found.models == offer.models


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_other_programs_conversation_keeps_claudes_account(r: Rig, method: str) -> None:
    await upsert_row(r.database, Conversation("wa-x", str(uuid4()), "/", None))
    wanted = {"sessionId": conversations.id_of("wa-x"), "cwd": "/", "mcpServers": []}
    async with client(r) as wire:
        for _ in range(2):
            other = await wire.call(method, **wanted, _meta={ACCOUNT: "work"})
            assert (other["error"]["code"], other["error"]["data"]["account"]) == (
                -32602,
                "default",
            )
        assert await r.database.read("SELECT 1 FROM acp_sessions") == []
        assert "result" in await wire.call(method, **wanted, _meta={ACCOUNT: "default"})
