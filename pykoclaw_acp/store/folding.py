"""Folding of log rows: a message becomes one row, which covers a range of seqs and records where
its pieces end.

`cuts` are the lengths of the pieces in characters, one per seq: `8x399,5` are 400 of them; the last
is never used. The row of a state that was replaced is deleted: the next row covers its seq, with a
piece of length 0 if it is a text.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, islice

import msgspec

from pykoclaw_acp.model import folding
from pykoclaw_acp.model.events import Event, decode, encode
from pykoclaw_acp.model.folding import PART, MessagePiece
from pykoclaw_acp.store.sql import tag
from pykoclaw_acp.store.sqlite import sqlite3
from pykoclaw_acp.store.undecodable import tolerant

_COLUMNS = "first_seq, seq, turn, kind, epoch, frame, source_uuid, cuts, payload"
_SELECT = f"SELECT {_COLUMNS} FROM acp_log WHERE log_key = ? AND seq >= ? AND seq <= ? ORDER BY seq"  # noqa: S608
_SELECT_NEXT = f"SELECT {_COLUMNS} FROM acp_log WHERE log_key = ? AND seq >= ? ORDER BY seq LIMIT 2"  # noqa: S608
_DELETE = "DELETE FROM acp_log WHERE log_key = ? AND seq >= ? AND seq <= ?"
_PIECES = tuple(map(tag, MessagePiece.__args__))
INSERT = f"INSERT INTO acp_log (log_key, {_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608


@dataclass(frozen=True, slots=True)
class LogRow:
    """A row of `acp_log`, without the log's key. Of a damaged text it has the bytes."""

    first: int
    seq: int
    turn: int | None
    kind: str
    epoch: int | None
    frame: int | None
    source: str | None
    cuts: str | bytes | None
    payload: str | bytes

    def values(self, log_key: int) -> tuple[object, ...]:
        """Parameters of the INSERT."""
        return (
            *(log_key, self.first, self.seq, self.turn, self.kind),
            *(self.epoch, self.frame, self.source, self.cuts, self.payload),
        )


def fold(rows: Sequence[LogRow]) -> list[LogRow]:
    """Fold a log into as few rows as possible; rows that are unreadable or have a source stay."""
    events = [None if row.source is not None else decode(row.payload) for row in rows]
    kept, events = _without_replaced(rows, events)
    folded: list[LogRow] = []
    run: list[tuple[LogRow, MessagePiece]] = []
    room = 0
    for row, event in zip(kept, events, strict=True):
        piece = event if isinstance(event, MessagePiece) else None
        size = 0 if piece is None else folding.weight(piece)
        if run and (piece is None or size > room or not _continues(*run[-1], row, piece)):
            folded.append(_join(run))
            run = []
        if piece is None:
            folded.append(row)
            continue
        room = (room if run else PART) - size
        run.append((row, piece))
    if run:
        folded.append(_join(run))
    return folded


def fold_range(connection: sqlite3.Connection, log_key: int, begin: int, end: int) -> None:
    """Fold the rows from `begin` to `end`, inside of a transaction."""
    rows = _read(connection, _SELECT, (log_key, begin, end))
    folded = fold(rows)
    if len(folded) < len(rows):
        connection.execute(_DELETE, (log_key, begin, end))
        connection.executemany(INSERT, [row.values(log_key) for row in folded])


def drop(connection: sqlite3.Connection, log_key: int, seq: int) -> None:
    """Delete the row of a replaced state; the next row covers its seq. Inside of a transaction."""
    rows = _read(connection, _SELECT_NEXT, (log_key, seq))
    if len(rows) == 2 and rows[0].seq == seq and rows[1].first == seq + 1:
        connection.execute(_DELETE, (log_key, seq, rows[1].seq))
        connection.execute(INSERT, _cover(rows[0], rows[1]).values(log_key))


