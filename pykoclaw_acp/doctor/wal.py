"""Check of the write-ahead log: its size, and which program keeps it from shrinking."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from pykoclaw_acp.doctor.database import command, open_in
from pykoclaw_acp.doctor.report import Context, Finding
from pykoclaw_acp.link.places import DATABASE

LARGE: Final = 32 * 1024 * 1024  # bytes; a checkpoint normally runs after some 4 MiB
# Bytes of the -shm file that readers lock (https://sqlite.org/walformat.html#locks)
_READING: Final = range(123, 128)
_WRITING: Final = 120


def write_ahead_log(context: Context) -> Finding:
    """No program holds a transaction open that keeps the log from being reset."""
    path = Path(context.places.data) / DATABASE
    wal, index = (path.with_name(f"{DATABASE}{suffix}") for suffix in ("-wal", "-shm"))
    size = wal.stat().st_size if wal.exists() else 0
    found = f"{size // 1024:,} KiB"
    holders = _holders(context, index) if index.exists() else {}
    if holders:
        held = "; ".join(
            f"pid {pid} ({command(context, pid)}) {does}" for pid, does in sorted(holders.items())
        )
        found += f"; {held}"
    if size < LARGE:
        return Finding("write-ahead log", "ok", found)
    if holders:
        advice = (
            "The log grows until that transaction ends: end the program if it should not do so. "
            "It is emptied then."
        )
        return Finding("write-ahead log", "warning", found, advice)
    users = ", ".join(f"pid {pid} ({command(context, pid)})" for pid in open_in(context, path))
    advice = "A running daemon empties it within a minute; a client starts one."
    if users:
        advice += (
            f" If it stays so large, end one of the programs that have the database open: {users}."
        )
    return Finding("write-ahead log", "warning", found, advice)


def _holders(context: Context, index: Path) -> dict[int, str]:
    """Other processes in a transaction, and whether they read or write, from /proc/locks."""
    status = index.stat()
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    holders: dict[int, str] = {}
    try:
        lines = (context.proc / "locks").read_text().splitlines()
    except OSError:
        return {}
    for line in lines:
        fields = line.split()  # 1: POSIX ADVISORY READ 4711 fd:01:1234 124 124
        if len(fields) != 8 or fields[1] != "POSIX" or fields[5] != file or not fields[6].isdigit():
            continue
        pid, first = int(fields[4]), int(fields[6])
        last = int(fields[7]) if fields[7].isdigit() else first
        if pid in (os.getpid(), context.daemon_pid):
            continue
        if first <= _WRITING <= last:
            holders[pid] = "writes"
        elif first in _READING:
            holders.setdefault(pid, "reads")
    return holders


CHECKS: Final = (write_ahead_log,)
