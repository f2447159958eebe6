"""The store fails at each statement that brings a database of an older version up to date: nothing
of it is lost, and a later start goes on.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from pykoclaw_acp.link.places import DATABASE
from pykoclaw_acp.store import migrate, pieces
from tests.databases import with_old_log
from tests.double import files
from tests.integration.memory_front import CWD
from tests.integration.memory_world import World, world
from tests.integration.rest import come_to_rest
from tests.integration.schemas import query
from tests.integration.store_faults import (
    BUSY,
    CORRUPT,
    FULL,
    IOERR,
    READONLY,
    UNSURE,
    StoreError,
)
from tests.promises import check_at_rest

SESSION: Final = "11111111-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
WORDS: Final = [f"word {number}, " for number in range(20)]
LONGEST: Final = 2000  # statements, above which something is wrong
STRIDE: Final = 37  # of the ordinary test; no factor of how many errors take turns
MOMENTS: Final = {"once": 1, "for a while": 4, "until healed": None}
IN_TURN: Final = [
    (FULL, "until healed"),
    (FULL, "once"),
    (BUSY, "for a while"),
    (READONLY, "until healed"),
    (IOERR, "once"),
    (CORRUPT, "for a while"),
    (UNSURE, "until healed"),
]


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """pykoclaw's first tables, and a session of ours whose log is in the old form."""
    return with_old_log(tmp_path_factory.mktemp("old"), SESSION, CWD, WORDS)


async def everything_is_there(w: World, path: Path, old: Path) -> None:
    """The old history is shown and goes on; pykoclaw's rows are as they were; nothing is left in
    the old form.
    """
    client = w.front()
    loaded = client.load(SESSION)
    await w.until(lambda: client.answer(loaded))
    assert client.views[SESSION].text == "".join(WORDS)
    client.prompt(SESSION, "And on.")
    await come_to_rest(w)  # it is asked again if it came before the database could be written
    answers = [one.answer or {} for one in client.asked.values() if one.method == "session/prompt"]
    assert answers[-1]["result"]["stopReason"] == "end_turn"
    await w.until(lambda: w.rows("SELECT COUNT(*) FROM acp_events") == [(0,)])
    check_at_rest(w)
    after = files.contents(path)
    for table, rows in files.contents(old).items():
        kept = [{name: row[name] for name in rows[0]} for row in after[table]] if rows else []
        assert [row for row in rows if row not in kept] == [], f"{table} lost rows"
    assert query(path, "SELECT COUNT(*), MAX(version) FROM acp_migrations") == [
        (len(migrate.load()), migrate.load()[-1].version)
    ]
    assert query(path, "PRAGMA integrity_check") == [("ok",)]


async def play(folder: Path, old: Path, error: StoreError, after: int, times: int | None) -> bool:
    """A start that fails after so many statements, and one that does not; False if there are
    fewer statements.
    """
    path = folder / "data" / DATABASE
    path.parent.mkdir(parents=True, mode=0o700)
    shutil.copy(old, path)
    with world(folder) as w:
        try:
            w.faults.arm(error, after, times)
            if await w.start():
                await w.pass_by(10)
            failed = w.faults.raised > 0
            if w.app is not None and error.kept:
                await w.kill()  # only so it can be that this is found in the file
            w.faults.heal()
            if w.app is None:
                assert await w.start()
            await everything_is_there(w, path, old)
        finally:
            await w.close()
    return failed


async def every_statement(
    path: Path, old: Path, kinds: Sequence[tuple[StoreError, str]], stride: int = 1
) -> None:
    for after in range(0, LONGEST, stride):
        error, moment = kinds[after // stride % len(kinds)]
        try:
            if not await play(path / str(after), old, error, after, MOMENTS[moment]):
                assert after > 100, "the conversion writes next to nothing"
                return
        except AssertionError as failure:
            failure.add_note(f"{error} {moment}, after {after} statements")
            raise
    raise AssertionError("the conversion never ends")


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "LARGEST", 7)
    monkeypatch.setattr(pieces, "SMALLEST", 7)


async def test_failed_conversion_of_old_database_loses_nothing(tmp_path: Path, old: Path) -> None:
    await every_statement(tmp_path, old, IN_TURN, STRIDE)


@pytest.mark.long
async def test_error_at_every_statement_of_conversion_loses_nothing(
    tmp_path: Path, old: Path
) -> None:
    await every_statement(tmp_path, old, IN_TURN)
