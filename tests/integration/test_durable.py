"""What was acknowledged survives a power failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykoclaw_acp.store.group_commit import GroupCommit
from pykoclaw_acp.store.units import Unit
from tests.integration.rig import hanging, rig


@pytest.fixture
def committed(monkeypatch: pytest.MonkeyPatch) -> list[Unit]:
    units: list[Unit] = []
    commit = GroupCommit.commit

    async def noted(group: GroupCommit, unit: Unit) -> list[int]:
        units.append(unit)
        return await commit(group, unit)

    monkeypatch.setattr(GroupCommit, "commit", noted)
    return units


def inserts_session(unit: Unit) -> bool:
    return any("INSERT INTO acp_sessions" in one.sql for one in unit.statements)


async def test_sessions_and_ends_of_turns_are_synced(tmp_path: Path, committed: list[Unit]) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        assert [one.durable for one in committed if inserts_session(one)] == [True]
        assert (await r.run(session, "say 3")).state == "done"
        _, turn, channel = await hanging(r)
        channel.kill()
        assert (await turn.ended)[0].state != "done"
        assert [one.durable for one in committed if one.ends] == [True, True]
        assert any(one.events and not one.durable for one in committed), "what Claude says is not"
