"""Group commit: while one transaction runs, the units for the next one gather. There is
no timer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from pykoclaw_acp.store.batch import BatchWriter
from pykoclaw_acp.store.condition import KeptOrNot, meets_all
from pykoclaw_acp.store.connection import Connection
from pykoclaw_acp.store.units import Unit

BATCH_LIMIT = 1000
"""Units per transaction, at most: about 20 ms, in which other processes wait for the lock."""


class GroupCommit:
    """The queue in front of the writer, whose only user it is. Belongs to one event loop."""

    def __init__(
        self,
        writer: Connection,
        batches: BatchWriter,
        written: Callable[[Sequence[Unit]], None] | None = None,
    ) -> None:
        """`written` is called after each transaction, with its units."""
        self._writer = writer
        self._written = written
        self._batches = batches
        self._waiting: list[tuple[Unit, asyncio.Future[list[int]]]] = []
        self._writing: list[tuple[Unit, asyncio.Future[list[int]]]] = []
        self._idle = asyncio.Event()
        self._idle.set()
        self._answered = asyncio.Event()  # the writer has finished a batch since `answered` looked

    async def commit(self, unit: Unit) -> list[int]:
        """Commit the unit together with others that wait; returns the seqs of its events."""
        done: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._waiting.append((unit, done))
        if self._idle.is_set():
            self._write()
        return await done

    async def answered(self) -> None:
        """Wait for any answer of the writer, an error included; never returns if it hangs."""
        self._answered.clear()
        if self._idle.is_set():
            await self.commit(Unit())
        else:
            await self._answered.wait()

    async def probe_write(self) -> Exception | None:
        """Try to write; returns the error, if there is one."""
        return await self._writer.run(self._batches.probe)

    async def drain(self) -> None:
        """Wait until everything queued is committed."""
        await self._idle.wait()

    def _write(self) -> None:
        self._idle.clear()
        self._writing, self._waiting = self._waiting[:BATCH_LIMIT], self._waiting[BATCH_LIMIT:]
        units = [unit for unit, _ in self._writing]
        self._writer.post(partial(self._batches.write, units=units), self._done)

    def _done(self, outcomes: list[list[int] | Exception]) -> None:
        batch, self._writing = self._writing, []
        self._answered.set()
        if self._written is not None:
            self._written([unit for unit, _ in batch])
        first = outcomes[0]
        if (
            isinstance(first, Exception)
            and meets_all(first)
            and not isinstance(first, KeptOrNot)  # units that were not tried were not kept
            and len(set(map(id, outcomes))) == 1
        ):
            # Units queued meanwhile would only wait for the same lock, one batch after another.
            batch, self._waiting = [*batch, *self._waiting], []
            outcomes = [first] * len(batch)
        for (_, done), outcome in zip(batch, outcomes, strict=True):
            if done.done():
                continue  # the caller was cancelled; the unit is committed all the same
            if isinstance(outcome, Exception):
                done.set_exception(outcome)
            else:
                done.set_result(outcome)
        if self._waiting:
            self._write()
        else:
            self._idle.set()
