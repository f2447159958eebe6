"""What a dead worker has left on disk: its spool is read, and kept for the user where it is
damaged.

A spool that cannot be read (permissions, a disk's error) is not damaged. It is tried again for a
while, and then said to be lost, and kept: taken later, it would stand behind the end of its turn.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import time
from collections.abc import Awaitable, Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import structlog

from pykoclaw_acp.channel import salvage
from pykoclaw_acp.channel.frames import FromWorker, Gap, Numbered, encode
from pykoclaw_acp.errors import Conflict, RowRefused
from pykoclaw_acp.system import trusted_path

BATCH: Final = 500  # frames that are handed on at once, at most
BATCH_SIZE: Final = 4 * 1024 * 1024  # bytes of them, after which no further one is added
MOST_KEPT: Final = 20  # damaged spools; the oldest go first
PATIENCE: Final = 5.0  # s in which a spool that cannot be read is tried again
FORGOTTEN_AFTER: Final = 60.0  # s; what cannot be read after that has its own time
FIRST_PAUSE: Final = 0.1  # s until the second try; each time twice as long
DAMAGED: Final = "damaged"  # the directory of those, beside that of the spools

log: Final = structlog.get_logger()


def read_spool(path: Path, epoch: int, after: int) -> Iterator[list[FromWorker]]:
    """Batches of what the worker had not told up to frame `after`; a damaged spool is kept, and
    Gaps name it.

    Nothing if there is none. Raises OSError if it cannot be read, after what could be.
    """
    try:
        file = _open(path)
    except FileNotFoundError:
        return
    if file is None:
        yield [Gap(epoch=epoch, n=after + 1, first=after + 1, file=_keep(path))]
        return
    batch: list[FromWorker] = []
    size = 0
    unread: OSError | None = None
    with file:
        try:
            for frame in salvage.frames(file, epoch, after):
                one = frame
                if isinstance(frame, Gap) and frame.file is None:
                    one = msgspec.structs.replace(frame, file=_keep(path))
                batch.append(one)
                size += len(encode(one))
                if len(batch) == BATCH or size >= BATCH_SIZE:
                    yield batch
                    batch, size = [], 0
        except OSError as error:
            unread = error
    if batch:
        yield batch
    if unread is not None:
        raise unread


def _open(path: Path) -> BinaryIO | None:
    """The file; None if something else is there in its place."""
    if not stat.S_ISREG(os.lstat(path).st_mode):
        return None
    return os.fdopen(
        os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb"
    )


class Patience:
    """How long spools that cannot be read are tried: all together, so that a faulty disk holds up a
    start once.
    """

    def __init__(self) -> None:
        self._until = 0.0

    def until(self) -> float:
        """Up to when, now that one cannot be read; s, monotonic."""
        now = time.monotonic()
        if now > self._until + FORGOTTEN_AFTER:
            self._until = now + PATIENCE
        return self._until


async def deliver(
    path: Path,
    epoch: int,
    after: int,
    into: Callable[[list[FromWorker]], Awaitable[None]],
    patience: Patience | None = None,
) -> None:
    """Hand on everything after frame `after`, and a Gap for what cannot be read; raises what `into`
    raises.
    """
    patience, pause = patience or Patience(), FIRST_PAUSE
    while True:
        batches = read_spool(path, epoch, after)
        while True:
            try:
                batch = next(batches, None)
            except OSError as error:
                log.warning(
                    "A dead worker's spool cannot be read",
                    action="spool_unreadable",
                    error=str(error),
                )
                break
            if batch is None:
                return
            await take(batch, into, path)
            after = max([after, *(frame.n for frame in batch if isinstance(frame, Numbered))])
        left = patience.until() - time.monotonic()
        if left <= 0:
            break
        await asyncio.sleep(min(pause, left))
        pause *= 2
    file = _keep(path)
    log.error(
        "A dead worker's spool cannot be read; it counts as lost",
        action="spool_lost",
        file=file or str(path),
    )
    await take([Gap(epoch=epoch, n=after + 1, first=after + 1, file=file)], into, path)


async def take(
    batch: list[FromWorker], into: Callable[[list[FromWorker]], Awaitable[None]], path: Path
) -> None:
    """Hand a batch on. Of one that the database refuses each frame is tried alone, and a Gap takes
    the place of one that it still refuses.
    """
    try:
        await into(batch)
        return
    except (ValueError, Conflict, RowRefused):
        log.warning(
            "Frames of a dead worker were refused",
            action="spool_refused",
            exc_info=True,
            file=path.name,
        )
    for frame in batch:
        try:
            await into([frame])
        except (ValueError, Conflict, RowRefused):
            if isinstance(frame, Gap) or not isinstance(frame, Numbered):
                raise
            gap = Gap(
                epoch=frame.epoch, n=frame.n, first=frame.n, turn_id=getattr(frame, "turn_id", None)
            )
            await into([msgspec.structs.replace(gap, file=_keep(path))])


def _keep(spool: Path) -> str | None:
    """Set a spool aside, and return where it is. Where that cannot be, it gets another name in its
    directory, so that nobody reads it again; None if that cannot be either.
    """
    aside = spool.with_name(f"{spool.name}.{DAMAGED}")
    try:
        return str(aside) if aside.exists() else keep(spool)
    except OSError as error:
        log.error("A damaged spool cannot be kept aside", action="spool_stays", error=str(error))
    with suppress(OSError):
        os.rename(spool, aside)
        return str(aside)
    return None


def keep(spool: Path) -> str:
    """Keep what is there for the user, for this user alone; returns where. Once for each spool."""
    place = spool.parents[1] / DAMAGED
    trusted_path.make(str(place))
    before = kept(spool.parents[1])
    for path in before:
        if path.name.partition("-")[2] == spool.name:
            return str(path)
    for path in before[: max(0, len(before) - MOST_KEPT + 1)]:
        shutil.rmtree(path, ignore_errors=True)
        path.unlink(missing_ok=True)
    number = int(before[-1].name.partition("-")[0]) + 1 if before else 1
    target = place / f"{number:06}-{spool.name}"
    if not stat.S_ISREG(os.lstat(spool).st_mode):
        os.rename(spool, target)
    else:
        try:
            os.link(spool, target, follow_symlinks=False)
        except OSError:  # a file system without such links
            _copy(spool, target)
        with suppress(OSError):
            os.chmod(target, 0o600)
    log.error("A worker's spool is damaged; it is kept", action="spool_damaged", file=str(target))
    return str(target)


def _copy(spool: Path, target: Path) -> None:
    """A copy; where it cannot be read the file itself goes there."""
    try:
        shutil.copyfile(spool, target)
    except OSError:
        os.replace(spool, target)


def kept(directory: Path) -> list[Path]:
    """The damaged spools that are kept in an instance's directory, the oldest first."""
    with suppress(FileNotFoundError):
        return sorted(
            one for one in (directory / DAMAGED).iterdir() if one.name.partition("-")[0].isdigit()
        )
    return []


def kept_of(state: str | Path, instances: Collection[str]) -> list[str]:
    """Return the damaged spools kept for these instances, the oldest first."""
    found = (path for name in sorted(instances) for path in kept(Path(state, name)))
    return [str(path) for path in sorted(found, key=lambda path: path.name)]
