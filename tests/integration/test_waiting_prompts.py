"""A prompt that a new daemon finds waiting: of several clients, which ones can start it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from pykoclaw_acp.link.places import DATABASE
from pykoclaw_acp.store.sqlite import sqlite3
from tests.databases import place
from tests.integration.memory_front import MemoryFront
from tests.integration.memory_world import World, world
from tests.promises import check, turns


@dataclass
class Stage:
    """An author with a turn that runs and a prompt that waits, and another window of the program."""

    w: World
    path: Path
    author: MemoryFront
    window: MemoryFront
    session: str

    def state(self) -> str:
        """Of the prompt that waits."""
        return turns(self.w)[-1].state

    async def next_daemon(self) -> None:
        """The author ends, and the daemon: the next one ends the turn that ran."""
        if self.author in self.w.fronts:
            self.w.leave(self.author)
        await self.w.kill()
        assert await self.w.start()
        await self.w.quiet()
        worker = self.w.worker(self.session)
        assert worker is not None
        worker.end()
        await self.w.quiet()

    async def starts(self) -> bool:
        """Whether the prompt runs; if not, it has ended as one that was never begun."""
        await self.w.until(lambda: self.state() != "queued")
        check(self.w)
        assert self.state() in ("running", "dispatched", "cancelled")
        return self.state() != "cancelled"


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    place(data / DATABASE)
    with world(tmp_path) as w:
        try:
            assert await w.start()
            author, window = w.front("zed"), w.front("zed")
            made = author.new()
            await w.until(lambda: author.answer(made))
            session = author.asked[made].answer["result"]["sessionId"]  # type: ignore[index]
            loaded = window.load(session)
            await w.until(lambda: window.answer(loaded))
            for words in ("runs", "waits"):
                author.prompt(session, words)
            await w.until(lambda: [row.state for row in turns(w)] == ["running", "queued"])
            yield Stage(w, data / DATABASE, author, window, session)
        finally:
            await w.close()


async def test_window_that_merely_returns_starts_nothing(stage: Stage) -> None:
    await stage.next_daemon()
    assert not await stage.starts()


async def test_window_that_loads_starts_ended_ones_prompt(stage: Stage) -> None:
    await stage.next_daemon()
    stage.window.load(stage.session)
    assert await stage.starts()


async def test_client_of_another_name_starts_nothing(stage: Stage) -> None:
    await stage.next_daemon()
    stage.w.front("mitto").load(stage.session)
    assert not await stage.starts()


async def test_author_that_lives_keeps_its_prompt(stage: Stage) -> None:
    """Its process has another front, which has not opened the session."""
    other = stage.w.front("zed", stage.author.process)
    await stage.next_daemon()
    stage.window.load(stage.session)
    await stage.w.pass_by(20)
    assert stage.state() == "queued"
    other.resume(stage.session)
    assert await stage.starts()


async def test_other_front_of_same_process_starts_it(stage: Stage) -> None:
    other = stage.w.front("zed", stage.author.process)
    loaded = other.load(stage.session)
    await stage.w.until(lambda: other.answer(loaded))
    await stage.next_daemon()
    assert await stage.starts()


async def test_successor_that_merely_returns_starts_it(stage: Stage) -> None:
    """It took the ended one's place while the daemon before lived."""
    stage.w.leave(stage.author)
    successor = stage.w.front("zed")
    resumed = successor.resume(stage.session)
    await stage.w.until(lambda: successor.answer(resumed))
    await stage.w.pass_by(1)  # its place is stored
    await stage.next_daemon()
    assert await stage.starts()


async def test_nameless_prompt_is_nobody_elses(stage: Stage) -> None:
    """Of a version that kept no names."""
    stage.w.leave(stage.author)
    await stage.w.kill()
    with closing(sqlite3.connect(stage.path)) as connection, connection:
        connection.execute("UPDATE acp_turns SET client = NULL, instance = NULL")
        connection.execute("UPDATE acp_sessions SET client = NULL")
    assert await stage.w.start()
    await stage.next_daemon()
    stage.window.load(stage.session)
    assert not await stage.starts()
