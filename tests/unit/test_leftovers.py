"""What is read of a dead worker's spool, for each kind of damage; a damaged one is kept for the
user.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from pykoclaw_acp.channel.frames import (
    MAX_FRAME,
    EventFrame,
    FromWorker,
    Gap,
    Lost,
    TurnEnded,
    encode,
)
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.events import Text
from pykoclaw_acp.pool.leftovers import DAMAGED, MOST_KEPT, keep, kept, read_spool


def line(n: int, epoch: int = 7) -> bytes:
    return encode(EventFrame(epoch=epoch, n=n, turn_id="t", event=Text("m", f"{n} ")))


LINES = [line(n) for n in range(1, 8)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "spool").mkdir()
    return tmp_path / "spool" / "worker-7.ndjson"


def read(path: Path, after: int = 0) -> list[FromWorker]:
    return [one for batch in read_spool(path, 7, after) for one in batch]


def told(path: Path, after: int = 0) -> list[int | tuple[int, int]]:
    """Numbers of the frames; a gap as its two ends."""
    found: list[int | tuple[int, int]] = []
    for one in read(path, after):
        assert isinstance(one, EventFrame | Gap)
        found.append((one.first, one.n) if isinstance(one, Gap) else one.n)
    return found


def middle(instead: bytes) -> Callable[[list[bytes]], bytes]:
    return lambda lines: b"".join(lines[:3]) + instead + b"".join(lines[4:])


@pytest.mark.parametrize(
    ("damage", "expected"),
    [
        pytest.param(
            lambda lines: b"".join(lines)[:-20], [1, 2, 3, 4, 5, 6, (7, 7)], id="last line cut"
        ),
        pytest.param(
            lambda lines: b"".join(lines)[:-1], [1, 2, 3, 4, 5, 6, 7], id="last newline missing"
        ),
        pytest.param(middle(b"garbage\n"), [1, 2, 3, (4, 4), 5, 6, 7], id="garbage line"),
        pytest.param(middle(b""), [1, 2, 3, (4, 4), 5, 6, 7], id="missing line"),
        pytest.param(
            lambda lines: b"".join(lines[2:]), [(1, 2), 3, 4, 5, 6, 7], id="beginning missing"
        ),
        pytest.param(
            middle(line(4, epoch=6)), [1, 2, 3, (4, 4), 5, 6, 7], id="line of another epoch"
        ),
        pytest.param(middle(b"\0" * 4096), [1, 2, 3, (4, 5), 6, 7], id="NUL block"),
        pytest.param(
            middle(LINES[3].replace(b"4 ", b"\xff ")),
            [1, 2, 3, (4, 4), 5, 6, 7],
            id="invalid UTF-8",
        ),
        pytest.param(middle(line(4000)), [1, 2, 3, (4, 4), 5, 6, 7], id="a number that cannot be"),
        pytest.param(middle(LINES[3] * 2), [1, 2, 3, 4, 5, 6, 7], id="a line twice"),
        pytest.param(
            middle(b"garbage\n" + LINES[3]), [1, 2, 3, 4, 5, 6, 7], id="one line too many"
        ),
        pytest.param(lambda _: b"\0" * 10_000, [(1, 1)], id="nothing but NULs"),
        pytest.param(lambda _: b"", [], id="empty"),
    ],
)
def test_readable_frames_are_told_and_unreadable_become_gap(
    path: Path, damage: Callable[[list[bytes]], bytes], expected: list[int | tuple[int, int]]
) -> None:
    path.write_bytes(damage(LINES))
    path.chmod(0o600)
    assert told(path) == expected
    gaps = [one for one in read(path) if isinstance(one, Gap)]
    assert kept(path.parents[1]) == [Path(one.file) for one in gaps[:1] if one.file is not None]
    for gap in gaps:
        assert gap.file is not None
        assert Path(gap.file).read_bytes() == path.read_bytes()
        assert stat.S_IMODE(os.stat(gap.file).st_mode) == 0o600
        assert gap.turn_id == ("t" if len(expected) > 1 else None)


def test_overlong_line_does_not_fill_memory(path: Path) -> None:
    with path.open("wb") as file:
        file.write(b"".join(LINES[:3]))
        file.truncate(file.tell() + MAX_FRAME + 4096)
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + b"".join(LINES[4:]))
    assert told(path) == [1, 2, 3, (4, 4), 5, 6, 7]


@pytest.mark.parametrize("after", range(8))
def test_interrupted_start_resumes_and_reports_no_gap_twice(path: Path, after: int) -> None:
    path.write_bytes(b"".join(LINES[:2]) + b"?\n?\n" + b"".join(LINES[4:]))
    expected: list[int | tuple[int, int]] = [1, 2, (3, 4), 5, 6, 7]
    left: list[int | tuple[int, int]] = []
    for one in expected:
        first, last = one if isinstance(one, tuple) else (one, one)
        if last > after:
            left.append((max(first, after + 1), last) if isinstance(one, tuple) else one)
    assert told(path, after) == left
    texts = {one.n: one.event for one in read(path, after) if isinstance(one, EventFrame)}
    for n, event in texts.items():
        assert event == Text("m" if n < 3 else "m-after-4", f"{n} "), (
            "nobody joins what the gap parts"
        )


def test_turn_end_after_gap_is_kept(path: Path) -> None:
    ended = TurnEnded(epoch=7, n=5, turn_id="t", stop_reason="end_turn", claude_session_id="c")
    lost = Lost(epoch=7, kind=ErrorKind.ORPHANED, message="No daemon came back.")
    path.write_bytes(b"".join(LINES[:3]) + b"\xff\n" + encode(ended) + encode(lost))
    assert [type(one) for one in read(path)] == [
        EventFrame,
        EventFrame,
        EventFrame,
        Gap,
        TurnEnded,
        Lost,
    ]


@pytest.mark.parametrize("kind", ["directory", "link", "fifo"])
def test_what_is_no_file_is_put_aside(path: Path, kind: str) -> None:
    secret = path.parents[1] / "secret"
    secret.write_bytes(b"".join(LINES))
    if kind == "directory":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(secret)
    else:
        os.mkfifo(path)
    assert told(path, after=3) == [(4, 4)]
    (aside,) = kept(path.parents[1])
    assert not os.path.lexists(path)
    assert os.path.lexists(aside)


def test_temporarily_unreadable_spool_is_not_damaged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(b"".join(LINES))

    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(PermissionError):
            read(path)
    assert kept(path.parents[1]) == []
    assert told(path) == [1, 2, 3, 4, 5, 6, 7]
    assert list(read_spool(path.with_name("missing"), 7, 0)) == []


def test_damaged_spool_that_cannot_be_kept_is_read(path: Path) -> None:
    path.write_bytes(b"".join(LINES[:2]) + b"?\n?\n" + b"".join(LINES[4:6]) + b"?\n")
    whole = path.read_bytes()
    (path.parents[1] / DAMAGED).write_text("no directory can be made here")
    frames = read(path)
    assert [one.n for one in frames if isinstance(one, EventFrame)] == [1, 2, 5, 6]
    files = {one.file for one in frames if isinstance(one, Gap)}
    assert not path.exists()  # and whoever deletes it finds nothing
    assert files == {f"{path}.{DAMAGED}"}
    assert Path(f"{path}.{DAMAGED}").read_bytes() == whole


def test_only_newest_leftovers_are_kept(path: Path) -> None:
    for n in range(MOST_KEPT + 5):
        one = path.with_name(f"worker-{n}.ndjson")
        one.write_bytes(b"?")
        assert keep(one) == keep(one)
    names = [one.name.partition("-")[2] for one in kept(path.parents[1])]
    assert names == [f"worker-{n}.ndjson" for n in range(5, MOST_KEPT + 5)]
