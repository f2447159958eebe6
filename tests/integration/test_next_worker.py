"""Options that change while a worker lives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.channel.options import McpServer
from pykoclaw_acp.protocol.control.rules import RemoveRuleParams
from pykoclaw_acp.server.rule_control import RuleControl
from pykoclaw_acp.store.database import Statement, Unit
from tests.integration.rig import rig
from tests.waiting import eventually

SERVER = McpServer(name="s", command="true")


async def test_turn_of_claudes_own_outlasts_other_servers(tmp_path: Path) -> None:
    async with rig(tmp_path, stall_timeout=300.0) as r:
        session = await r.session()
        await r.run(session, "say 1")
        (channel,) = r.launcher.launched
        channel.say(channel.started("own", background=True))
        await eventually(lambda: session.background)
        await r.sessions.reopen(session, "/", (), (SERVER,))
        await r.run(await r.session(), "say 1")
        assert channel in r.launcher.live
        channel.say(channel.ended("own"))
        await eventually(lambda: channel not in r.launcher.live)
        assert (await r.states())["own"] == "done"
        await r.run(session, "say 1")
        assert r.launcher.launched[-1].spec.options.mcp_servers == (SERVER,)


@pytest.mark.parametrize("during", ["a turn", "no turn"])
async def test_background_command_outlasts_other_servers_until_a_prompt(
    tmp_path: Path, during: str
) -> None:
    async with rig(tmp_path, stall_timeout=300.0) as r:
        session = await r.session()
        turn = await r.prompt(session, "hang")
        await eventually(lambda: r.launcher.launched and r.launcher.launched[0].prompts)
        (channel,) = r.launcher.launched
        channel.background(1)
        if during == "a turn":
            await r.sessions.reopen(session, "/", (), (SERVER,))
        channel.say(channel.ended(turn.turn_id))
        await session.idle()
        if during == "no turn":
            await r.sessions.reopen(session, "/", (), (SERVER,))
        await r.run(await r.session(), "say 1")
        assert channel in r.launcher.live
        assert (await r.run(session, "say 2")).state == "done"
        assert channel not in r.launcher.live
        last = r.launcher.launched[-1]
        assert (last.prompts, last.spec.options.mcp_servers) == (["say 2"], (SERVER,))
        assert (await r.run(session, "say 3")).state == "done"
        assert last.prompts == ["say 2", "say 3"]


async def test_removed_rule_holds_no_longer_for_background_commands(tmp_path: Path) -> None:
    async with rig(tmp_path, stall_timeout=300.0) as r:
        session = await r.session()
        await r.run(session, "say 1")
        (channel,) = r.launcher.launched
        channel.background(1)
        await eventually(lambda: channel.acked == channel.last)
        insert = Statement(
            "INSERT INTO acp_session_rules VALUES (?, 'Bash(ls)', '', 1)", (session.id,)
        )
        await r.database.commit(Unit(statements=(insert,)))
        control: Any = RuleControl(r.sessions, r.database)
        await control.remove(None, RemoveRuleParams(session=session.id))
        await eventually(lambda: channel not in r.launcher.live)
