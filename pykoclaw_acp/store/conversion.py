"""Background conversion of logs from `acp_events`, which older versions wrote, to `acp_log`.

One transaction takes a piece, the first rows of a log that are still in `acp_events`, deletes them
and inserts the folded rows, so that a log is complete at any moment.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog

from pykoclaw_acp import crash_points
from pykoclaw_acp.errors import Conflict, RowRefused, StoreUnavailable
from pykoclaw_acp.store.condition import is_damage
from pykoclaw_acp.store.database import Database, Statement, Unit
from pykoclaw_acp.store.folding import LogRow, fold
from pykoclaw_acp.store.logs import GIVE_KEY, NUMBER_OLD_TURNS
from pykoclaw_acp.store.pieces import PIECE_SIZE, SMALLEST, Pieces
from pykoclaw_acp.store.sql import UNFINISHED
from pykoclaw_acp.store.sqlite import sqlite3
from pykoclaw_acp.store.undecodable import untouched

REST: Final = 0.25  # pause before the next piece, as a fraction of its duration: clients come first
LOOK: Final = 0.5  # s between checks while the daemon is busy
RETRY: Final = 30.0  # s until logs that could not be converted are tried again; doubled each time
LONGEST: Final = 3600.0  # s between two tries, at most: writing to a damaged part blocks the store

_SESSIONS: Final = (
    "SELECT acp_session_id FROM acp_sessions WHERE deleted_at IS NULL ORDER BY acp_session_id"
)
_IS_OLD: Final = (
    "SELECT 1 FROM acp_events e JOIN acp_sessions s ON s.acp_session_id = e.acp_session_id"
    " WHERE e.acp_session_id = ? AND s.deleted_at IS NULL LIMIT 1"
)
_PIECE: Final = (
    "SELECT seq, CAST(kind AS BLOB), CAST(turn_id AS BLOB), CAST(source_uuid AS BLOB), CAST(payload AS BLOB)"
    " FROM acp_events WHERE acp_session_id = ? ORDER BY seq LIMIT ?"
)
_HAS_OLD_TURNS: Final = (
    "SELECT 1 FROM acp_turns WHERE acp_session_id = ? AND position IS NULL LIMIT 1"
)
_DELETE: Final = "DELETE FROM acp_events WHERE acp_session_id = ? AND seq >= ? AND seq <= ?"
_INSERT: Final = (
    "INSERT INTO acp_log (log_key, first_seq, seq, turn, kind, source_uuid, cuts, payload) SELECT log_key, ?, ?,"
    " (SELECT position FROM acp_turns WHERE turn_id = ?), ?, ?, ?, ? FROM acp_sessions WHERE acp_session_id = ?"
)
_TURN: Final = (
    "UPDATE acp_turns SET first_seq = CASE WHEN first_seq < ? THEN first_seq ELSE ? END,"  # noqa: S608  constant
    f" last_seq = CASE WHEN state IN {UNFINISHED} OR last_seq > ? THEN last_seq ELSE ? END"
    " WHERE turn_id = ?"
)

log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Progress:
    """Events in the old form: at the start, and still."""

    events: int
    left: int


class Conversion:
    """Converts old logs while `idle()`; `progress` is None once nothing is left, or if that cannot
    be counted.
    """

    def __init__(self, database: Database, idle: Callable[[], bool]) -> None:
        self.progress: Progress | None = None
        self._database = database
        self._idle: Callable[[], bool] = lambda: database.condition.is_writable and idle()
        self._pieces = Pieces(SMALLEST * 5)
        self._refused: set[str] = set()  # of which the log file says so

    async def run(self) -> None:
        """Convert until no old log is left, or cancelled. What cannot be converted holds up no other
        log. Raises StoreUnavailable if there is no telling what the old logs are.
        """
        events = await self._count()
        if events == 0:
            return
        self.progress = None if events is None else Progress(events, events)
        log.info("Converting logs of an older version", action="conversion_begun", events=events)
        left = [session_id for (session_id,) in await self._database.read(_SESSIONS)]
        pause = RETRY
        while left := [one for one in left if not await self._convert(one)]:
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST)
        self.progress = None
        log.info("All logs are in the new form", action="conversion_ended", events=events)

    async def _count(self) -> int | None:
        """Number of events in the old form; None if damage keeps them from being counted."""
        try:
            ((events,),) = await self._database.read("SELECT COUNT(*) FROM acp_events")
        except StoreUnavailable as error:
            if not is_damage(error.__cause__):
                raise
            return None
        return int(events)

    async def _convert(self, session_id: str) -> bool:
        """Convert a session's log; False if it cannot be converted now."""
        while True:
            if not self._idle():
                await asyncio.sleep(LOOK)
                continue
            began = time.monotonic()
            try:
                if not await self._database.read(_IS_OLD, (session_id,)):
                    return True
                converted = await self.step(session_id)
            except Conflict:
                await asyncio.sleep(LOOK)  # the log was pruned, or deleted
                continue
            except (StoreUnavailable, RowRefused, sqlite3.Error) as error:
                if isinstance(error, StoreUnavailable) and not is_damage(error.__cause__):
                    await asyncio.sleep(LOOK)  # the fault is not the log's
                    continue
                self._say_refused(session_id, error)
                return False
            if self.progress is not None:
                left = max(self.progress.left - converted, 0)
                self.progress = replace(self.progress, left=left)
            await asyncio.sleep((time.monotonic() - began) * REST)

    def _say_refused(self, session_id: str, error: Exception) -> None:
        if session_id not in self._refused:
            self._refused.add(session_id)
            log.warning(
                "An old log cannot be converted now",
                action="conversion_delayed",
                session=session_id,
                error=str(error),
            )

    async def step(self, session_id: str) -> int:
        """Convert a piece of this session's log; returns the number of its events, 0 if none are
        left.

        Raises Conflict if the log was changed meanwhile, StoreUnavailable, RowRefused and
        sqlite3.Error; then nothing has changed.
        """
        rows = await self._database.read(_PIECE, (session_id, self._pieces.rows), PIECE_SIZE)
        if not rows:
            return 0
        while await self._database.read(_HAS_OLD_TURNS, (session_id,)):
            number = Statement(NUMBER_OLD_TURNS, (session_id, session_id, self._pieces.rows))
            await self._pieces.commit(self._database, Unit(statements=(number,)))
        unit = await asyncio.to_thread(_converted, session_id, rows)
        crash_points.reached("log_piece_read")
        await self._pieces.commit(self._database, unit)
        crash_points.reached("log_piece_converted")
        return len(rows)


