"""SQL fragments that several tables' modules share."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from pykoclaw_acp.model import conversations, turns
from pykoclaw_acp.model.deliveries import DeliveryState
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.scheduled import TaskState
from pykoclaw_acp.model.turns import TurnOrigin, TurnState


def literals(values: Collection[str]) -> str:
    """These words as the right side of IN; a partial index is used for literals only, not for
    parameters.
    """
    return "(" + ", ".join(f"'{value}'" for value in values) + ")"


def of_channels(column: str, hidden: Collection[str]) -> tuple[str, tuple[str, ...]]:
    """A condition that leaves out the names of these channels, and its parameters."""
    conditions = [f" AND SUBSTR({column}, 1, {len(one) + 1}) <> ?" for one in hidden]
    if conversations.NO_CHANNEL in hidden:
        conditions.append(f" AND {column} LIKE '%-%'")
    return "".join(conditions), tuple(f"{one}-" for one in hidden)


def places(values: Collection[object]) -> str:
    """Return a placeholder for each value, as the right side of IN."""
    return f"({', '.join('?' * len(values))})"


def tag(event: type[Event]) -> str:
    """The kind of these events, as rows have it."""
    return str(event.__struct_config__.tag)


def kind(event: type[Event]) -> str:
    """The kind of these events, as a literal."""
    return f"'{tag(event)}'"


def kinds(*events: type[Event]) -> str:
    """The kinds of all these events, as the right side of IN; an index has them in its own order."""
    return literals([tag(event) for event in events])


UNFINISHED: Final = literals(turns.UNFINISHED)  # as in the index acp_turns_unfinished
STARTED: Final = literals(turns.STARTED)
QUEUED: Final = f"'{TurnState.QUEUED}'"
DISPATCHED: Final = f"'{TurnState.DISPATCHED}'"
DONE: Final = f"'{TurnState.DONE}'"
RUNNING: Final = f"'{TurnState.RUNNING}'"
CLIENT: Final = f"'{TurnOrigin.CLIENT}'"
BACKGROUND: Final = f"'{TurnOrigin.BACKGROUND}'"
PENDING: Final = f"'{DeliveryState.PENDING}'"
DELIVERED: Final = f"'{DeliveryState.DELIVERED}'"
COMPLETED: Final = f"'{TaskState.COMPLETED}'"
NOT_DELETED: Final = "COALESCE(deleted_at, 0) = 0"
"""Whether a session takes what is written; it does while it is being made, which is 0."""
LOG_KEY: Final = "(SELECT log_key FROM acp_sessions WHERE acp_session_id = ?)"
CONTINUED: Final = "(TYPEOF(c.name) || TYPEOF(c.session_id) = 'texttext' AND c.session_id <> '')"
"""Whether the conversation `c` can be continued; the earlier plugin wrote '' for none. SQLite keeps
bytes in a column of text, which no program of the conversations could use.
"""
HAS_SESSION: Final = "EXISTS (SELECT 1 FROM acp_sessions own WHERE own.conversation_name = c.name)"
"""Whether the conversation `c` has a session, or had one that was deleted."""
OF_OURS: Final = (
    "(EXISTS (SELECT 1 FROM acp_sessions own WHERE own.acp_session_id = f.claude_session_id)"
    " OR EXISTS (SELECT 1 FROM acp_sessions own WHERE own.followed = f.claude_session_id)"
    " OR EXISTS (SELECT 1 FROM acp_begun_transcripts own WHERE own.claude_session_id = f.claude_session_id)"
    " OR EXISTS (SELECT 1 FROM acp_transcripts own WHERE own.claude_session_id = f.claude_session_id))"
)
"""Whether the found transcript `f` belongs to a session of ours, also to a deleted one."""
OF_DELETED: Final = (
    "EXISTS (SELECT 1 FROM acp_deleted_transcripts gone"
    " WHERE gone.claude_session_id = f.claude_session_id)"
)
"""Whether the session of the found transcript `f` was deleted."""
CWD: Final = (
    "CASE WHEN s.client IS NULL AND s.used_clock = 0 AND s.created_at = s.updated_at AND c.session_id IS NOT NULL"
    " THEN NULL ELSE s.cwd END"
)
"""Directory of the session `s` of the conversation `c`. Of one that was adopted with its table and
not opened since, it is that of the conversation, not the client's: unknown."""
