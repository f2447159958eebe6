"""Files of images that no session uses: the daemon that wrote them died before the commit."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Final

import pytest

from pykoclaw_acp.link.places import DATABASE
from pykoclaw_acp.store import blobs
from pykoclaw_acp.store.blobs import ORPHAN_AGE
from pykoclaw_acp.system import clock
from tests.databases import place
from tests.integration.memory_front import MemoryFront
from tests.integration.memory_world import World, world
from tests.integration.rig import rig
from tests.integration.wires import client, new, prompt
from tests.pictures import image, png

PICTURE: Final = png(5, 5)
NAME: Final = hashlib.sha256(PICTURE).hexdigest()


def files(data: Path) -> list[str]:
    return sorted(one.name for one in (data / "blobs").glob("*"))


def picture(session: str) -> dict[str, Any]:
    return {**prompt(session, ""), "prompt": [image(PICTURE), {"type": "text", "text": "say 1"}]}


async def begin(w: World) -> tuple[MemoryFront, str]:
    front = w.front()
    number = front.new()
    await w.until(lambda: front.answer(number))
    return front, front.asked[number].answer["result"]["sessionId"]  # type: ignore[index]


@pytest.mark.parametrize("hours", [-50, 50])
async def test_unused_files_go_after_a_day(tmp_path: Path, hours: int) -> None:
    """Of a daemon that runs on, whatever the wall clock does; what a session uses stays."""
    unused = hashlib.sha256(b"the daemon died before the commit").hexdigest()
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    place(data / DATABASE)
    with world(tmp_path) as w:
        try:
            assert await w.start()
            client, session = await begin(w)
            client.ask("session/prompt", **picture(session))
            await w.until((data / "blobs" / NAME).exists)
            (data / "blobs" / unused).write_bytes(b"the daemon died before the commit")
            (data / "blobs" / f"{NAME}.1234.part").write_bytes(b"half")
            await w.restart()
            await w.until(lambda: len(files(data)) == 2)
            w.clock.jump(hours * 3600)
            await w.restart()
            await w.pass_by(60)
            assert files(data) == sorted([unused, NAME])
            w.clock.pass_by(ORPHAN_AGE)
            await w.until(lambda: files(data) == [NAME])
            w.clock.pass_by(ORPHAN_AGE)
            await w.pass_by(60)
            assert files(data) == [NAME]
            assert w.rows("SELECT * FROM acp_unused_blobs") == []
        finally:
            await w.close()


async def test_file_that_is_used_again_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        async with r.database.blobs.kept({NAME: PICTURE}):
            pass  # here the daemon died
        await blobs.remove_orphans(r.database)
        await wire.call("session/prompt", **picture(await new(wire)))
        uptime = clock.uptime
        monkeypatch.setattr(clock, "uptime", lambda: uptime() + int(ORPHAN_AGE * 1000))
        await blobs.remove_orphans(r.database)
        assert files(tmp_path) == [NAME]
