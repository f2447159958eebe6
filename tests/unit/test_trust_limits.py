"""Looks at directories that take long: they end, and keep nobody else waiting."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from functools import partial
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pykoclaw_acp.system import disks, threads
from pykoclaw_acp.system.mounts import Mounts
from pykoclaw_acp.trust import below, looking, markdown, watch
from pykoclaw_acp.trust.content import Content
from pykoclaw_acp.trust.scan import scan, unchanged
from tests.waiting import eventually, not_within

ALL = ("user", "project", "local")
MANY = 12


class Slow:
    """A look that takes until it may end."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.may_end = threading.Event()

    def scan(self, cwd: str, *_: Any) -> Content:
        self.begun.append(cwd)
        assert self.may_end.wait(60)
        return Content(resolved={cwd: cwd})


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    slow = Slow()
    monkeypatch.setattr(watch, "scan", slow.scan)
    return slow


async def test_slow_looks_leave_threads_to_other_calls(slow: Slow, tmp_path: Path) -> None:
    asyncio.get_running_loop().set_default_executor(threads.started())
    watching = watch.Watch()
    try:
        places = [str(tmp_path / str(number)) for number in range(MANY)]
        looks = {one: asyncio.create_task(watching.look(one, (), ALL)) for one in places}
        await eventually(lambda: len(slow.begun) == watch.LOOKS)
        waiting = next(one for one in places if one not in slow.begun)
        for one in (*slow.begun, waiting):
            looks.pop(one).cancel()
        await not_within(lambda: len(slow.begun) > watch.LOOKS)
        here = str(tmp_path)
        calls = [disks.call(here, partial(os.path.isdir, here)) for _ in range(MANY)]
        assert all(await asyncio.gather(*calls))
    finally:
        slow.may_end.set()
    seen = await asyncio.gather(*looks.values())
    assert [one.resolved for one in seen] == [{one: one} for one in looks]
    assert waiting not in slow.begun


async def test_slow_disk_keeps_no_other_waiting(
    slow: Slow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many looks at it wait."""
    asyncio.get_running_loop().set_default_executor(threads.started())
    net, here = tmp_path / "net", str(tmp_path)

    def scan(cwd: str, *more: Any) -> Content:
        return Content(resolved={cwd: cwd}) if cwd == here else slow.scan(cwd, *more)

    def disk_of(_: Mounts, path: str) -> str:
        return str(net) if path.startswith(str(net)) else path

    monkeypatch.setattr(watch, "scan", scan)
    monkeypatch.setattr(Mounts, "disk_of", disk_of)
    watching = watch.Watch()
    try:
        names = [str(net / str(number)) for number in range(MANY)]
        looks = [asyncio.create_task(watching.look(one, (), ALL)) for one in names]
        await eventually(lambda: len(slow.begun) == disks.EACH)
        async with asyncio.timeout(30):
            assert (await watching.look(here, (), ALL)).resolved == {here: here}
        assert len(slow.begun) == disks.EACH
    finally:
        slow.may_end.set()
    assert len(await asyncio.gather(*looks)) == MANY


def test_look_ends_when_its_time_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began, seconds = time.monotonic(), count()
    clock = SimpleNamespace(monotonic=lambda: began + next(seconds))
    monkeypatch.setattr(looking, "time", clock)
    read: list[bytes] = []

    def acting(data: bytes) -> list[str]:
        read.append(data)
        return []

    monkeypatch.setattr(markdown, "acting", acting)
    commands = tmp_path / ".claude/commands"
    commands.mkdir(parents=True)
    for number in range(100):
        (commands / f"{number}.md").write_text("words")
    (place,) = scan(str(tmp_path), (), ALL).acting
    assert 0 < len(read) <= looking.MAX_TIME < watch.LOOK_WAIT
    assert f"not everything was examined: it takes more than {looking.MAX_TIME:g} s" in str(
        place.found
    )
    assert not place.content, "what nobody has seen cannot be trusted"


def test_directory_that_has_grown_is_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of it is looked through for a worker only, not before each prompt."""
    monkeypatch.setattr(below, "QUICK", 3)
    content = scan(str(tmp_path), (), ALL)
    assert unchanged(content)
    for number in range(4):
        (tmp_path / str(number)).mkdir()
    assert not unchanged(content)
    assert unchanged(scan(str(tmp_path), (), ALL))