def rest(event: Event | None, first: int, cuts: str | bytes | None, after: int) -> Event | None:
    """The part of a row's event after a cursor, which may lie inside of the row."""
    if (
        not isinstance(cuts, str)
        or not cuts
        or after < first
        or not isinstance(event, MessagePiece)
    ):
        return event
    return msgspec.structs.replace(
        event, text=event.text[sum(islice(lengths(cuts), after + 1 - first)) :]
    )


def lengths(cuts: str) -> Iterable[int]:
    """Lengths of the pieces, one per seq."""
    for part in cuts.split(","):
        length, _, times = part.partition("x")
        for _ in range(int(times or 1)):
            yield int(length)


def _read(connection: sqlite3.Connection, sql: str, parameters: tuple[object, ...]) -> list[LogRow]:
    rows = tolerant(connection, lambda: connection.execute(sql, parameters).fetchall())
    return [LogRow(*one) for one in rows]


def _lengths(row: LogRow) -> list[int]:
    # Where the pieces ended of a row whose cuts are damaged, nobody knows: it is told as a whole.
    return list(lengths(row.cuts)) if isinstance(row.cuts, str) and row.cuts else []


def _cuts(pieces: Iterable[int]) -> str:
    counted = ((length, sum(1 for _ in same)) for length, same in groupby(pieces))
    return ",".join(str(length) if times == 1 else f"{length}x{times}" for length, times in counted)


def _without_replaced(
    rows: Sequence[LogRow], events: Sequence[Event | None]
) -> tuple[list[LogRow], list[Event | None]]:
    last: dict[tuple[str, int | None], int] = {}
    replaced: set[int] = set()
    for at, (row, event) in enumerate(zip(rows, events, strict=True)):
        if (state := folding.state(event)) is None:
            continue
        key = (state, row.turn if state in folding.OF_TURN else None)
        before = None if folding.spares(event) else last.get(key)
        last.pop(key, None)
        if before is not None and rows[before + 1].first == rows[before].seq + 1:
            replaced.add(before)
        if folding.passing(event):
            last[key] = at
    kept: list[LogRow] = []
    waiting: LogRow | None = None
    for at, row in enumerate(rows):
        covering = row if waiting is None else _cover(waiting, row)
        waiting = covering if at in replaced else None
        if waiting is None:
            kept.append(covering)
    return kept, [event for at, event in enumerate(events) if at not in replaced]


def _cover(gone: LogRow, row: LogRow) -> LogRow:
    """`row`, extended to cover the deleted row before it."""
    cuts = row.cuts
    if row.kind in _PIECES:
        # The piece's own length is not needed: nothing comes after it.
        cuts = _cuts([*[0] * (gone.seq - gone.first + 1), *(_lengths(row) or [0])])
    frame = (row.epoch, row.frame) if row.frame is not None else (gone.epoch, gone.frame)
    return replace(row, first=gone.first, cuts=cuts, epoch=frame[0], frame=frame[1])


def _continues(before: LogRow, said: MessagePiece, row: LogRow, piece: MessagePiece) -> bool:
    one_worker = before.epoch is None or row.epoch is None or before.epoch == row.epoch
    return (
        before.seq + 1 == row.first
        and before.turn == row.turn
        and one_worker
        and folding.message(said) == folding.message(piece)
    )


def _join(run: list[tuple[LogRow, MessagePiece]]) -> LogRow:
    if len(run) == 1:
        return run[0][0]
    last, piece = run[-1]
    event = msgspec.structs.replace(piece, text="".join(one.text for _, one in run))
    pieces: list[int] = []
    for row, one in run:
        before = _lengths(row)[:-1]
        pieces += [*before, len(one.text) - sum(before)]
    frame = next(
        ((row.epoch, row.frame) for row, _ in reversed(run) if row.frame is not None), (None, None)
    )
    return replace(
        last,
        first=run[0][0].first,
        cuts=_cuts(pieces),
        epoch=frame[0],
        frame=frame[1],
        payload=encode(event),
    )
