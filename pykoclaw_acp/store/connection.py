"""One SQLite connection in a thread of its own."""

from __future__ import annotations

import asyncio
import os
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from pykoclaw_acp.store.sqlite import sqlite3

BUSY_TIMEOUT = 10.0
"""Seconds to wait for another process's lock during start-up."""

LOCK_WAIT = 0.75
"""Seconds that a commit waits for another process's lock; what reads may wait as long, and at most 1 s."""

T = TypeVar("T")
_Calls = SimpleQueue[Callable[[], None] | None]


class Connection:
    """A connection in autocommit mode. Calls run in its thread, one after the other, in the order
    they were made.

    A call is a whole function, not a statement: a transaction takes one trip to the thread.
    """

    def __init__(self) -> None:
        """Use `open`."""
        self._calls: _Calls = SimpleQueue()
        self._connection: sqlite3.Connection | None = None
        # A daemon thread: a program that does not close the connection still ends, as if it had
        # been killed.
        Thread(target=_serve, args=(self._calls,), name="sqlite", daemon=True).start()

    @classmethod
    async def open(cls, path: Path) -> Connection:
        """Open the file; raises sqlite3.Error if that fails."""
        made = cls()
        try:
            made._connection = await made._call(partial(_connect, path))
        except BaseException:
            made._calls.put(None)
            raise
        return made

    @property
    def raw(self) -> sqlite3.Connection:
        """The connection itself, which may be used in its thread only."""
        if self._connection is None:
            raise sqlite3.ProgrammingError("the connection is closed")
        return self._connection

    async def run(self, function: Callable[[sqlite3.Connection], T]) -> T:
        """The result of `function(connection)`, which runs to its end even if the caller is
        cancelled.
        """
        return await self._call(partial(function, self.raw))

    def post(self, function: Callable[[sqlite3.Connection], T], done: Callable[[T], None]) -> None:
        """Run a function that never raises; its result goes to `done`, in the event loop of the
        caller.

        Without a task and a future, whose turns in the loop cost more than a small transaction.
        """
        loop, connection = asyncio.get_running_loop(), self.raw
        self._calls.put(lambda: _tell(loop, partial(done, function(connection))))

    async def close(self) -> None:
        """Wait for the calls that were made, close the file, end the thread; a second call does
        nothing.
        """
        if self._connection is None:
            return
        connection, self._connection = self._connection, None
        try:
            await self._call(connection.close)
        finally:
            self._calls.put(None)

    def __del__(self) -> None:
        if self._connection is not None:
            warnings.warn(f"{self!r} was not closed", ResourceWarning, stacklevel=1, source=self)
            self._calls.put(self._connection.close)
            self._calls.put(None)

    async def _call(self, function: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()
        self._calls.put(partial(_resolve, loop, done, function))
        return await done


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT, isolation_level=None)
    # SQLite may be built with them on, and rows of pykoclaw's programs refer to tasks that do not exist.
    connection.execute("PRAGMA foreign_keys=OFF")
    return connection


def _serve(calls: _Calls) -> None:
    while (call := calls.get()) is not None:
        try:
            call()
        except BaseException:  # noqa: BLE001  nobody would hear of it, as when memory is short
            # Callers would wait for ever, and what a transaction has done is not known: the next
            # process finds that out, as after a crash.
            with suppress(BaseException):
                traceback.print_exc()
            os._exit(os.EX_TEMPFAIL)
        del call  # and what it holds


def _resolve(
    loop: asyncio.AbstractEventLoop, done: asyncio.Future[T], function: Callable[[], T]
) -> None:
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001  the caller's, whatever it is
        _tell(loop, partial(_settle, done, done.set_exception, error))
    else:
        _tell(loop, partial(_settle, done, done.set_result, result))


def _settle(
    done: asyncio.Future[T], settle: Callable[[Any], None], value: T | BaseException
) -> None:
    if not done.done():  # its caller may have been cancelled
        settle(value)


def _tell(loop: asyncio.AbstractEventLoop, function: Callable[[], None]) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(function)
