"""Copies of the history that a killed server has left, wherever it made them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.link.places import DATABASE, Places
from pykoclaw_acp.server.app import App
from pykoclaw_acp.store import history_copy


@pytest.fixture
def places(tmp_path: Path) -> Places:
    """With a database."""
    made = Places(str(tmp_path / "data"), str(tmp_path / "state"), str(tmp_path / "run" / "s"))
    Path(made.data).mkdir(mode=0o700)
    Path(made.data, DATABASE).touch(mode=0o600)
    return made


async def test_good_start_removes_copies_of_its_history(
    tmp_path: Path, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = [Path(places.directory), Path(places.socket).parent, tmp_path / "tmp"]
    monkeypatch.setattr(tempfile, "tempdir", str(beside[-1]))
    name = history_copy.name_of(Path(places.data, DATABASE))
    copies = [*(place / name for place in beside), beside[0] / history_copy.FORMER]
    for copy in copies:
        copy.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy.mkdir()
        (copy / DATABASE).write_text("history")
    app = await App.start(
        Settings(data=Path(places.data), state=Path(places.state)), places, resident=True
    )
    try:
        assert [copy for copy in copies if copy.exists()] == []
    finally:
        await app.detach()
