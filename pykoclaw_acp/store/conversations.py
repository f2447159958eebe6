"""One session per conversation: of several that share one, one is kept and the others become its
aliases.

An adopted table may hold several ACP ids of a conversation; earlier versions kept a log, a queue
and a worker for each.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import structlog

from pykoclaw_acp import crash_points
from pykoclaw_acp.store import merging, moving, notes, rules
from pykoclaw_acp.store.conversion import Conversion
from pykoclaw_acp.store.database import Database, Statement, Unit
from pykoclaw_acp.store.logs import LAST_SEQ
from pykoclaw_acp.store.merging import LogEnd, MergePlan

_SHARED: Final = (
    f"SELECT s.acp_session_id, s.conversation_name, {LAST_SEQ} FROM acp_sessions s"  # noqa: S608  constant
    " WHERE s.alias_of IS NULL AND s.deleted_at IS NULL AND s.conversation_name IN ("
    "SELECT conversation_name FROM acp_sessions WHERE alias_of IS NULL AND deleted_at IS NULL"
    " GROUP BY conversation_name HAVING COUNT(*) > 1"
    ") ORDER BY s.conversation_name, s.created_at, s.acp_session_id"
)
# The newest value counts, whichever id it was set under.
_NEWEST: Final = (
    "cwd",
    "additional_directories",
    "mode",
    "model",
    "config",
    "title",
    "away_policy",
)

log: Final = structlog.get_logger()


async def unite(database: Database, kept: Collection[str]) -> bool:
    """Give each conversation one session; returns whether there was anything to do.

    Logs to be merged are converted first, so that few rows are copied. All that grows with the
    logs is done in pieces, between which other programs can write; what shows changes in one
    transaction for each conversation. `kept`: sessions with a live worker, which are preferred. The
    caller serves nobody yet, and no other worker lives.
    """
    shared: dict[str, list[LogEnd]] = {}
    for session_id, name, last_seq in await database.read(_SHARED):
        shared.setdefault(name, []).append(LogEnd(session_id, last_seq))
    for name, sessions in shared.items():
        owner = _owner(sessions, kept)
        others = [one for one in sessions if one is not owner]
        if any(other.last_seq for other in others):
            await _convert(database, sessions)
        plan = await merging.plan(database, owner, others)
        key = await moving.write(database, plan) if plan.moves else None
        await database.commit(_union(plan, key, others), patient=True)
        log.info(
            "Sessions of one conversation were merged",
            action="conversation_united", conversation=name, session=owner.session_id, ids=len(sessions),
        )  # fmt: skip
        crash_points.reached("conversation_united")
        await moving.finish(database)
    return bool(shared)


async def finish(database: Database) -> None:
    """Complete what an interrupted `unite` has left; before anything else is written."""
    await moving.finish(database)


async def _convert(database: Database, sessions: Sequence[LogEnd]) -> None:
    conversion = Conversion(database, lambda: True)
    for one in sessions:
        while await conversion.step(one.session_id):
            pass


async def aliases(database: Database) -> dict[str, str]:
    """Aliases, with the id of their session; only `unite` makes new ones."""
    rows = await database.read(
        "SELECT acp_session_id, alias_of FROM acp_sessions WHERE alias_of IS NOT NULL"
    )
    return dict(rows)


def _owner(sessions: Sequence[LogEnd], kept: Collection[str]) -> LogEnd:
    """The session to keep: with a live worker, else one that was used, so that few logs move; else
    the first.
    """
    return max(sessions, key=lambda one: (one.session_id in kept, one.last_seq > 0))


def _union(plan: MergePlan, key: int | None, others: Sequence[LogEnd]) -> Unit:
    """The transaction with which a conversation has one session. `key`: of the merged log."""
    owner, ids = plan.owner, [other.session_id for other in others]
    statements = list(
        moving.switch(key, plan, ids)
        if key is not None
        else moving.move_turns(plan, ids, plan.turns)
    )
    for other in ids:
        alias = "UPDATE acp_sessions SET alias_of = ? WHERE acp_session_id = ?"
        question = "UPDATE acp_permissions SET acp_session_id = ? WHERE acp_session_id = ? AND outcome IS NULL"
        statements.append(Statement(alias, (owner, other), rows=1))
        statements.append(Statement(question, (owner, other)))
        statements.append(notes.move(other, owner))
        statements.extend(rules.move(other, owner))
    if key is not None:
        statements.append(notes.forget_places(owner))
    statements.extend(_settled(owner))
    return Unit(statements=tuple(statements), durable=True, renumbers=True)


def _settled(owner: str) -> Iterator[Statement]:
    """Merge the rows of all ids into the owner's."""
    every = "FROM acp_sessions o WHERE (o.acp_session_id = ? OR o.alias_of = ?)"
    for column in _NEWEST:
        order = f"ORDER BY o.{column} IS NULL, o.used_clock DESC, o.updated_at DESC, o.alias_of IS NOT NULL LIMIT 1"
        newest = f"SELECT o.{column} {every} {order}"
        yield Statement(
            f"UPDATE acp_sessions SET {column} = ({newest}) WHERE acp_session_id = ?",  # noqa: S608  constants
            (owner, owner, owner),
        )
    yield Statement(
        f"UPDATE acp_sessions SET prompted_at = (SELECT MIN(o.prompted_at) {every}),"  # noqa: S608  constants
        f" auxiliary = (SELECT COALESCE(MIN(o.auxiliary), 0) {every} AND o.prompted_at IS NOT NULL),"
        f" updated_at = (SELECT MAX(o.updated_at) {every}),"
        f" used_clock = (SELECT MAX(o.used_clock) {every}),"
        f" created_at = (SELECT MIN(o.created_at) {every}),"
        f" closed_at = (SELECT CASE WHEN COUNT(*) = COUNT(o.closed_at) THEN MAX(o.closed_at) END {every}),"
        f" pruned_at = (SELECT CASE WHEN COUNT(*) = COUNT(o.pruned_at) THEN MAX(o.pruned_at) END {every})"
        " WHERE acp_session_id = ?",
        (owner,) * 15,
    )
