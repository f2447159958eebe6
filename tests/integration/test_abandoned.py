"""A daemon that ends while files of its database are gone, or others are at their path, closes none
of them.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pykoclaw_acp.store.sqlite import sqlite3

# Another program's database at the path, with all that it has written in the log: it was killed.
OTHER = """
import os, sqlite3, sys
there = sqlite3.connect(sys.argv[1], isolation_level=None)
there.execute("PRAGMA journal_mode=WAL")
there.execute("CREATE TABLE theirs (word TEXT)")
there.execute("INSERT INTO theirs VALUES ('kept')")
os._exit(0)
"""
DAEMON = """
import os, subprocess, sys
from pykoclaw_acp import errors
from pykoclaw_acp.server import daemon
from pykoclaw_acp.store import database
from pykoclaw_acp.store.sqlite import sqlite3

path, end, other = sys.argv[1:]
ours = sqlite3.connect(path, isolation_level=None)
ours.execute("PRAGMA journal_mode=WAL")
ours.execute("CREATE TABLE ours (word TEXT)")

def run(*_):
    for name in ("", "-wal", "-shm"):
        os.rename(path + name, path + ".moved" + name)
    subprocess.run([sys.executable, "-c", other, path], check=True)
    database.ABANDONED.append(ours)
    if end == "startup":
        raise errors.DatabaseMissing("The database is missing.")
    if end == "fault":
        raise RuntimeError("nobody has foreseen this")

daemon._run = run
daemon.logging.configure = lambda *_: None
load = type("Settings", (), {"log_level": "info", "log_format": "json"})
status = daemon.main(load)
del ours
sys.exit(status)
"""


@pytest.mark.parametrize(("end", "status"), [("startup", 78), ("fault", 1), ("orderly", 0)])
def test_foreign_log_stays_however_daemon_ends(tmp_path: Path, end: str, status: int) -> None:
    path = tmp_path / "pykoclaw.db"
    ended = subprocess.run(
        [sys.executable, "-c", DAEMON, str(path), end, OTHER],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == status, ended.stderr
    if end == "startup":
        assert ended.stderr.endswith("pykoclaw-acp: The database is missing.\n")
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT word FROM theirs").fetchall() == [("kept",)]
    connection.close()
