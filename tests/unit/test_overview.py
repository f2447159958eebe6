"""What operators are shown of the database."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pykoclaw_acp.store import overview
from pykoclaw_acp.store.database import Database


def test_journal_that_vanishes_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with each commit where there is no write-ahead log."""
    database, journal = tmp_path / "pykoclaw.db", tmp_path / "pykoclaw.db-journal"
    database.write_bytes(b"12345")
    journal.write_bytes(b"123")
    stat = Path.stat

    def looked(path: Path, **given: Any) -> os.stat_result:
        found = stat(path, **given)
        if path == journal:
            journal.unlink()
        return found

    monkeypatch.setattr(Path, "stat", looked)
    size = partial(overview.size, cast("Database", SimpleNamespace(path=database)))
    assert size() == 8
    assert size() == 5
