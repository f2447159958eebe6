"""Where a client goes on whose front was shown more than a database that was put back has."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any, Final

import pytest

from pykoclaw_acp.link import client_process
from pykoclaw_acp.model.events import Text
from pykoclaw_acp.store.sqlite import sqlite3
from tests.integration.linked import Front, front, new, words
from tests.integration.rig import Rig, rig
from tests.waiting import eventually

EARLIER: Final = {"pid": 1, "start": 1, "boot": "earlier", "space": 1}  # a daemon


def place(seq: int, **more: Any) -> dict[str, Any]:
    """As a front says where its client stands."""
    return {"seq": seq, "seen": seq, "opened": {}, **more}


async def followed(r: Rig, session: str) -> int:
    """What others ask for after the restore; returns the log's end."""
    live = await r.sessions.get(session)
    await r.run(live, "say 9")
    return live.last_seq


def replace(live: Path, copy: Path) -> None:
    """As docs/operating.md says it."""
    for name in ("", "-wal", "-shm"):
        Path(f"{live}{name}").unlink(missing_ok=True)
    shutil.copy(copy, live)


@asynccontextmanager
async def put_back(path: Path) -> AsyncIterator[tuple[Rig, str, int, int]]:
    """A daemon of a database that was put back: its session, where the log ended in the copy, and
    how far the client had seen.
    """
    live, copy = path / "pykoclaw.db", path / "copy.db"
    async with rig(path) as r, front(r) as one:
        session = await new(one)
        await one.result(2, "session/prompt", **words(session, "say 1"))
        found = await r.sessions.get(session)
        end = found.last_seq
        with closing(sqlite3.connect(live)) as source, closing(sqlite3.connect(copy)) as target:
            source.backup(target)
        await one.result(3, "session/prompt", **words(session, "say 2"))
        seen = found.last_seq
    replace(live, copy)
    async with rig(path) as r:
        yield r, session, end, seen


async def is_shown_after(one: Front, seq: int, end: int) -> None:
    """It is sent everything after this place, up to the log's end."""
    await eventually(lambda: one.rests("attached") and [seq, *one.places()][-1] >= end)
    assert int(one.rests("attached")[0].split()[1]) == seq


async def test_growth_after_restore_is_shown_whole(tmp_path: Path) -> None:
    """Others have made the log longer than it had been, before the front came back."""
    async with put_back(tmp_path) as (r, session, end, seen):
        grown = await followed(r, session)
        assert grown > seen > end
        async with front(r, daemon=EARLIER, sessions={session: place(seen)}) as again:
            await is_shown_after(again, end, grown)
        # What it was told by this daemon is a place in this log.
        here = client_process.own()
        async with front(r, daemon=here, sessions={session: place(grown)}) as again:
            await eventually(lambda: again.rests("attached"))
            assert again.rests("attached")[0].split()[1] == str(grown)
        told = {session: place(seen, earlier=True)}
        async with front(r, daemon=here, sessions=told) as again:
            await is_shown_after(again, end, grown)


async def test_note_of_restore_reaches_returning_client(tmp_path: Path) -> None:
    """It is written before anybody comes."""
    async with put_back(tmp_path) as (r, session, end, seen):
        await r.journal.append(session, [Text("note", "It was put back.", note=True)])
        async with front(r, daemon=EARLIER, sessions={session: place(seen)}) as again:
            await is_shown_after(again, end, end + 1)
            assert "It was put back." in again.text()


@pytest.mark.parametrize("daemon", [None, {}, {"pid": "x"}, "nonsense"])
async def test_unknown_daemons_place_is_believed(tmp_path: Path, daemon: object) -> None:
    """That of a front of before, which does not say whose it is."""
    async with put_back(tmp_path) as (r, session, _, seen):
        grown = await followed(r, session)
        async with front(r, daemon=daemon, sessions={session: place(seen)}) as again:
            await is_shown_after(again, seen, grown)


async def test_restart_repeats_nothing_to_client(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        await one.result(2, "session/prompt", **words(session, "say 3"))
        seen = (await r.sessions.get(session)).last_seq
    async with rig(tmp_path) as r:
        grown = await followed(r, session)
        async with front(r, daemon=EARLIER, sessions={session: place(seen)}) as again:
            await is_shown_after(again, seen, grown)
