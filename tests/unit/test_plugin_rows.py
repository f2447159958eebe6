"""Rows and cursors as plugins get them, compared with those of `sqlite3`."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from pykoclaw_acp.channel.database import SqlResult, to_rows
from pykoclaw_acp.store.sqlite import sqlite3
from pykoclaw_acp.worker.plugins.rows import ResultCursor, Row

VALUES = [(1, "one"), (2, "two"), (3, None)]


def ours() -> ResultCursor:
    return ResultCursor(SqlResult(columns=["id", "Name"], rows=to_rows(VALUES)), Row)


@pytest.mark.parametrize(
    "use",
    [
        lambda cursor: [tuple(row) for row in cursor],
        lambda cursor: [cursor.fetchone()["name"], cursor.fetchone()[1], len(cursor.fetchall())],
        lambda cursor: [len(cursor.fetchmany(2)), len(cursor.fetchmany(2)), cursor.fetchone()],
        lambda cursor: [len(cursor.fetchmany()), len(cursor.fetchall())],
        lambda cursor: dict(cursor.fetchone()),
        lambda cursor: cursor.fetchone().keys(),
        lambda cursor: cursor.fetchone()[-1],
        lambda cursor: cursor.fetchone()[:1],
        lambda cursor: cursor.description,
        lambda cursor: len({cursor.fetchone(), cursor.fetchone(), cursor.fetchone()}),
        lambda cursor: raised(lambda: cursor.fetchone()["missing"]),
        lambda cursor: raised(lambda: cursor.fetchone()[2]),
        lambda cursor: dict(**cursor.fetchone()),
    ],
)
def test_they_behave_as_sqlites(use: Any) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("CREATE TABLE t (id, Name)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", VALUES)
        expected = use(connection.execute("SELECT id, Name FROM t"))
    assert use(ours()) == expected


def test_a_statement_without_rows_has_none() -> None:
    cursor = ResultCursor(SqlResult(rowcount=3, lastrowid=7), Row)
    assert (cursor.rowcount, cursor.lastrowid, cursor.description) == (3, 7, None)
    assert cursor.fetchone() is None
    assert cursor.fetchall() == []


def raised(function: Any) -> str:
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"