async def complete(database: Database, session_id: str) -> None:
    """Convert what is left of a session's log, for what reads the new form alone, or copies it.

    Raises StoreUnavailable. What SQLite refuses to convert is left as it is.
    """
    conversion = Conversion(database, lambda: True)
    while await database.read(_IS_OLD, (session_id,)):
        try:
            await conversion.step(session_id)
        except Conflict:  # the same piece was converted in the background
            continue
        except (RowRefused, sqlite3.Error) as error:
            log.warning(
                "An old log cannot be converted", action="conversion_delayed", error=str(error)
            )
            return


def _converted(session_id: str, found: Sequence[tuple[Any, ...]]) -> Unit:
    """What makes rows of the new log of these old ones."""
    # Damaged texts are kept as they are.
    rows = [(seq, *(untouched(one) if one else one for one in texts)) for seq, *texts in found]
    turns: list[str | None] = list(dict.fromkeys(turn_id for _, _, turn_id, _, _ in rows))
    numbers = {turn_id: number for number, turn_id in enumerate(turns)}
    old = [
        LogRow(seq, seq, numbers[turn_id], kind, None, None, source, None, payload)
        for seq, kind, turn_id, source, payload in rows
    ]
    statements = [Statement(GIVE_KEY, (session_id,))]
    statements.append(Statement(_DELETE, (session_id, rows[0][0], rows[-1][0]), rows=len(rows)))
    statements += [
        Statement(
            _INSERT,
            (
                one.first,
                one.seq,
                turns[one.turn or 0],
                one.kind,
                one.source,
                one.cuts,
                one.payload,
                session_id,
            ),
            rows=1,
        )
        for one in fold(old)
    ]
    begins: dict[str | None, int] = {}
    ends: dict[str | None, int] = {}
    for seq, _, turn_id, _, _ in rows:
        begins.setdefault(turn_id, seq)
        ends[turn_id] = seq
    statements += [
        Statement(_TURN, (begins[turn_id],) * 2 + (ends[turn_id],) * 2 + (turn_id,))
        for turn_id in turns
        if turn_id is not None
    ]
    return Unit(statements=tuple(statements))
