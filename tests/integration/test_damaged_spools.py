"""Damaged spools: what can be read is in the log, what cannot is said there, and the next daemon
goes on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO
from unittest.mock import MagicMock

import pytest

from pykoclaw_acp.channel import salvage
from pykoclaw_acp.channel.frames import EventFrame, FromWorker, Gap, encode
from pykoclaw_acp.channel.processes import WorkerProcess
from pykoclaw_acp.channel.spec import WorkerIdentity
from pykoclaw_acp.model.events import Failure, Text
from pykoclaw_acp.model.permissions import PermissionRequest
from pykoclaw_acp.pool import leftovers
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.store.sqlite import sqlite3
from tests.databases import on_writer
from tests.integration.adopting import (
    _write_spool,
    alive,
    daemon,
    die,
    ended,
    found,
    killed,
    texts,
)
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.rig import Rig, hanging, rig
from tests.statements import watched
from tests.waiting import eventually

__all__ = ["alive"]
MISSING = "Something is missing here."


def spool(
    channel: MemoryChannel, turn_id: str, *, without: tuple[int, ...] = (), garbage: bytes = b""
) -> Path:
    """Five words and the turn's end; of some frames something else is in the file."""
    frames: list[Any] = [
        channel.told[-1],
        *(channel.event(turn_id, f"w{at} ") for at in range(1, 6)),
    ]
    frames.append(channel.ended(turn_id))
    data = b"".join(garbage if at in without else encode(one) for at, one in enumerate(frames))
    return Path(_write_spool(channel, data))


def there(path: Path) -> bool:
    return os.path.lexists(path)


def plain(said: list[str]) -> str:
    """All of it, a gap in square brackets."""
    return "".join("[gap] " if MISSING in text else text for text in said)


@pytest.mark.parametrize(
    "garbage", [b"", b"garbage\n", b"\0" * 5000 + b"\n", b'{"frame":"event","epoch":1,"n":\xff}\n']
)
async def test_gap_is_noted_in_place_and_spool_kept(
    tmp_path: Path, alive: WorkerProcess, garbage: bytes
) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
    path = spool(channel, turn.turn_id, without=(2, 3), garbage=garbage)
    written = path.read_bytes()
    await die(alive)
    for _ in range(2):  # the second start finds nothing more to do
        async with daemon(tmp_path) as after:
            assert await after.states() == {turn.turn_id: "done"}
            said = await texts(after, session)
            assert plain(said) == "w1 [gap] w4 w5 "
            (kept,) = leftovers.kept(tmp_path)
            assert str(kept) in said[1]
            assert "2 of its entries" in said[1]
            assert kept.read_bytes() == written
            assert not there(path)
            assert await after.database.read("SELECT * FROM acp_workers") == []
            assert await after.seqs(session) == list(
                range(1, (await found(after, session)).last_seq + 1)
            )


async def test_next_daemon_starts_despite_damaged_log(tmp_path: Path, alive: WorkerProcess) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
        channel.say(channel.event(turn.turn_id, "w0 "))
        await eventually(lambda: channel.acked == channel.last)
        damaged = (
            "UPDATE acp_log SET payload = CAST(CAST(payload AS BLOB) || x'ff' AS TEXT)"
            " WHERE seq = (SELECT MAX(seq) FROM acp_log)"
        )
        await on_writer(first.database, lambda connection: connection.execute(damaged).rowcount)
    spool(channel, turn.turn_id)
    await die(alive)
    async with daemon(tmp_path) as after:
        assert await after.states() == {turn.turn_id: "done"}
        assert plain(await texts(after, session)) == "w1 w2 w3 w4 w5 "


