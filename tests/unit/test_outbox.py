"""The worker's frames: numbered, merged while unsent, kept until acknowledged, on disk while no
daemon takes them.
"""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pykoclaw_acp.channel.decoding import ENDED_UNREADABLY, decode_from_worker
from pykoclaw_acp.channel.frames import (
    EventFrame,
    Gap,
    Lost,
    Ready,
    Skipped,
    TurnEnded,
    TurnStarted,
    check_order,
    decode_to_worker,
    encode,
)
from pykoclaw_acp.channel.spool import Spool
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.events import Text, Thinking
from pykoclaw_acp.pool import leftovers
from pykoclaw_acp.pool.leftovers import read_spool
from pykoclaw_acp.worker import outbox
from pykoclaw_acp.worker.failures import spool_full
from pykoclaw_acp.worker.outbox import MAX_UNACKNOWLEDGED, MAX_UNSENT, Outbox
from tests.waiting import eventually, not_within


class Box:
    """An outbox with its spool; `full` counts how often that was."""

    def __init__(self, directory: Path, limit: int = 1024 * 1024 * 1024) -> None:
        self.path = directory / "spool.ndjson"
        self.full = 0
        self.trouble: OSError | None = None
        self.outbox = Outbox(Spool(str(self.path), 1), limit, self._fill)

    def _fill(self, trouble: OSError | None) -> None:
        self.full += 1
        self.trouble = trouble

    @property
    def on_disk(self) -> list[tuple[int, str]]:
        return sent(self.path.read_bytes()) if self.path.exists() else []


@pytest.fixture
def box(tmp_path: Path) -> Box:
    made = Box(tmp_path)
    made.outbox.attach(0)
    return made


def frame(
    text: str, message_id: str = "m", turn_id: str = "t", kind: type[Text | Thinking] = Text
) -> EventFrame:
    return EventFrame(epoch=1, turn_id=turn_id, event=kind(message_id, text))


def end() -> TurnEnded:
    return TurnEnded(epoch=1, turn_id="t", stop_reason="end_turn", claude_session_id="c")


def sent(data: bytes) -> list[tuple[int, str]]:
    frames = [decode_from_worker(line) for line in data.splitlines()]
    return [
        (f.n, f.event.text)
        for f in frames
        if isinstance(f, EventFrame) and isinstance(f.event, Text | Thinking)
    ]


async def spilled(outbox: Outbox) -> None:
    """Let `take` see that there is no daemon."""
    taking = asyncio.ensure_future(outbox.take())
    await asyncio.sleep(0)
    taking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await taking


async def test_unsent_deltas_of_one_message_are_one_event(box: Box) -> None:
    for text in ("a", "b", "c"):
        box.outbox.put(frame(text))
    box.outbox.put(frame("x", message_id="other"))
    box.outbox.put(frame("y", message_id="other", kind=Thinking))
    box.outbox.put(frame("z", message_id="other", kind=Thinking, turn_id="t2"))
    assert sent(await box.outbox.take()) == [(1, "abc"), (2, "x"), (3, "y"), (4, "z")]
    box.outbox.put(frame("d"))
    assert sent(await box.outbox.take()) == [(5, "d")]
    assert not box.path.exists()


