"""Sessions of task runs aside: once deleted, what is left of them goes as well, as nobody but their
task has used them. `acp_deleted_transcripts` keeps their ids, which no session gets again.
"""

from __future__ import annotations

from typing import Final

from pykoclaw_acp.model.conversations import OWN
from pykoclaw_acp.store import branches
from pykoclaw_acp.store.database import Database, Statement, Unit
from pykoclaw_acp.store.sql import PENDING

_OWN: Final = "FROM acp_sessions s WHERE s.acp_session_id = ?1 AND s.deleted_at > 0"
_CLAUDE: Final = (
    f"SELECT claude FROM (SELECT s.acp_session_id AS claude {_OWN} UNION SELECT s.followed {_OWN})"  # noqa: S608
    " WHERE claude IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM conversations c WHERE c.session_id = claude"
    f" AND c.name <> (SELECT s.conversation_name {_OWN}))"
    " AND NOT EXISTS (SELECT 1 FROM acp_sessions o WHERE o.followed = claude AND o.acp_session_id <> ?1)"
    " AND NOT EXISTS (SELECT 1 FROM acp_transcripts t WHERE t.claude_session_id = claude"
    " AND t.acp_session_id <> ?1)"
)
# Another program knows the conversation if it has moved the row on, or if something is addressed to it.
_CONVERSATION: Final = (
    "DELETE FROM conversations WHERE name = (SELECT s.conversation_name"  # noqa: S608  constants
    f" {_OWN}) AND COALESCE(session_id, ?1) IN (?1, '', (SELECT s.followed {_OWN}))"
    " AND NOT EXISTS (SELECT 1 FROM scheduled_tasks t"
    " WHERE conversations.name IN (t.conversation, t.target_conversation))"
    f" AND NOT EXISTS (SELECT 1 FROM delivery_queue d WHERE d.channel_prefix = ?2 AND d.status = {PENDING}"
    " AND d.conversation = conversations.name)"
)
# Its conversation's row would make it one that another program began.
_SESSION: Final = (
    "DELETE FROM acp_sessions WHERE acp_session_id = ? AND deleted_at > 0 AND log_key IS NULL"
    " AND NOT EXISTS (SELECT 1 FROM conversations c WHERE c.name = conversation_name)"
    " AND NOT EXISTS (SELECT 1 FROM acp_sessions o WHERE o.alias_of = acp_sessions.acp_session_id)"
    " AND NOT EXISTS (SELECT 1 FROM acp_workers w WHERE w.acp_session_id = acp_sessions.acp_session_id)"
)


async def claude_sessions(database: Database, session_id: str) -> set[str]:
    """Claude sessions of the deleted session that no other one goes on from, or began with."""
    found = {claude for (claude,) in await database.read(_CLAUDE, (session_id,))}
    return found - await branches.branched_off(database, found)


async def discard(database: Database, session_id: str) -> None:
    """Delete the rows that the deleted session has left, unless its conversation is known to others.
    Waits until the database can be written.
    """
    conversation = Statement(_CONVERSATION, (session_id, OWN))
    session = Statement(_SESSION, (session_id,))
    await database.commit(Unit(statements=(conversation, session)), patient=True)