async def test_frame_that_sqlite_refuses_is_a_gap(
    tmp_path: Path, alive: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
    spool(channel, turn.turn_id)
    await die(alive)

    def refusing(_: sqlite3.Connection, sql: str, parameters: object) -> None:
        if sql.startswith("INSERT INTO acp_log ") and "w3 " in str(parameters):
            raise sqlite3.DataError("string or blob too big")

    watched(monkeypatch).before = refusing
    async with daemon(tmp_path) as after:
        assert await after.states() == {turn.turn_id: "done"}
        assert plain(await texts(after, session)) == "w1 w2 [gap] w4 w5 "


async def test_truncated_line_is_noted_and_turn_ends_failed(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
    path = spool(channel, turn.turn_id)
    os.truncate(path, path.stat().st_size - 10)
    await die(alive)
    async with daemon(tmp_path) as after:
        assert await after.states() == {turn.turn_id: "failed"}
        assert plain(await texts(after, session)) == "w1 w2 w3 w4 w5 [gap] "


async def test_frame_refused_by_database_affects_no_other(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
        channel.last += 1
        head = {
            "epoch": 1,
            "turn_id": turn.turn_id,
            "tool_call_id": "c",
            "title": "Run",
            "tool_kind": "execute",
        }
        channel.say(PermissionRequest(**head, n=channel.last, ask_id="q"))  # type: ignore[arg-type]
        await eventually(lambda: channel.acked == channel.last)
    one = channel.event(turn.turn_id, "one ")
    channel.last += 1
    twice = PermissionRequest(**head, n=channel.last, ask_id="q")  # type: ignore[arg-type]
    frames: list[FromWorker] = [
        one,
        twice,
        channel.event(turn.turn_id, "two "),
        channel.ended(turn.turn_id),
    ]
    _write_spool(channel, b"".join(map(encode, frames)))
    await die(alive)
    async with daemon(tmp_path) as after:
        assert await after.states() == {turn.turn_id: "done"}
        assert plain(await texts(after, session)) == "one [gap] two "
        assert len(leftovers.kept(tmp_path)) == 1


FRAMES = salvage.frames


class Sick:
    """The disk under a spool: reading fails at a line, so many times; None: for good."""

    def __init__(self, line: int, times: int | None) -> None:
        self.line = line
        self.times = times
        self.failed = 0

    def __call__(self, file: BinaryIO, epoch: int, after: int) -> Iterator[FromWorker]:
        """In the place of `salvage.frames`."""
        return FRAMES(self._sick(file), epoch, after)

    def _sick(self, file: BinaryIO) -> BinaryIO:
        lines = iter(file.readlines()[: self.line])
        file.seek(0)

        def readline(_: int) -> bytes:
            if line := next(lines, b""):
                return line
            if self.times is not None and self.failed >= self.times:
                return b""
            self.failed += 1
            raise OSError(5, "Input/output error")

        if self.times is not None and self.failed >= self.times:
            return file
        return MagicMock(readline=readline)


async def order(r: Rig, session: Any) -> list[str]:
    """What the log says, the turn's end included; a gap in square brackets."""
    logged = [one.event for one in await SessionJournal(r.database).read(session.id, 0, 1000)]
    said = [one.text for one in logged if isinstance(one, Text | Failure)]
    return [
        "[gap]" if MISSING in text else "[end]" if "not sent again" in text else text
        for text in said
    ]


@pytest.mark.parametrize("line", [0, 3])
async def test_temporarily_unreadable_spool_is_waited_for(
    tmp_path: Path, alive: WorkerProcess, monkeypatch: pytest.MonkeyPatch, line: int
) -> None:
    monkeypatch.setattr(leftovers, "FIRST_PAUSE", 0.001)
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
    path = spool(channel, turn.turn_id)
    await die(alive)
    sick = Sick(line, times=3)
    monkeypatch.setattr(salvage, "frames", sick)
    async with daemon(tmp_path) as after:
        assert sick.failed == 3
        assert await after.states() == {turn.turn_id: "done"}
        assert plain(await texts(after, session)) == "w1 w2 w3 w4 w5 "
        assert not there(path)
        assert leftovers.kept(tmp_path) == []


@pytest.mark.parametrize("line", [0, 3])
async def test_persistently_unreadable_spool_is_noted_lost_before_end(
    tmp_path: Path, alive: WorkerProcess, monkeypatch: pytest.MonkeyPatch, line: int
) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
    path = spool(channel, turn.turn_id)
    written = path.read_bytes()
    await die(alive)
    with monkeypatch.context() as patch:
        patch.setattr(leftovers, "PATIENCE", 0.05)
        patch.setattr(salvage, "frames", Sick(line, times=None))
        async with daemon(tmp_path) as after:
            assert await after.states() == {turn.turn_id: "failed" if line else "unknown"}
    async with daemon(tmp_path) as after:  # now it could be read: that is too late
        assert await order(after, session) == [*(["w1 w2 "] if line else []), "[gap]", "[end]"]
        (kept,) = leftovers.kept(tmp_path)
        assert str(kept) in "".join(await texts(after, session))
        assert kept.read_bytes() == written
        assert not there(path)
        assert (await after.run(await found(after, session), "say 1")).state == "done"


@pytest.mark.parametrize(("patience", "expected"), [(60.0, "said "), (0.05, "[gap]")])
async def test_dying_workers_spool_precedes_end_or_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, patience: float, expected: str
) -> None:
    monkeypatch.setattr(leftovers, "FIRST_PAUSE", 0.001)
    monkeypatch.setattr(leftovers, "PATIENCE", patience)
    async with rig(tmp_path) as r:
        session, turn, channel = await hanging(r)
        path = Path(_write_spool(channel, encode(channel.event(turn.turn_id, "said "))))

        async def deliver(worker: WorkerIdentity, after: int, into: Any) -> None:
            await leftovers.deliver(path, worker.epoch, after, into)

        with monkeypatch.context() as patch:
            patch.setattr(r.launcher, "deliver_spool", deliver)
            patch.setattr(salvage, "frames", Sick(0, times=None if expected == "[gap]" else 3))
            channel.kill()
            assert (await asyncio.wait_for(turn.ended, 30))[0].state in ("failed", "unknown")
        assert await order(r, session) == [expected, "[end]"]
        assert (await r.run(session, "say 1")).state == "done"


async def test_a_worker_that_lives_tells_its_gap_itself(
    tmp_path: Path, alive: WorkerProcess
) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
    before = channel.last
    async with daemon(tmp_path, first) as second:
        again = await found(second, session)
        await eventually(lambda: channel.adopted)
        channel.last += 4
        channel.say(Gap(epoch=1, n=channel.last, first=before + 1))
        channel.say(channel.event(turn.turn_id, "on "), channel.ended(turn.turn_id))
        assert (await ended(again)).state == "done"
        said = await texts(second, session)
        assert plain(said) == "[gap] on "
        assert "is kept" not in said[0]


async def test_worker_dying_under_living_daemon_leaves_readable_frames(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session, turn, channel = await hanging(r)
        n = channel.last
        after_gap = EventFrame(epoch=1, n=n + 3, turn_id=turn.turn_id, event=Text("m", "late "))
        channel.last += 3
        gap = Gap(epoch=1, n=n + 2, first=n + 1, turn_id=turn.turn_id, file="/kept")
        r.launcher.spools[channel.spec.cookie] = [[gap, after_gap, channel.ended(turn.turn_id)]]
        channel.kill()
        assert (await turn.ended)[0].state == "done"
        said = await texts(r, session)
        assert plain(said) == "[gap] late "
        assert "/kept" in said[0]