async def test_sending_pauses_while_too_much_is_unacknowledged(box: Box) -> None:
    for at in range(4):
        box.outbox.put(frame("x" * (MAX_UNACKNOWLEDGED // 2), message_id=str(at)))
    assert [n for n, _ in sent(await box.outbox.take())] == [1, 2]
    waiting = asyncio.ensure_future(box.outbox.take())
    await not_within(waiting.done)
    box.outbox.acknowledge(1)
    assert [n for n, _ in sent(await waiting)] == [3]
    box.outbox.acknowledge(3)
    assert not box.outbox.empty
    assert [n for n, _ in sent(await box.outbox.take())] == [4]
    box.outbox.acknowledge(4)
    await asyncio.wait_for(box.outbox.drained(), 30)


def test_lone_surrogate_from_model_or_tool_ends_nothing() -> None:
    [(_, text)] = sent(encode(frame("half \ud83d")))
    assert text == "half ?"


async def test_unacknowledged_frames_are_spooled_privately_without_daemon(box: Box) -> None:
    for at in range(3):
        box.outbox.put(frame(str(at), message_id=str(at)))
    await box.outbox.take()
    box.outbox.acknowledge(1)
    box.outbox.put(frame("unsent"))
    box.outbox.detach()
    await spilled(box.outbox)
    assert box.on_disk == [(2, "1"), (3, "2"), (4, "unsent")]
    assert stat.S_IMODE(os.stat(box.path).st_mode) == 0o600


async def test_next_daemon_gets_missed_frames_then_new_ones(box: Box) -> None:
    for at in range(5):
        box.outbox.put(frame(str(at), message_id=str(at)))
    await box.outbox.take()
    box.outbox.detach()
    await spilled(box.outbox)
    box.outbox.attach(3)  # the dead daemon had committed these, and could not say so
    box.outbox.put(frame("new"))
    assert sent(await box.outbox.take()) == [(4, "3"), (5, "4")]
    assert sent(await box.outbox.take()) == [(6, "new")]
    box.outbox.acknowledge(5)
    assert box.path.stat().st_size == 0
    assert not box.outbox.empty
    box.outbox.acknowledge(6)
    assert box.outbox.empty


async def test_daemon_death_while_reading_spool_loses_nothing(box: Box) -> None:
    box.outbox.detach()
    for at in range(5):
        box.outbox.put(frame(str(at), message_id=str(at)))
    await spilled(box.outbox)
    for after in (0, 2):
        box.outbox.attach(after)
        taken = sent(await box.outbox.take())
        assert taken == [(n + 1, str(n)) for n in range(after, 5)]
        box.outbox.detach()
    box.outbox.put(frame("more"))
    await spilled(box.outbox)
    box.outbox.attach(4)
    assert sent(await box.outbox.take()) == [(5, "4"), (6, "more")]


async def test_producers_never_wait_for_a_daemon_that_hangs(box: Box) -> None:
    for at in range(3):
        box.outbox.put(frame("x" * (MAX_UNACKNOWLEDGED // 2), message_id=str(at)))
    got = sent(await box.outbox.take())
    for at in range(MAX_UNSENT + 10):
        box.outbox.put(frame(str(at), message_id=f"later {at}"))
    assert len(box.on_disk) >= MAX_UNSENT
    while len(got) < 3 + MAX_UNSENT + 10:
        box.outbox.acknowledge(got[-1][0])
        got += sent(await box.outbox.take())
    assert [n for n, _ in got] == list(range(1, len(got) + 1))
    assert [text for _, text in got[3:]] == [str(at) for at in range(MAX_UNSENT + 10)]


@pytest.fixture
async def late(box: Box, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """Each unacknowledged frame is late."""
    monkeypatch.setattr(outbox, "LATE", 0.001)
    spilling = asyncio.ensure_future(box.outbox.spill_late())
    yield
    assert not spilling.done()
    spilling.cancel()


async def test_late_frames_are_on_disk_too(box: Box, late: None) -> None:
    half = "x" * (MAX_UNACKNOWLEDGED // 2)
    texts = [half, half, half, "not sent yet"]
    for text in texts:
        box.outbox.put(frame(text, message_id=text[:3]))
        box.outbox.put(frame("between", message_id="between"))
    whole = list(enumerate((one for text in texts for one in (text, "between")), start=1))
    got = sent(await box.outbox.take())
    assert len(got) < len(whole)
    await eventually(lambda: box.on_disk == whole)
    while len(got) < len(whole):
        box.outbox.acknowledge(got[-1][0])
        got += sent(await box.outbox.take())
    assert got == whole, "each once, in order"
    box.outbox.put(frame("newer", message_id="newer"))
    await eventually(lambda: len(box.on_disk) == len(whole) + 1)
    assert sent(await box.outbox.take()) == [(len(whole) + 1, "newer")]
    box.outbox.acknowledge(len(whole) + 1)
    assert box.on_disk == []
    assert box.full == 0


async def test_late_frames_without_room_end_no_turn(box: Box, late: None) -> None:
    box.path.mkdir()  # nothing can be written there
    box.outbox.put(frame("a", message_id="a"))
    assert sent(await box.outbox.take()) == [(1, "a")]
    box.outbox.put(frame("b", message_id="b"))
    await not_within(lambda: box.full)
    assert sent(await box.outbox.take()) == [(2, "b")]
    box.path.rmdir()
    await eventually(lambda: box.on_disk == [(1, "a"), (2, "b")])
    box.outbox.acknowledge(2)
    assert box.on_disk == []


async def test_waiting_frames_are_limited_without_room(box: Box, late: None) -> None:
    box.path.mkdir()  # nothing can be written there
    box.outbox.put(frame("x" * MAX_UNACKNOWLEDGED))
    await box.outbox.take()
    for at in range(MAX_UNSENT // 2):
        box.outbox.put(frame("y", message_id=f"one {at}"))
    await not_within(lambda: box.full)
    for at in range(MAX_UNSENT // 2):
        box.outbox.put(frame("z", message_id=f"two {at}"))
    assert box.full == 1


async def test_full_spool_reported_once_takes_only_turn_ends(tmp_path: Path) -> None:
    box = Box(tmp_path, limit=100)
    for at in range(4):
        box.outbox.put(frame("x" * 80, message_id=str(at)))
        await spilled(box.outbox)
    kept = len(box.on_disk)
    assert box.full == 1
    assert kept == 1
    box.outbox.put(end())
    await spilled(box.outbox)
    *_, last = [one for batch in read_spool(box.path, 1, 0) for one in batch]
    assert isinstance(last, TurnEnded)
    assert last.n == kept + 1
    box.outbox.attach(0)
    await box.outbox.take()
    box.outbox.acknowledge(last.n)
    box.outbox.put(frame("there is room again"))
    assert sent(await box.outbox.take()) == [(last.n + 1, "there is room again")]


async def test_a_disk_that_is_full_loses_no_number(tmp_path: Path) -> None:
    box = Box(tmp_path / "missing")
    (tmp_path / "missing").touch()  # nothing can be made there
    box.outbox.put(frame("kept in memory"))
    await spilled(box.outbox)
    assert box.full == 1
    assert "File exists" in spool_full(box.trouble).message
    assert "PYKOCLAW_SPOOL_LIMIT" not in spool_full(box.trouble).message
    box.outbox.put(frame("dropped"))
    box.outbox.put(end())
    (tmp_path / "missing").unlink()
    await spilled(box.outbox)
    assert box.on_disk == [(1, "kept in memory")]
    assert [
        one.n for batch in read_spool(box.path, 1, 0) for one in batch if isinstance(one, TurnEnded)
    ] == [2]


async def test_spool_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, box = os.write, Box(tmp_path)

    def write(descriptor: int, data: bytes) -> int:
        if os.readlink(f"/proc/self/fd/{descriptor}") == str(box.path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data)

    monkeypatch.setattr(os, "write", write)
    box.outbox.put(frame("kept in memory"))
    await spilled(box.outbox)
    assert f"(No space left on device: {box.path})" in spool_full(box.trouble).message


async def test_disk_once_full_costs_no_later_turn(tmp_path: Path) -> None:
    box = Box(tmp_path / "missing")
    (tmp_path / "missing").touch()  # nothing can be made there
    box.outbox.put(frame("kept in memory"))
    await spilled(box.outbox)
    box.outbox.put(frame("dropped"))
    box.outbox.put(end())
    box.outbox.attach(0)
    assert sent(await box.outbox.take()) == [(1, "kept in memory")]
    box.outbox.acknowledge(2)
    box.outbox.put(TurnStarted(epoch=1, turn_id="t2"))
    box.outbox.put(frame("of the next turn", turn_id="t2"))
    assert sent(await box.outbox.take()) == [(4, "of the next turn")]
    assert box.full == 1


async def test_turn_begun_on_full_disk_is_given_up(tmp_path: Path) -> None:
    box = Box(tmp_path, limit=100)
    for at in range(3):
        box.outbox.put(frame("x" * 80, message_id=str(at)))
        await spilled(box.outbox)
    box.outbox.put(end())
    assert box.full == 1
    box.outbox.put(TurnStarted(epoch=1, turn_id="t2", background=True))
    assert box.full == 2
    assert "PYKOCLAW_SPOOL_LIMIT" in spool_full(box.trouble).message


def test_a_link_is_no_spool(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(encode(frame("of somebody else")))
    (tmp_path / "spool").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        Spool(str(tmp_path / "spool"), 1).note(b"x\n")


async def test_last_words_are_the_end_of_the_spool(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.outbox.put(frame("a"))
    box.outbox.bequeath(Lost(epoch=1, kind=ErrorKind.WORKER_LOST, message="It died."))
    batch = [one for batch in read_spool(box.path, 1, 0) for one in batch]
    assert [type(one) for one in batch] == [EventFrame, Lost]


def test_frames_of_other_version_skipped_but_ready_understood() -> None:
    assert decode_from_worker(b'{"frame":"hologram","epoch":3,"n":7,"what":1}') == Skipped(
        epoch=3, n=7
    )
    unknown = decode_from_worker(
        b'{"frame":"event","epoch":3,"n":8,"turn_id":null,"event":{"kind":"?"}}'
    )
    assert isinstance(unknown, Skipped)
    assert unknown.n == 8
    ready = decode_from_worker(
        b'{"frame":"ready","epoch":3,"pid":5,"protocol":9,"claude_session_id":"c","fresh":true,"offer":"changed"}'
    )
    assert ready == Ready(epoch=3, pid=5, protocol=9, claude_session_id="c", fresh=True)
    assert decode_to_worker(b'{"frame":"hologram","epoch":3}') is None
    with pytest.raises(ValueError, match="truncated"):
        decode_from_worker(b'{"frame":"event","epo')


def test_turn_end_is_understood_despite_unknown_stop_reason() -> None:
    line = b'{"frame":"turn_ended","epoch":3,"n":7,"turn_id":"t","claude_session_id":"c","stop_reason":{"of":"later"}}'
    ended = decode_from_worker(line)
    assert isinstance(ended, TurnEnded)
    assert (ended.n, ended.turn_id, ended.claude_session_id, ended.stop_reason) == (
        7,
        "t",
        "c",
        None,
    )
    assert ended.error is not None
    assert ended.error.kind == ErrorKind.WORKER_FOREIGN
    assert ended.error.message == ENDED_UNREADABLY


def test_spool_is_read_in_bounded_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = _lines(*range(1, 7))
    monkeypatch.setattr(leftovers, "BATCH_SIZE", 2 * len(lines[0]))
    (tmp_path / "spool").write_bytes(b"".join(lines))
    assert [
        [one.n for one in batch if isinstance(one, EventFrame)]
        for batch in read_spool(tmp_path / "spool", 1, 1)
    ] == [
        [2, 3],
        [4, 5],
        [6],
    ]


# --- the file is changed under a worker that lives


def _spilled(box: Box, *texts: str) -> None:
    """Each text in an append of its own."""
    for text in texts:
        box.outbox.put(frame(text, message_id=text))
        box.outbox.spill()


async def _all(box: Box, after: int = 0) -> list[tuple[int, str]]:
    """What the next daemon is sent; a gap under its last number, with the word `gap`."""
    box.outbox.attach(after)
    told: list[tuple[int, str]] = []
    while (told[-1][0] if told else after) < box.outbox.told[0]:
        for line in (await box.outbox.take()).splitlines():
            one = decode_from_worker(line)
            assert isinstance(one, EventFrame | Gap)
            check_order(one, told[-1][0] if told else after)
            text = (
                one.event.text
                if isinstance(one, EventFrame) and isinstance(one.event, Text)
                else "gap"
            )
            told.append((one.n, text))
    return told


@pytest.mark.parametrize("how", ["removed", "replaced", "a directory", "its directory too"])
async def test_removing_spool_under_worker_loses_nothing(tmp_path: Path, how: str) -> None:
    (tmp_path / "spool").mkdir()
    box = Box(tmp_path / "spool")
    _spilled(box, "a", "b")
    box.path.unlink()
    if how == "replaced":
        box.path.write_bytes(b"something else")
    elif how == "a directory":
        box.path.mkdir()
    elif how == "its directory too":
        box.path.parent.rmdir()
    _spilled(box, "c")
    assert box.on_disk == [(1, "a"), (2, "b"), (3, "c")]
    assert stat.S_IMODE(box.path.stat().st_mode) == 0o600
    assert await _all(box) == [(1, "a"), (2, "b"), (3, "c")]
    assert box.full == 0


@pytest.mark.parametrize("how", ["removed", "replaced", "added to"])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_emptied_spool_may_be_removed(tmp_path: Path, when: str, how: str) -> None:
    """Before or after it was emptied: what others do to it is no error of the worker."""
    (tmp_path / "spool").mkdir()
    box = Box(tmp_path / "spool")
    _spilled(box, "a")
    if when == "after":
        box.outbox.acknowledge(1)
    if how == "removed":
        box.path.unlink()
    elif how == "replaced":
        box.path.unlink()
        box.path.write_bytes(b"something else")
    else:
        box.path.write_bytes(box.path.read_bytes() + b"something else\n")
    if when == "before":
        box.outbox.acknowledge(1)
    _spilled(box, "b", "c")
    assert await _all(box, after=1) == [(2, "b"), (3, "c")]
    assert [n for n, _ in box.on_disk][-2:] == [2, 3]


async def test_what_others_append_takes_no_number(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    box = Box(tmp_path / "spool")
    _spilled(box, "a", "b")
    with box.path.open("ab") as file:
        file.write(b"x\n")
    _spilled(box, "c")
    assert box.on_disk == [(1, "a"), (2, "b"), (3, "c")]
    assert await _all(box) == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.parametrize(
    ("keep", "expected"),
    [
        (0, [(3, "gap"), (4, "d"), (5, "e")]),
        (1, [(1, "a"), (3, "gap"), (4, "d"), (5, "e")]),
        (1.5, [(1, "a"), (3, "gap"), (4, "d"), (5, "e")]),
    ],
)
async def test_truncated_spool_has_gap_and_goes_on(
    tmp_path: Path, keep: float, expected: list[tuple[int, str]]
) -> None:
    (tmp_path / "spool").mkdir()
    box = Box(tmp_path / "spool")
    _spilled(box, "a", "b", "c")
    lines = box.path.read_bytes().splitlines(keepends=True)
    os.truncate(box.path, int(len(lines[0]) * keep))
    _spilled(box, "d", "e")
    on_disk = [
        one
        for batch in read_spool(box.path, 1, 0)
        for one in batch
        if isinstance(one, EventFrame | Gap)
    ]
    assert [one.n for one in on_disk] == [n for n, _ in expected]
    assert await _all(box) == expected
    box.outbox.detach()
    assert await _all(box, after=2) == [(3, "gap"), (4, "d"), (5, "e")], (
        "half of the gap was told before"
    )
    box.outbox.acknowledge(5)
    assert box.path.stat().st_size == 0
    box.outbox.detach()
    _spilled(box, "f")
    assert await _all(box, after=5) == [(6, "f")]


async def test_spool_overwritten_during_read_is_told_where_possible(tmp_path: Path) -> None:
    (tmp_path / "spool").mkdir()
    box = Box(tmp_path / "spool")
    _spilled(box, "a", "b", "c")
    data = box.path.read_bytes()
    lines = data.splitlines(keepends=True)
    box.path.write_bytes(lines[0] + b"\0" * (len(lines[1]) - 1) + b"\n" + lines[2])
    assert await _all(box) == [(1, "a"), (2, "gap"), (3, "c")]


def _lines(*numbers: int) -> list[bytes]:
    return [encode(EventFrame(epoch=1, n=n, turn_id="t", event=Text("m", str(n)))) for n in numbers]


async def test_failing_disk_keeps_acknowledged_spool(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.outbox.detach()
    box.outbox.put(frame("a"))
    box.outbox.spill()
    box.outbox.attach(0)
    assert sent(await box.outbox.take()) == [(1, "a")]

    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", refuse)
        box.outbox.acknowledge(1)
    assert box.on_disk == [(1, "a")]
    assert box.outbox.empty
    box.outbox.put(frame("b", "n"))
    assert sent(await box.outbox.take()) == [(2, "b")]
    box.outbox.acknowledge(2)
    assert box.on_disk == []
    box.outbox.detach()
    box.outbox.put(frame("c", "o"))
    box.outbox.spill()
    assert box.on_disk == [(3, "c")]
