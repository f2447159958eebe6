"""`delivery_queue`, which pykoclaw's programs fill, and `acp_deliveries`: what of it could not be
shown.

A row's conversation is a session's conversation, `acp-` and an id of a session, or such an id
alone.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final, NamedTuple

from pykoclaw_acp.model.conversations import OWN
from pykoclaw_acp.model.deliveries import (
    LONGEST,
    SENT,
    Delivery,
    DeliveryState,
    ImportedDelivery,
    WaitingDeliveries,
    end_in,
    is_of_run,
    time_of,
)
from pykoclaw_acp.model.events import Event, UserMessage, decode
from pykoclaw_acp.model.schedule import now_text
from pykoclaw_acp.store.database import Database, Statement
from pykoclaw_acp.store.sessions import now_ms
from pykoclaw_acp.store.sql import DELIVERED, PENDING

MOST_IMPORTED: Final = 500  # events in which the text of a delivery is looked for
MOST_WAITING: Final = 10_000  # rows that are looked at together
MOST_BESIDE: Final = 1000  # rows before and after one, among which there may be its twin
PROMPT: Final = 200  # characters of a task's prompt, for the heading
WIDEST: Final = 4  # bytes of a character in UTF-8

# CROSS JOIN fixes the order: the rows that wait first, then sessions by their indexes. Each SELECT
# returns the rows in the order in which they were inserted. As bytes: one id that is not UTF-8 must
# not keep the others from being read.
_COLUMNS: Final = (
    "CAST(d.id AS BLOB), CAST(d.created_at AS BLOB), COALESCE(s.alias_of, s.acp_session_id),"
    " s.deleted_at > 0, d.rowid, typeof(d.id) = 'text'"
)
_OWN: Final = tuple(
    f"SELECT {_COLUMNS} FROM delivery_queue d CROSS JOIN acp_sessions s ON {matches}"  # noqa: S608  constants
    f" WHERE d.channel_prefix = '{OWN}' AND d.status = {PENDING}"
    for matches in (
        "s.conversation_name = d.conversation",
        f"d.conversation LIKE '{OWN}-%' AND s.acp_session_id = SUBSTR(d.conversation, {len(OWN) + 2})",
        "s.acp_session_id = d.conversation",
    )
)
# Of a task without a channel, whose target is an id alone, pykoclaw takes the first part of this for
# the channel. All channels are found by as many steps in their index as there are.
_CHANNELS: Final = (
    "WITH RECURSIVE channels (name) AS (SELECT MIN(channel_prefix) FROM delivery_queue UNION ALL"
    " SELECT (SELECT MIN(channel_prefix) FROM delivery_queue WHERE channel_prefix > name)"
    " FROM channels WHERE name IS NOT NULL)"
    " SELECT name FROM channels WHERE LENGTH(name) = 8"
)
_BARE: Final = (
    f"SELECT {_COLUMNS} FROM ({_CHANNELS}) c CROSS JOIN delivery_queue d"  # noqa: S608  constants
    f" ON d.channel_prefix = c.name AND d.status = {PENDING}"
    " CROSS JOIN acp_sessions s ON s.acp_session_id = d.conversation"
)
_WAITING: Final = " UNION ALL ".join((*_OWN, _BARE))
# What was imported from transcripts has the id of its entry.
_IMPORTED: Final = (
    "SELECT e.seq, e.source_uuid, e.payload FROM acp_sessions s JOIN acp_log e ON e.log_key = s.log_key"
    " WHERE s.acp_session_id = ? AND e.seq > ? AND e.source_uuid IS NOT NULL"
    " ORDER BY e.seq DESC LIMIT ?"
)
_PATH: Final = (
    "SELECT x.path, t.last_uuid FROM acp_transcript_turns t JOIN acp_transcripts x"
    " ON x.acp_session_id = t.acp_session_id AND x.claude_session_id = t.claude_session_id"
    " WHERE t.acp_session_id = ? AND t.prompt_uuid = ?"
)
# Rows of one minute were inserted beside each other; of those of years, only these are compared.
_TWIN: Final = (
    "SELECT CAST(o.created_at AS BLOB) FROM delivery_queue d JOIN delivery_queue o"  # noqa: S608  constants
    f" ON o.channel_prefix = d.channel_prefix AND o.status = {DELIVERED}"
    f" AND o.rowid BETWEEN d.rowid - {MOST_BESIDE} AND d.rowid + {MOST_BESIDE}"
    " AND o.task_id = d.task_id AND o.message = d.message WHERE d.id = ?"
)
# As bytes: one text that is not UTF-8 must not keep the others from being read, and of a text SQLite
# counts and cuts characters up to the first NUL only.
_ROW: Final = (
    "SELECT CAST(d.task_id AS BLOB), CAST(d.created_at AS BLOB), LENGTH(d.message),"  # noqa: S608  constants
    f" SUBSTR(CAST(d.message AS BLOB), 1, {LONGEST * WIDEST}),"
    f" SUBSTR(CAST(t.prompt AS BLOB), 1, {PROMPT * WIDEST}),"
    f" d.task_id = '{SENT}' OR t.conversation = d.conversation"
    " FROM delivery_queue d LEFT JOIN scheduled_tasks t ON t.id = d.task_id"
    f" WHERE d.id = ? AND d.status = {PENDING}"
)


class Unnamed(NamedTuple):
    """A row that its id does not name: there is none, or it is no text."""

    row: int
    stored_id: bytes | None


async def waiting(database: Database) -> tuple[list[WaitingDeliveries], list[Unnamed]]:
    """Deliveries for conversations that have a session, or had one that was deleted, by session; and
    those among them that have to be given an id first.
    """
    rows = await database.read(f"{_WAITING} LIMIT {MOST_WAITING}")
    rows.sort(key=lambda row: row[1] or b"")  # stable: rows of one time stay in their order
    owners: dict[str, tuple[str, bool]] = {}
    unnamed: list[Unnamed] = []
    for name, _, session_id, deleted, row, is_text in rows:
        delivery_id = _text(name) if is_text else None
        if delivery_id is None:
            unnamed.append(Unnamed(row, name))
            continue
        known = owners.get(delivery_id)
        if known is None or (known[1] and not deleted):
            owners[delivery_id] = (session_id, bool(deleted))
    found: dict[str, WaitingDeliveries] = {}
    for delivery_id, (session_id, deleted) in owners.items():
        found.setdefault(
            session_id, WaitingDeliveries(session_id, deleted, [])
        ).delivery_ids.append(delivery_id)
    return list(found.values()), unnamed


def give_id(unnamed: Unnamed, delivery_id: str) -> Statement:
    """Give a row that waits an id, by which it can be marked as every other."""
    return Statement(
        "UPDATE delivery_queue SET id = ? WHERE rowid = ? AND CAST(id AS BLOB) IS ?"  # noqa: S608  constant
        f" AND status = {PENDING}",
        (delivery_id, unnamed.row, unnamed.stored_id),
    )


async def find(database: Database, delivery_id: str) -> Delivery | None:
    """A delivery that still waits."""
    rows = await database.read(_ROW, (delivery_id,))
    return _delivery(delivery_id, rows[0]) if rows else None


def _delivery(delivery_id: str, row: tuple[Any, ...]) -> Delivery:
    length, own = row[2], row[5]
    task, created_at, text, prompt = (
        one.decode("utf-8", "replace") if isinstance(one, bytes) else ""
        for one in (*row[:2], *row[3:5])
    )
    length = max(int(length or 0), len(text))
    return Delivery(
        delivery_id, task, text[:LONGEST], length, created_at, bool(own), prompt[:PROMPT]
    )


def _text(name: bytes | None) -> str | None:
    try:
        return None if name is None else name.decode()
    except UnicodeDecodeError:
        return None


async def taken_in(
    database: Database, session_id: str, delivery: Delivery, after: int
) -> list[ImportedDelivery]:
    """Imported turns above `after` that said what is delivered, the newest first."""
    rows = await database.read(_IMPORTED, (session_id, after, MOST_IMPORTED))
    found: list[ImportedDelivery] = []
    said: deque[tuple[str, Event | None]] = deque()  # of a turn, each with its entry
    for seq, source, payload in rows:  # the newest first
        event = decode(payload)
        said.appendleft((_entry(source), event))
        if isinstance(event, UserMessage):
            end = end_in(delivery, [one for _, one in said])
            if end is not None:
                prompt, entry = said[0][0], said[end.position][0]
                for path, last in await database.read(_PATH, (session_id, prompt)):
                    if end.whole or last == entry:
                        found.append(ImportedDelivery(int(seq), path, entry, prompt))
            said.clear()
    return found


def _entry(source: str) -> str:
    """The entry that an imported event is from."""
    return source.partition(":")[0]


async def has_twin(database: Database, delivery: Delivery) -> bool:
    """Whether the task's result with this text was delivered within the time of one run."""
    rows = await database.read(_TWIN, (delivery.delivery_id,))
    return any(is_of_run(delivery, time_of(at.decode("utf-8", "replace"))) for (at,) in rows)


