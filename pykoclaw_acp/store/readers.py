"""The reader connections, which see what is committed and never wait for the writer."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from pykoclaw_acp import on_behalf
from pykoclaw_acp.store.condition import is_damage
from pykoclaw_acp.store.connection import Connection
from pykoclaw_acp.store.sqlite import sqlite3
from pykoclaw_acp.store.undecodable import emptied, tolerant
from pykoclaw_acp.tasks import Tasks

T = TypeVar("T")
Rows = Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]


class ReaderPool:
    """Runs each query on an idle reader. If all are busy, clients and sessions that wait take turns,
    however many queries each of them has.
    """

    def __init__(self, readers: list[Connection]) -> None:
        self._readers = readers
        self._idle = list(readers)
        self._waiting: dict[object, deque[asyncio.Future[Connection]]] = {}  # by whom for
        self._queries = Tasks()

    async def read(
        self, sql: str, parameters: tuple[Any, ...], size: int | None
    ) -> list[tuple[Any, ...]]:
        """Return the rows of a query; `size` limits the characters of their last columns together."""
        return await self.read_with(partial(_rows, sql, parameters, size))

    async def read_with(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Return what `work` reads with a connection, on a thread."""
        # A separate task: the reader is busy until the work ends, even if the caller is cancelled.
        return await asyncio.shield(self._queries.start(self._work(work)))

    async def close(self) -> None:
        """Wait for running queries, then close the connections."""
        await asyncio.gather(*self._queries, return_exceptions=True)
        for reader in self._readers:
            await reader.close()

    async def _work(self, work: Callable[[sqlite3.Connection], T]) -> T:
        reader = self._idle.pop() if self._idle else await self._turn()
        try:
            return await reader.run(work)
        finally:
            self._pass_on(reader)

    async def _turn(self) -> Connection:
        turn: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(on_behalf.client.get(), deque()).append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._pass_on(turn.result())
            raise

    def _pass_on(self, reader: Connection) -> None:
        while self._waiting:
            whose = next(iter(self._waiting))
            queue = self._waiting.pop(whose)
            turn = queue.popleft()
            if queue:
                self._waiting[whose] = queue  # behind the others
            if not turn.done():
                turn.set_result(reader)
                return
        self._idle.append(reader)


def rows_of(connection: sqlite3.Connection) -> Rows:
    """A query on this connection, in its thread: its rows by SQL and parameters."""
    return lambda sql, parameters: _rows(sql, parameters, None, connection)


def unless_damaged(rows: Rows, sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """The rows of a query; none if it meets a damaged page."""
    try:
        return rows(sql, parameters)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return []


def _rows(
    sql: str, parameters: tuple[Any, ...], size: int | None, connection: sqlite3.Connection
) -> list[tuple[Any, ...]]:
    """The rows; a text that is damaged, so that it is no UTF-8, is empty."""
    return tolerant(connection, lambda: _fetch(connection.execute(sql, parameters), size), emptied)


def _fetch(rows: sqlite3.Cursor, size: int | None) -> list[tuple[Any, ...]]:
    if size is None:
        return rows.fetchall()
    found: list[tuple[Any, ...]] = []
    for row in rows:
        found.append(row)
        size -= len(row[-1])
        if size <= 0:
            break
    rows.close()  # unread rows would hold the reader's snapshot
    return found
