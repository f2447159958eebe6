"""The order of prompts: that of their acceptance, whatever the wall clock shows, also for the next
daemon.
"""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from pykoclaw_acp.channel.processes import WorkerProcess
from pykoclaw_acp.model.permissions import Decision, PermissionRequest
from pykoclaw_acp.store import migrate, overview
from pykoclaw_acp.store.sqlite import sqlite3
from tests.integration.adopting import alive, daemon, found, killed
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.rig import Rig, claim_all, hanging, rig
from tests.waiting import eventually

__all__ = ["alive"]


async def places(r: Rig) -> list[tuple[str, int]]:
    """Each turn's words and its place, in the order of the places."""
    rows = await r.database.read("SELECT prompt, position FROM acp_turns ORDER BY position")
    return [
        (prompt[len('[{"type": "text", "text": "') : -len('"}]')], position)
        for prompt, position in rows
    ]


async def _go_on(r: Rig, channel: MemoryChannel, turn_id: str) -> None:
    await eventually(lambda: channel.adopted)
    channel.say(channel.ended(turn_id))


async def test_seven_simultaneous_prompts_keep_order_after_kill(
    tmp_path: Path, alive: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with killed(tmp_path, alive) as first:
        session, running, channel = await hanging(first)
        now = time.time_ns()
        monkeypatch.setattr(time, "time_ns", lambda: now)
        for at in range(1, 8):
            await first.prompt(session, f"say {at}")
    async with daemon(tmp_path, first) as second:
        again = await found(second, session)
        claim_all(again)
        await _go_on(second, channel, running.turn_id)
        await eventually(lambda: not again.busy)
        assert channel.prompts == ["hang", *(f"say {at}" for at in range(1, 8))]
        assert await places(second) == [("hang", 1), *((f"say {at}", at + 1) for at in range(1, 8))]


async def test_clock_set_back_between_prompts_changes_nothing(
    tmp_path: Path, alive: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time_ns()
    async with killed(tmp_path, alive) as first:
        session, running, channel = await hanging(first)
        for at, hours in ((1, 0), (2, -1), (3, 5), (4, -5)):
            monkeypatch.setattr(time, "time_ns", lambda hours=hours: now + hours * 3600 * 10**9)
            await first.prompt(session, f"say {at}")
        shown = await overview.details(first.database, session.id)
        assert [turn.state for turn in shown.turns] == ["queued"] * 4 + ["running"]
        assert [turn.created_at for turn in shown.turns[:4]] == [
            (now + hours * 3600 * 10**9) // 1_000_000 for hours in (-5, 5, -1, 0)
        ]
    async with daemon(tmp_path, first) as second:
        again = await found(second, session)
        claim_all(again)
        await _go_on(second, channel, running.turn_id)
        await eventually(lambda: not again.busy)
        assert channel.prompts == ["hang", "say 1", "say 2", "say 3", "say 4"]


async def test_positions_are_per_session_and_include_background_turns(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session, other = await r.session(), await r.session()
        for one in (session, other, session):
            await r.run(one, "say 1")
        channel = r.launcher.launched[0]
        channel.say(channel.started("background", background=True))
        channel.say(channel.ended("background"))
        await eventually(lambda: channel.acked == channel.last)
        await r.run(session, "say 2")
        rows = await r.database.read(
            "SELECT acp_session_id, position, origin FROM acp_turns ORDER BY position"
        )
        mine = [
            (position, origin) for session_id, position, origin in rows if session_id == session.id
        ]
        assert mine == [(1, "client"), (2, "client"), (3, "background"), (4, "client")]
        assert [position for session_id, position, _ in rows if session_id == other.id] == [1]


async def test_turn_from_parked_answer_may_run_unattended(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session, turn, channel = await hanging(r)
        session.subscriptions[0].close()
        channel.last += 1
        ask = PermissionRequest(
            epoch=channel.spec.epoch, n=channel.last, ask_id="q", turn_id=turn.turn_id, tool_call_id="c", title="Run",
            tool_kind="execute",
        )  # fmt: skip
        channel.say(ask)
        await eventually(lambda: session.permissions.pending_ids)
        away = session.permissions.away
        await eventually(lambda: away.unattended_since is not None)
        away.park_oldest()
        await eventually(turn.ended.done)
        await session.permissions.decide("q", Decision("selected", "allow_once", "somebody"))
        await eventually(lambda: len(r.launcher.launched) == 2 or len(channel.prompts) == 2)
        rows = await r.database.read("SELECT position, unattended FROM acp_turns ORDER BY position")
        assert rows == [(1, 0), (2, 1)]


def test_upgrade_numbers_unfinished_turns_leaving_room_for_ended(tmp_path: Path) -> None:
    path = tmp_path / "pykoclaw.db"
    before = [one for one in migrate.load() if one.version < 4]
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        migrate.apply(connection, before, path)
        sql = "INSERT INTO acp_sessions (acp_session_id, conversation_name, created_at, updated_at) VALUES (?, ?, 0, 0)"
        connection.executemany(sql, [("s", "c"), ("t", "d")])
        turns = [
            ("s", "done", 9), ("s", "running", 8), ("t", "done", 7), ("s", "queued", 2), ("t", "queued", 1),
            ("s", "queued", 3), ("s", "queued", 3), ("s", "failed", 1),
        ]  # fmt: skip
        connection.executemany(
            "INSERT INTO acp_turns (turn_id, acp_session_id, origin, prompt, state, created_at)"
            " VALUES (?, ?, 'client', '[]', ?, ?)",
            [
                (f"{9 - at}", session, state, created)
                for at, (session, state, created) in enumerate(turns)
            ],
        )
        migrate.apply(connection, migrate.load(), path)
        rows = connection.execute(
            "SELECT acp_session_id, state, position FROM acp_turns ORDER BY rowid"
        ).fetchall()
    assert rows == [
        ("s", "done", None), ("s", "running", 3), ("t", "done", None), ("s", "queued", 4), ("t", "queued", 2),
        ("s", "queued", 5), ("s", "queued", 6), ("s", "failed", None),
    ]  # fmt: skip


async def test_first_prompt_after_upgrade_follows_all_earlier_ones(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        for _ in range(3):
            await r.run(session, "say 1")
    with closing(sqlite3.connect(tmp_path / "pykoclaw.db", isolation_level=None)) as connection:
        connection.execute("UPDATE acp_turns SET position = NULL")
    async with rig(tmp_path) as r:
        again = await r.sessions.get(session.id)
        await r.run(again, "say 2")
        rows = await r.database.read("SELECT position FROM acp_turns WHERE position IS NOT NULL")
        assert rows == [(4,)]
