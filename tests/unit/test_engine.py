"""The SQLite engine: which versions have the WAL-reset bug, and that a process never holds two
engines.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

import pykoclaw_acp
from pykoclaw_acp.store import engine

needs_pysqlite3 = pytest.mark.skipif(
    importlib.util.find_spec("pysqlite3") is None, reason="no pysqlite3 wheel here"
)


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    root = Path(pykoclaw_acp.__file__).parents[1]
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        ((3, 6, 23), False),
        ((3, 7, 0), True),
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 44, 9), False),
        ((3, 45, 0), True),
        ((3, 49, 2), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 0), True),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 52, 0), False),
        ((4, 0, 0), False),
    ],
)
def test_versions_with_the_wal_reset_bug(version: tuple[int, int, int], affected: bool) -> None:
    assert engine.wal_reset_affected(version) is affected


@needs_pysqlite3
def test_everything_uses_the_installed_engine() -> None:
    result = run_python(
        "import sys\n"
        "from pykoclaw_acp.store import engine\n"
        "first = engine.install()\n"
        "assert engine.install() == first and first.name == 'pysqlite3' and not first.affected, first\n"
        "import sqlite3, sqlite3.dbapi2, pysqlite3\n"
        "from sqlite3 import dbapi2\n"
        "assert sqlite3 is pysqlite3 and dbapi2 is pysqlite3.dbapi2\n"
        "assert sqlite3.sqlite_version_info == first.version\n"
        "assert '_sqlite3' not in sys.modules\n"
    )
    assert result.returncode == 0, result.stderr


@needs_pysqlite3
def test_the_database_brings_its_engine() -> None:
    result = run_python(
        "import sys, pykoclaw_acp.store.database, sqlite3, pysqlite3\n"
        "assert sqlite3 is pysqlite3 and '_sqlite3' not in sys.modules\n"
    )
    assert result.returncode == 0, result.stderr


@needs_pysqlite3
@pytest.mark.parametrize("module", ["sqlite3", "sqlite3.dbapi2", "_sqlite3"])
def test_a_second_engine_is_refused(module: str) -> None:
    result = run_python(
        f"import {module}\nfrom pykoclaw_acp.store import engine\nengine.install()\n"
    )
    assert result.returncode == 1
    assert "RuntimeError: " in result.stderr
    assert "was imported before" in result.stderr


def test_standard_engine_is_used_and_judged_without_pysqlite3() -> None:
    result = run_python(
        "import sys\n"
        "sys.modules['pysqlite3'] = None\n"
        "import sqlite3\n"
        "from pykoclaw_acp.store import engine\n"
        "found = engine.install()\n"
        "assert sys.modules['sqlite3'] is sqlite3\n"
        "assert found == engine.Engine('sqlite3', sqlite3.sqlite_version_info,"
        " engine.wal_reset_affected(sqlite3.sqlite_version_info))\n"
    )
    assert result.returncode == 0, result.stderr


def fake(folder: Path, connection: str) -> str:
    """Code that puts a `pysqlite3` of that `dbapi2` in front of any that is installed, and shows
    the choice.
    """
    package = folder / "pysqlite3"
    package.mkdir()
    (package / "__init__.py").write_text("sqlite_version_info = (3, 46, 1)\n")
    (package / "dbapi2.py").write_text(connection)
    return (
        "import sys, os, platform\n"
        f"sys.path.insert(0, {str(folder)!r})\n"
        "os.uname = platform.machine = None\n"  # the name of the machine has no say
        "from pykoclaw_acp.store import engine\n"
        "found = engine.install()\n"
        "print(found.name, found.affected, sys.modules['sqlite3'].__name__)\n"
    )


def test_engine_is_judged_by_version_not_name(tmp_path: Path) -> None:
    """On aarch64 a `pysqlite3` is compiled against the library of the system."""
    result = run_python(fake(tmp_path, ""))
    assert (result.returncode, result.stdout) == (0, "pysqlite3 True pysqlite3\n"), result.stderr


def test_unloadable_engine_falls_back_to_standard_one(tmp_path: Path) -> None:
    result = run_python(
        fake(tmp_path, "raise ImportError('libsqlite3.so.0: cannot open shared object file')")
    )
    name, _, module = result.stdout.split()
    assert (result.returncode, name, module) == (0, "sqlite3", "sqlite3"), result.stderr
