"""The launcher of local processes, when no fork server can run any more."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pykoclaw_acp.errors import RestartWanted
from pykoclaw_acp.pool.launcher import LaunchFailed
from pykoclaw_acp.pool.local import LocalLauncher
from pykoclaw_acp.worker.spec import LaunchSpec


@pytest.mark.parametrize("python", ["/bin/false", "/nonexistent/python"])
async def test_an_installation_that_was_taken_away_asks_for_a_restart(
    python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by an upgrade in place; the first failures may be of the moment."""
    monkeypatch.setattr(sys, "executable", python)
    launcher = LocalLauncher(tmp_path, resident=True)
    spec = LaunchSpec(
        instance="i",
        session_id="s",
        epoch=1,
        socket=str(tmp_path / "socket"),
        temporary=str(tmp_path / "tmp"),
        spool=str(tmp_path / "spool"),
        cwd="/",
        setting_sources=[],
        orphan_grace=0,
        spool_limit=0,
    )
    for _ in range(3):
        await launcher.probe()
        with pytest.raises(LaunchFailed, match=r"workers\.log"):
            await launcher.launch(spec)
    with pytest.raises(RestartWanted):
        await launcher.probe()
    await launcher.close()
