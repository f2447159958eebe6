"""Options that change while a worker lives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pykoclaw_acp.channel.options import McpServer
from pykoclaw_acp.channel.processes import WorkerProcess
from pykoclaw_acp.protocol.control.rules import RemoveRuleParams
from pykoclaw_acp.store.database import Statement, Unit
from pykoclaw_acp.system import disks
from tests.integration.adopting import alive, daemon, found, killed
from tests.integration.callers import rule_control
from tests.integration.rig import rig
from tests.waiting import eventually

__all__ = ["alive"]

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


@pytest.mark.parametrize("prompted", [True, False])
async def test_next_daemon_replaces_worker_with_other_options(
    tmp_path: Path, alive: WorkerProcess, prompted: bool
) -> None:
    """Its background command goes on until then."""
    async with killed(tmp_path, alive) as first:
        session = await first.session()
        await first.run(session, "say 1")
        (channel,) = first.launcher.launched
        channel.background(1)
        await eventually(lambda: channel.acked == channel.last)
        await first.sessions.reopen(session, "/", (), (SERVER,))
    async with daemon(tmp_path, first, stall_timeout=300.0) as second:
        again = await found(second, session)
        await eventually(lambda: second.pool.works(session.id))
        assert channel in second.launcher.live
        if prompted:
            second.sessions.take_options(again, (), (SERVER,))  # its front comes back
            assert (await second.run(again, "say 2")).state == "done"
            assert channel not in second.launcher.live
            last = second.launcher.launched[-1]
            assert (last.prompts, last.spec.options.mcp_servers) == (["say 2"], (SERVER,))
            assert (await second.run(again, "say 3")).state == "done"
            assert last.prompts == ["say 2", "say 3"]
        else:
            await second.run(await second.session(), "say 1")
            assert channel in second.launcher.live


@pytest.mark.parametrize("removed", [True, False])
async def test_worker_with_removed_rule_is_replaced_after_turn(
    tmp_path: Path, alive: WorkerProcess, removed: bool
) -> None:
    async with killed(tmp_path, alive) as first:
        session = await first.session()
        await first.run(session, "say 1")
        (channel,) = first.launcher.launched
        channel.say(channel.started("own", background=True))
        await eventually(lambda: session.background)
        insert = Statement(
            "INSERT INTO acp_session_rules VALUES (?, 'Bash(ls)', '', 1)", (session.id,)
        )
        await first.database.commit(Unit(statements=(insert,)))
        if removed:
            control = rule_control(first)
            await control.remove(None, RemoveRuleParams(session=session.id))
    async with daemon(tmp_path, first, stall_timeout=300.0) as second:
        again = await found(second, session)
        assert again.background
        await eventually(lambda: second.pool.steers(session.id))
        assert channel in second.launcher.live
        channel.say(channel.ended("own"))
        await eventually(lambda: not again.background)
        if removed:
            await eventually(lambda: channel not in second.launcher.live)
        assert (await second.run(again, "say 2")).state == "done"
        assert (channel.prompts == ["say 1"]) == removed


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
        control = rule_control(r)
        await control.remove(None, RemoveRuleParams(session=session.id))
        await eventually(lambda: channel not in r.launcher.live)


async def test_rule_is_removed_while_sessions_leave_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        others = [await r.session() for _ in range(3)]

        async def meanwhile(path: str, look: Callable[[], str]) -> str:
            r.sessions.live.remove(others[-1].id)
            return look()

        monkeypatch.setattr(disks, "call", meanwhile)
        insert = Statement(
            "INSERT INTO acp_session_rules VALUES (?, 'Bash(ls)', '', 1)", (session.id,)
        )
        await r.database.commit(Unit(statements=(insert,)))
        (gone,) = await rule_control(r).remove(None, RemoveRuleParams(session=session.id))
        assert gone.rule == "Bash(ls)"
