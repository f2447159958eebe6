"""What the state directory knows of instances: of each, where its data directory was last. One
small file for each.

Without it, a start whose database is missing could not be told from a first one, nor a copy from a
moved original of which no worker lives.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pykoclaw_acp.errors import ConfigurationError, DatabaseMissing
from pykoclaw_acp.link.places import DATABASE, Places, lock_holder
from pykoclaw_acp.system import processes

NAME: Final = "instance.json"  # in the directory of the instance's workers


@dataclass(frozen=True, slots=True)
class Site:
    """A data directory: its real path, and what it is for the kernel, which holds within a boot."""

    path: str
    device: int
    inode: int
    boot_id: str

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> Site:
        """Return the directory's site as it is now; raises OSError."""
        real = os.path.realpath(path)
        status = os.stat(real)
        return cls(real, status.st_dev, status.st_ino, processes.boot_id())

    def is_same(self, other: Site) -> bool:
        """Certainly the same directory, under whatever path."""
        return self.boot_id == other.boot_id and (self.device, self.inode) == (
            other.device,
            other.inode,
        )

    def may_be(self, other: Site) -> bool:
        """Possibly the same directory: device numbers may change with a boot."""
        return self.inode == other.inode and (
            self.device == other.device or self.boot_id != other.boot_id
        )

    @property
    def has_database(self) -> bool:
        """There is a database at its path today, or whether there is one cannot be known."""
        try:
            return os.stat(os.path.join(self.path, DATABASE)).st_size > 0
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True


@dataclass(frozen=True, slots=True)
class InstanceRecord:
    """An instance, and where its data directory was when a server last used it."""

    instance: str
    site: Site


def path_of(state: str, instance: str) -> Path:
    """The file of this instance."""
    return Path(state, instance, NAME)


def find(state: str, instance: str) -> InstanceRecord | None:
    """What is known of this instance."""
    return _read(path_of(state, instance))


def at(state: str, data: str | os.PathLike[str]) -> list[InstanceRecord]:
    """The instances whose data directory was last at this path, those used last first."""
    real = os.path.realpath(data)
    return [record for record in _every(state) if record.site.path == real]


def names(places: Places) -> frozenset[str]:
    """What workers of this data directory may call its instance, versions before there were ids
    included.
    """
    return frozenset({places.hash} | {record.instance for record in at(places.state, places.data)})


def write(state: str, record: InstanceRecord) -> None:
    """Replace the file, 0600, at once; its directory exists. Raises OSError."""
    path = path_of(state, record.instance)
    if _read(path) == record:
        return
    site = record.site
    known = {
        "instance": record.instance,
        "data": site.path,
        "device": site.device,
        "inode": site.inode,
    }
    temporary = path.with_name(f".{NAME}-{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            json.dump(known | {"boot": site.boot_id}, file)
            file.write("\n")
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def require_database(places: Places, is_known_to_workers: Callable[[str], bool]) -> None:
    """Raises DatabaseMissing where there was a database and is none now; nothing is touched.

    `is_known_to_workers`: whether one that lives has its data directory at this path.
    """
    real = os.path.realpath(places.data)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if os.stat(os.path.join(real, DATABASE)).st_size:
            return
    if lock_holder(places.data) is not None:
        return  # who has locked the directory will be named
    if known := at(places.state, real):
        kept = path_of(places.state, known[0].instance)
        raise _missing(real, kept.parent, kept)
    left = Path(places.directory)  # where workers of versions without ids have their things
    if any((left / "sockets").glob("*")) or any(
        one.stat().st_size for one in (left / "spool").glob("*.ndjson")
    ):
        raise _missing(real, left, left)
    if is_known_to_workers(real):
        raise _missing(real, Path(places.state), None)


def without_conversations(data: str, instance: str, state: str) -> DatabaseMissing:
    """What to say when another program has made a new database in the place of the instance's."""
    known = path_of(state, instance)
    return DatabaseMissing(
        f"The database {os.path.join(data, DATABASE)} is a new one without any conversation, and there was another "
        f"here before. What workers have written since is kept in {known.parent}. Put the file back, or set "
        "PYKOCLAW_DATA to the directory where it is now. To go on with the new one, remove "
        f"{known} and start again."
    )


def require_own_database(known: Site, here: Site) -> None:
    """Raises ConfigurationError if the database here is a link to that of the instance's known
    directory: a daemon in each would work on one file.
    """
    mine, its = (os.path.join(site.path, DATABASE) for site in (here, known))
    try:
        is_shared = os.path.samefile(mine, its) and not Site.of(known.path).is_same(here)
    except OSError:
        return
    if is_shared:
        raise ConfigurationError(
            f"{mine} is the same file as {its}, a link to it, and one database is for one data directory. Nothing was"
            f" changed. Set PYKOCLAW_DATA to {known.path}, or put a copy in the place of the link."
        )


def _missing(data: str, kept: Path, known: Path | None) -> DatabaseMissing:
    anew = "end its workers, which live," if known is None else f"remove {known}"
    return DatabaseMissing(
        f"The database {os.path.join(data, DATABASE)} is missing, and there was one here before. No empty one was "
        f"made: clients would forget their conversations. What workers have written since is kept in {kept}. Put the "
        "file back, or set PYKOCLAW_DATA to the directory where it is now. To begin anew without it, "
        f"{anew} and start again."
    )


def _every(state: str) -> Iterator[InstanceRecord]:
    found: list[tuple[float, InstanceRecord]] = []
    for path in Path(state).glob(f"*/{NAME}"):
        record = _read(path)
        if record is not None:
            with contextlib.suppress(OSError):
                found.append((path.stat().st_mtime, record))
    return iter([record for _, record in sorted(found, key=lambda one: -one[0])])


def _read(path: Path) -> InstanceRecord | None:
    """None also for a file that was damaged: it helps to decide, and nothing depends on it."""
    try:
        known = json.loads(path.read_bytes())
        site = Site(known["data"], int(known["device"]), int(known["inode"]), known["boot"])
        record = InstanceRecord(known["instance"], site)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return record if record.instance == path.parent.name else None