def delivered(delivery_id: str) -> tuple[Statement, ...]:
    """Mark a delivery as shown. Fails with Conflict if it is no longer pending."""
    return (
        Statement(
            f"UPDATE delivery_queue SET status = {DELIVERED}, delivered_at = ? WHERE id = ?"  # noqa: S608  constants
            f" AND status = {PENDING}",
            (now_text(), delivery_id),
            rows=1,
        ),
        Statement("DELETE FROM acp_deliveries WHERE delivery_id = ?", (delivery_id,)),
    )


def count_attempt(delivery_id: str, reason: str) -> Statement:
    """Count an attempt to show a delivery that failed."""
    return Statement(
        "INSERT INTO acp_deliveries (delivery_id, attempts, reason, tried_at) VALUES (?, 1, ?, ?)"
        " ON CONFLICT (delivery_id) DO UPDATE SET attempts = acp_deliveries.attempts + 1,"
        " reason = excluded.reason, tried_at = excluded.tried_at",
        (delivery_id, reason, now_ms()),
    )


def failed(delivery_id: str) -> Statement:
    """Mark a delivery as failed: it is not tried again."""
    return Statement(
        f"UPDATE delivery_queue SET status = ? WHERE id = ? AND status = {PENDING}",  # noqa: S608  constant
        (DeliveryState.FAILED, delivery_id),
    )


async def attempts(database: Database, delivery_id: str) -> int:
    """How often it could not be shown."""
    rows = await database.read(
        "SELECT attempts FROM acp_deliveries WHERE delivery_id = ?", (delivery_id,)
    )
    return int(rows[0][0]) if rows else 0
