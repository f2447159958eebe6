"""What of Claude's offers is written: each worker that starts reports its own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pykoclaw_acp.model.choices import Command, Configuration, Model, Offer
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.journal.offers import SqlOfferStore
from pykoclaw_acp.store.sqlite import sqlite3

OPUS, SONNET = (Model("opus", "Opus"),), (Model("sonnet", "Sonnet"),)
HERE = Configuration()
NARROWER = Configuration(setting_sources=("user",))
OFFER = Offer((Command("compact"), Command("lint", "Lint (project)")), OPUS)
OF_USER = Command("mine", "Mine (user)")


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = await Database.open(tmp_path / "pykoclaw.db")
    yield database
    await database.close()


@pytest.fixture
def written(database: Database) -> Iterator[Callable[[], bool]]:
    """Says whether anything was committed since it was last asked: PRAGMA data_version counts what
    other connections commit.
    """
    with closing(sqlite3.connect(database.path)) as connection:
        seen = connection.execute("PRAGMA data_version").fetchone()

        def changed() -> bool:
            nonlocal seen
            before, seen = seen, connection.execute("PRAGMA data_version").fetchone()
            return bool(before != seen)

        yield changed


async def test_unchanged_offer_is_not_written_again(
    database: Database, written: Callable[[], bool]
) -> None:
    store = SqlOfferStore(database)
    await store.keep_offer("/a", OFFER, HERE)
    assert written()
    await store.keep_offer("/a", OFFER, HERE)
    assert not written()
    project = Offer((Command("compact"), Command("test", "Test (project)")), OPUS)
    await store.keep_offer("/b", project, HERE)
    assert written()
    for _ in range(2):  # directories in turn: only the commands of their projects differ
        await store.keep_offer("/a", OFFER, HERE)
        await store.keep_offer("/b", project, HERE)
    assert not written()
    assert await store.offer("/a", HERE) == OFFER
    assert await store.offer("/c", HERE) == Offer((Command("compact"),), OPUS)


@pytest.mark.parametrize(
    ("offer", "configuration"),
    [
        (Offer(OFFER.commands, SONNET), HERE),
        (Offer((*OFFER.commands, OF_USER), OPUS), HERE),
        (Offer(OFFER.commands[:1], OPUS), HERE),
        (OFFER, NARROWER),
    ],
)
async def test_changed_offer_is_written(
    database: Database, written: Callable[[], bool], offer: Offer, configuration: Configuration
) -> None:
    store = SqlOfferStore(database)
    await store.keep_offer("/a", OFFER, HERE)
    assert written()
    await store.keep_offer("/a", offer, configuration)
    assert written()
    assert await store.offer("/a", configuration) == offer


@pytest.mark.parametrize("other", [Offer((Command("compact"), OF_USER), OPUS), Offer((), SONNET)])
async def test_unchanged_offer_becomes_the_newest_where_others_differ(
    database: Database, written: Callable[[], bool], other: Offer
) -> None:
    store = SqlOfferStore(database)
    await store.keep_offer("/a", OFFER, HERE)
    await store.keep_offer("/b", other, HERE)
    assert written()
    await store.keep_offer("/a", OFFER, HERE)
    assert written()
    assert await store.offer("/c", HERE) == Offer((Command("compact"),), OPUS)
