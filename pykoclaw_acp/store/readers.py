"""The reader connections, which see what is committed and never wait for the writer."""

from __future__ import annotations

import asyncio
from typing import Any

from pykoclaw_acp.store.connection import Connection
from pykoclaw_acp.store.sqlite import sqlite3
from pykoclaw_acp.tasks import Tasks


class ReaderPool:
    """Runs each query on an idle reader; waits for one if all are busy."""

    def __init__(self, readers: list[Connection]) -> None:
        self._readers = readers
        self._idle: asyncio.Queue[Connection] = asyncio.Queue()
        for reader in readers:
            self._idle.put_nowait(reader)
        self._queries = Tasks()

    async def read(
        self, sql: str, parameters: tuple[Any, ...], size: int | None
    ) -> list[tuple[Any, ...]]:
        """As `Database.read`."""
        # A separate task: the reader is busy until the query ends, even if the caller is cancelled.
        return await asyncio.shield(self._queries.start(self._query(sql, parameters, size)))

    async def close(self) -> None:
        """Wait for running queries, then close the connections."""
        await asyncio.gather(*self._queries, return_exceptions=True)
        for reader in self._readers:
            await reader.close()

    async def _query(
        self, sql: str, parameters: tuple[Any, ...], size: int | None
    ) -> list[tuple[Any, ...]]:
        reader = await self._idle.get()
        try:
            return await reader.run(lambda connection: _rows(connection, sql, parameters, size))
        finally:
            self._idle.put_nowait(reader)


def _rows(
    connection: sqlite3.Connection, sql: str, parameters: tuple[Any, ...], size: int | None
) -> list[tuple[Any, ...]]:
    """The rows; a text that is damaged, so that it is no UTF-8, is empty."""
    try:
        return _fetch(connection.execute(sql, parameters), size)
    except sqlite3.OperationalError as error:
        if "decode" not in str(error):
            raise
    connection.text_factory = _readable
    try:
        return _fetch(connection.execute(sql, parameters), size)
    finally:
        connection.text_factory = str


def _readable(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return ""


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
