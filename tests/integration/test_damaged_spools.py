"""Damaged spools: what can be read is in the log, what cannot is said there, and the next daemon goes on."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.channel.frames import EventFrame, FromWorker, Gap, encode
from pykoclaw_acp.channel.processes import WorkerProcess
from pykoclaw_acp.model.events import Text
from pykoclaw_acp.model.permissions import PermissionRequest
from pykoclaw_acp.pool import leftovers
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.test_adoption import _die, _write_spool, alive, daemon, ended, found, killed, texts
from tests.integration.test_pool import hanging, rig
from tests.waiting import eventually

__all__ = ["alive"]
MISSING = "Something is missing here."


def spool(channel: MemoryChannel, turn_id: str, *, without: tuple[int, ...] = (), garbage: bytes = b"") -> Path:
    """Five words and the turn's end; of some frames something else is in the file."""
    frames: list[Any] = [channel._told[-1], *(channel.event(turn_id, f"w{at} ") for at in range(1, 6))]
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
async def test_a_gap_is_said_in_its_place_and_the_file_is_kept(
    tmp_path: Path, alive: WorkerProcess, garbage: bytes
) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
    path = spool(channel, turn.turn_id, without=(2, 3), garbage=garbage)
    written = path.read_bytes()
    await _die(alive)
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
            assert await after.seqs(session) == list(range(1, (await found(after, session)).last_seq + 1))


async def test_a_line_that_was_cut_off_is_said_and_the_turn_ends_in_words(tmp_path: Path, alive: WorkerProcess) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
    path = spool(channel, turn.turn_id)
    os.truncate(path, path.stat().st_size - 10)
    await _die(alive)
    async with daemon(tmp_path) as after:
        assert await after.states() == {turn.turn_id: "failed"}
        assert plain(await texts(after, session)) == "w1 w2 w3 w4 w5 [gap] "


async def test_a_frame_that_the_database_refuses_takes_no_other_with_it(tmp_path: Path, alive: WorkerProcess) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
        channel._n += 1
        head = {"epoch": 1, "turn_id": turn.turn_id, "tool_call_id": "c", "title": "Run", "tool_kind": "execute"}
        channel.say(PermissionRequest(**head, n=channel._n, ask_id="q"))  # type: ignore[arg-type]
        await eventually(lambda: channel.acked == channel._n)
    one = channel.event(turn.turn_id, "one ")
    channel._n += 1
    twice = PermissionRequest(**head, n=channel._n, ask_id="q")  # type: ignore[arg-type]
    frames: list[FromWorker] = [one, twice, channel.event(turn.turn_id, "two "), channel.ended(turn.turn_id)]
    _write_spool(channel, b"".join(map(encode, frames)))
    await _die(alive)
    async with daemon(tmp_path) as after:
        assert await after.states() == {turn.turn_id: "done"}
        assert plain(await texts(after, session)) == "one [gap] two "
        assert len(leftovers.kept(tmp_path)) == 1


async def test_a_spool_that_cannot_be_read_now_is_tried_again_at_the_next_start(
    tmp_path: Path, alive: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
    path = spool(channel, turn.turn_id)
    await _die(alive)

    def refuse(*_: object) -> Any:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(leftovers, "_open", refuse)
        async with daemon(tmp_path) as after:
            assert await after.states() == {turn.turn_id: "unknown"}
            assert await texts(after, session) == []
            assert there(path)
    async with daemon(tmp_path) as after:
        assert plain(await texts(after, session)) == "w1 w2 w3 w4 w5 "
        assert not there(path)
        assert leftovers.kept(tmp_path) == []


async def test_a_worker_that_lives_tells_its_gap_itself(tmp_path: Path, alive: WorkerProcess) -> None:
    async with killed(tmp_path, alive) as first:
        session, turn, channel = await hanging(first)
    before = channel._n
    async with daemon(tmp_path, first) as second:
        again = await found(second, session)
        await eventually(lambda: channel._adopted)
        channel._n += 4
        channel.say(Gap(epoch=1, n=channel._n, first=before + 1))
        channel.say(channel.event(turn.turn_id, "on "), channel.ended(turn.turn_id))
        assert (await ended(again)).state == "done"
        said = await texts(second, session)
        assert plain(said) == "[gap] on "
        assert "is kept" not in said[0]


async def test_a_worker_that_dies_under_a_living_daemon_leaves_what_can_be_read(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session, turn, channel = await hanging(r)
        n = channel._n
        after_gap = EventFrame(epoch=1, n=n + 3, turn_id=turn.turn_id, event=Text("m", "late "))
        channel._n += 3
        gap = Gap(epoch=1, n=n + 2, first=n + 1, turn_id=turn.turn_id, file="/kept")
        r.launcher.spools[channel.spec.cookie] = [[gap, after_gap, channel.ended(turn.turn_id)]]
        channel.kill()
        assert (await turn.ended)[0].state == "done"
        said = await texts(r, session)
        assert plain(said) == "[gap] late "
        assert "/kept" in said[0]
