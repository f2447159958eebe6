"""Checks of the database. If a daemon runs, it is asked, and nothing else opens the file."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

from pykoclaw_acp.doctor.report import Context, Finding
from pykoclaw_acp.errors import DatabaseMissing, DatabaseUnusable
from pykoclaw_acp.link.places import DATABASE
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.system.lineage import WORKER_NAME
from pykoclaw_acp.system.proc import has_open
from pykoclaw_acp.system.processes import check_descriptors

FIX: Final = "Use SQLite 3.51.3 or newer: on x86_64 `pip install pysqlite3`, elsewhere a Python that is linked with it."
# bytes 18 and 19 of a file in WAL mode (https://sqlite.org/fileformat2.html)
_WAL: Final = b"\x02\x02"
_LIBRARY: Final = re.compile(r"\S*/(?:libsqlite3\.so\S*|_?pysqlite3?\S*\.so|_sqlite3\S*\.so)$")
_VERSION: Final = re.compile(rb"\x00(3\.\d{1,2}\.\d{1,2})\x00")


def engine(context: Context) -> Finding:
    """The SQLite library of the daemon, or of this program, is free of the WAL-reset bug."""
    if context.status is not None:
        used = context.status["database"]
        name, version, affected = used["engine"], used["engineVersion"], bool(used["atRisk"])
    else:
        from pykoclaw_acp.store.sqlite import ENGINE

        name, version, affected = ENGINE.name, ".".join(map(str, ENGINE.version)), ENGINE.affected
    found = f"{name} with SQLite {version}"
    if affected:
        risk = "it can corrupt a WAL file that several programs write (https://sqlite.org/wal.html#walresetbug)"
        return Finding("SQLite engine", "warning", f"{found}: {risk}", FIX)
    return Finding("SQLite engine", "ok", found)


def database(context: Context) -> Finding:
    """The file is intact and of a known version; a running daemon has checked that."""
    path = _path(context)
    if not path.exists() and context.status is None:
        from pykoclaw_acp.link import records
        from pykoclaw_acp.pool.unattended import unattended

        try:
            records.require_database(context.places, unattended(context.places).holds)
        except DatabaseMissing as error:
            return Finding(
                "database", "problem", "it is missing, and no daemon starts without it", str(error)
            )
        return Finding("database", "ok", "there is none yet; the daemon makes it")
    if not path.exists():
        return Finding("database", "problem", f"{path} is gone, though the daemon uses it",
                       "Put the file back, or stop the daemon and start it where the file is now.")  # fmt: skip
    mode = "WAL" if _header(path) == _WAL else "rollback journal"
    found = f"{path}, {path.stat().st_size // 1024:,} KiB, {mode}"
    condition = (
        DatabaseState.WRITABLE
        if context.status is None
        else context.status["database"].get("condition", DatabaseState.WRITABLE)
    )
    if context.status is not None and condition != DatabaseState.WRITABLE:
        reason = context.status["database"]["reason"]
        if condition == DatabaseState.DAMAGED:
            return Finding("database", "problem", "a part of it is damaged", reason)
        return Finding("database", "problem", f"the daemon cannot write it ({condition})",
                       f"{reason} New prompts are refused until then; the daemon goes on by itself.")  # fmt: skip
    if context.status is None:
        from pykoclaw_acp.store import migrate, preflight

        try:
            preflight.verify(path, migrate.load())
        except DatabaseUnusable as error:
            return Finding("database", "problem", "it cannot be used", str(error))
    others = 0o077 if context.group is None else 0o007
    exposed = [
        one
        for one in (path, path.with_name(f"{DATABASE}-wal"))
        if one.exists() and one.stat().st_mode & others
    ]
    closed = not path.parent.stat().st_mode & others
    if exposed and not closed:
        names = " ".join(map(str, exposed))
        return Finding("database", "warning", f"others may read it (mode {stat.S_IMODE(path.stat().st_mode):o})",
                       f"Restrict it with `chmod {'600' if context.group is None else '660'} {names}`.")  # fmt: skip
    return Finding("database", "ok", found)


def other_programs(context: Context) -> Finding:
    """No other program has the database open with an affected library."""
    path = _path(context)
    users = (
        {pid: _library(context.proc / str(pid)) for pid in open_in(context, path)}
        if path.exists()
        else {}
    )
    if not users:
        return Finding("other programs", "ok", "no other program has the database open")
    found = "; ".join(
        f"pid {pid} ({command(context, pid)}) with {library}" for pid, (library, _) in users.items()
    )
    if path.exists() and _header(path) == _WAL and not all(safe for _, safe in users.values()):
        return Finding(
            "other programs", "warning", found, f"An old SQLite can corrupt a WAL file. {FIX}"
        )
    return Finding("other programs", "ok", found)


CHECKS: Final = (engine, database, other_programs)


def _path(context: Context) -> Path:
    return Path(context.places.data) / DATABASE


def _header(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(20)[18:20]


def open_in(context: Context, path: Path) -> list[int]:
    """Other processes that have the file open, as far as /proc is readable."""
    wanted = path.stat()
    found = []
    for entry in context.proc.iterdir():
        if not entry.name.isdigit() or int(entry.name) in (os.getpid(), context.daemon_pid):
            continue
        try:
            if has_open(str(entry), wanted):
                found.append(int(entry.name))
        except OSError as error:
            check_descriptors(error)
            continue  # it exited, or is another user's
    return sorted(found)


def _library(process: Path) -> tuple[str, bool]:
    """SQLite library that a process has loaded, in words, and whether it is known to be safe."""
    from pykoclaw_acp.store.engine import wal_reset_affected

    try:
        lines = os.fsdecode((process / "maps").read_bytes()).splitlines()
    except OSError:
        return "a library that cannot be seen", False
    paths = sorted({found[0].strip() for line in lines if (found := _LIBRARY.search(line))})
    for path in paths:
        try:
            named = _VERSION.search(Path(path).read_bytes())
        except OSError:
            continue
        if named:
            version = named[1].decode()
            major, minor, patch = (int(part) for part in version.split("."))
            return f"SQLite {version}", not wal_reset_affected((major, minor, patch))
    return (
        os.path.basename(paths[0]) if paths else "SQLite built in, of an unknown version"
    ), False


def command(context: Context, pid: int) -> str:
    """The name of a process; of one that holds the database, and is a worker, also why."""
    try:
        name = (context.proc / str(pid) / "comm").read_text(errors="replace").strip()
    except OSError:
        return "ended"
    if name == WORKER_NAME:  # workers themselves never open it
        return f"{name}: a plugin of pykoclaw opened it in a session"
    return name
