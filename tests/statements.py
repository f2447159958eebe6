"""The statements that the store's connections run, as they begin."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from pykoclaw_acp.store import connection as store_connection
from pykoclaw_acp.store.sqlite import sqlite3


class Statements:
    """`before` is called with the connection, the statement and its parameters, or all of those of
    `executemany`, in the connection's thread; what it raises is the statement's error. `open`: the
    connections that are open.
    """

    def __init__(self) -> None:
        self.open: set[sqlite3.Connection] = set()
        self.before: Callable[[sqlite3.Connection, str, Any], None] = lambda *_: None

    def connect(self, *arguments: Any, **options: Any) -> sqlite3.Connection:
        """In the place of `sqlite3.connect`."""
        make: Callable[..., _Watched] = sqlite3.connect
        made = make(*arguments, factory=_Watched, **options)
        made.statements = self
        self.open.add(made)
        return made

    def __getattr__(self, name: str) -> Any:
        return getattr(sqlite3, name)


class _Watched(sqlite3.Connection):
    statements: Statements

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        self.statements.before(self, sql, parameters)
        return super().execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Any], /) -> sqlite3.Cursor:
        rows = list(parameters)
        self.statements.before(self, sql, rows)
        return super().executemany(sql, rows)

    def close(self) -> None:
        super().close()
        self.statements.open.discard(self)


def watched(monkeypatch: pytest.MonkeyPatch, module: object = store_connection) -> Statements:
    """Those of all connections that are made from now on; `module`: where they are made."""
    made = Statements()
    monkeypatch.setattr(module, "sqlite3", made)
    return made
