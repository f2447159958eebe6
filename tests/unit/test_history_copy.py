"""A copy to read history from: whatever the system refuses on the way, nothing is left half and
nothing breaks.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.errors import DatabaseUnusable
from pykoclaw_acp.store import history_copy, preflight
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.sqlite import sqlite3
from tests import damaged, databases
from tests.double.files import first_schema


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "pykoclaw.db"
    path.parent.mkdir()
    path.write_bytes(b"database")
    path.with_name("pykoclaw.db-wal").write_bytes(b"log")
    return path


@pytest.fixture
def spare(tmp_path: Path) -> list[Path]:
    places = [tmp_path / name for name in ("first", "second")]
    for place in places:
        place.mkdir(mode=0o700)
    return places


def failing(real: Callable[..., Any], number: int, at: Callable[..., bool]) -> Callable[..., Any]:
    def call(*given: Any, **named: Any) -> Any:
        if at(*given):
            raise OSError(number, os.strerror(number), str(given[0]))
        return real(*given, **named)

    return call


def files(place: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in place.iterdir()}


def test_the_first_place_with_room_is_taken(path: Path, spare: list[Path]) -> None:
    copied = history_copy.make(path, spare)
    assert copied == spare[0] / history_copy.name_of(path) / path.name
    assert files(copied.parent) == {"pykoclaw.db": b"database", "pykoclaw.db-wal": b"log"}
    assert copied.parent.stat().st_mode & 0o777 == 0o700
    assert copied.stat().st_mode & 0o777 == 0o600
    history_copy.remove(copied)
    assert list(spare[0].iterdir()) == []


def test_copies_of_two_databases_share_a_place(
    path: Path, spare: list[Path], tmp_path: Path
) -> None:
    other = tmp_path / "other" / path.name
    other.parent.mkdir()
    other.write_bytes(b"another")
    copies = [history_copy.make(one, spare[:1]) for one in (path, other)]
    assert [one and one.read_bytes() for one in copies] == [b"database", b"another"]
    assert copies[1] is not None
    history_copy.remove(copies[1])
    assert copies[0] is not None
    assert copies[0].exists()


def test_copy_of_killed_server_is_removed(path: Path, spare: list[Path]) -> None:
    for place in spare:
        assert history_copy.make(path, [place])
    kept = spare[1] / "history-copy-of-another"
    kept.mkdir()
    history_copy.remove_left(path, spare)
    assert [list(place.iterdir()) for place in spare] == [[], [kept]]


def test_what_cannot_be_looked_at_is_not_copied(
    path: Path, spare: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    eio = failing(Path.stat, errno.EIO, lambda one, *_: one.name.startswith("pykoclaw.db"))
    monkeypatch.setattr(Path, "stat", eio)
    assert history_copy.make(path, spare) is None
    assert not history_copy.is_worth_it(path)
    assert [list(place.iterdir()) for place in spare] == [[], []]


@pytest.mark.parametrize(
    ("owner", "name", "number"),
    [
        (shutil, "disk_usage", errno.EIO),
        (Path, "mkdir", errno.EROFS),
        (shutil, "copyfileobj", errno.ENOSPC),
        (os, "open", errno.EIO),
    ],
)
def test_failing_place_is_left_empty_and_next_used(
    path: Path,
    spare: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    number: int,
) -> None:
    """At whatever step, also after a part was written."""

    def at_first(one: Any, target: Any = None, *_: Any) -> bool:
        if name == "open" and not target & os.O_CREAT:
            return False
        if name == "copyfileobj":
            one = os.readlink(f"/proc/self/fd/{target.fileno()}")
        return str(spare[0]) in str(one)

    monkeypatch.setattr(owner, name, failing(getattr(owner, name), number, at_first))
    assert history_copy.make(path, spare) == spare[1] / history_copy.name_of(path) / path.name
    assert list(spare[0].iterdir()) == []
    assert history_copy.make(path, spare[:1]) is None


def test_symlink_at_copy_path_is_not_followed(
    path: Path, spare: list[Path], tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (spare[0] / history_copy.name_of(path)).symlink_to(elsewhere)
    assert history_copy.make(path, spare) == spare[1] / history_copy.name_of(path) / path.name
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("statement", ["", "CREATE TABLE"])
async def test_unusable_copy_is_removed_and_reported(
    tmp_path: Path, spare: list[Path], monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    """It cannot be opened, or not be migrated."""
    path = tmp_path / "pykoclaw.db"
    first_schema(tmp_path)
    connect, refused = sqlite3.connect, sqlite3.OperationalError("unable to open database file")
    refused.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN

    class Full(sqlite3.Connection):
        def execute(self, sql: str, *given: Any) -> sqlite3.Cursor:
            if statement in sql:
                error = sqlite3.OperationalError("database or disk is full")
                error.sqlite_errorcode = sqlite3.SQLITE_FULL
                raise error
            return super().execute(sql, *given)

    def cannot(file: Any, *given: Any, **named: Any) -> Any:
        if Path(file) == path:
            raise refused
        if Path(file).parent.name != history_copy.name_of(path):
            return connect(file, *given, **named)
        if not statement:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return connect(file, *given, **named, factory=Full)

    monkeypatch.setattr(sqlite3, "connect", cannot)
    with pytest.raises(DatabaseUnusable) as caught:
        await Database.open(path, spare)
    why = "database or disk is full" if statement else "Input/output error"
    message = str(caught.value)
    assert f"The database {path} cannot be written, and the copy" in message
    assert f"of it cannot be used: {why}. A file of the database cannot be opened." in message
    assert [list(place.iterdir()) for place in spare] == [[], []]


async def test_damaged_file_is_not_copied(
    tmp_path: Path, spare: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is so large that no start checks all of it."""
    monkeypatch.setattr(preflight, "FULL_CHECK_LIMIT", 0)
    monkeypatch.setattr(history_copy, "make", None)
    path = databases.place(tmp_path / "pykoclaw.db")
    damaged.table(path, "acp_clock")
    with pytest.raises(DatabaseUnusable, match=f"database {path} is damaged: .* Restore a backup"):
        await Database.open(path, spare)


async def test_damage_that_a_migration_meets_is_named(
    tmp_path: Path, spare: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "FULL_CHECK_LIMIT", 0)
    path = databases.with_old_log(tmp_path, "11111111-aaaa-4aaa-8aaa-aaaaaaaaaaaa", "/", ["word"])
    damaged.table(path, "acp_sessions")
    with pytest.raises(DatabaseUnusable) as caught:
        await Database.open(path, spare)
    message = str(caught.value)
    assert f".sql failed on the database {path}: " in message
    assert (
        f"The file is damaged. Restore a backup of it, or save what can be read with `sqlite3 {path}"
        in message
    )
    assert [list(place.iterdir()) for place in spare] == [[], []]
