"""The conversations that pykoclaw's programs share, in the database."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from pykoclaw_acp.model.conversations import Conversation, ConversationOwner, FollowedConversation
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.sessions.ports.store import Store


class ConversationStore(Store, Protocol):
    """Conversations, also those that have no session, and which Claude session a session follows.
    Other programs write the rows of conversations at any time.
    """

    async def conversation(self, name: str) -> Conversation | None:
        """The conversation's row."""

    async def continued(self, after: str, limit: int) -> list[str]:
        """Names above `after`, in order, of conversations that have a Claude session; `limit` at
        most.
        """

    async def owner_of(self, name: str) -> ConversationOwner | None:
        """The session of this conversation, also a deleted one."""

    async def adopt(self, record: SessionRecord) -> None:
        """Insert a session for a conversation that another program began.

        Raises Conflict if it has one, or cannot be continued; RowRefused if the id exists.
        """

    async def begin(self, record: SessionRecord) -> None:
        """Insert a session and, if there is none, its conversation's row.

        Raises Conflict if the conversation has a session, RowRefused if the id exists.
        """

    async def add_alias(self, session_id: str, owner: str, *, only: bool) -> None:
        """Insert a further id of a session; `only`: if it has no other one.

        Raises Conflict if it has, or is gone; RowRefused if the id exists.
        """

    async def followed(self, session_id: str) -> FollowedConversation:
        """What the session follows. Raises Conflict if there is no such session."""

    async def changed_rows(self, session_ids: Collection[str]) -> dict[str, str]:
        """Return the Claude sessions in conversations' rows that name another one than the session
        follows, by session; of these sessions.
        """

    async def moved_rows(self) -> dict[str, str]:
        """Return the Claude sessions in conversations' rows that name another one than the session
        follows, by session; not of sessions that follow none, and of deleted ones.
        """

    async def follow_claude_session(self, session_id: str, conversation: Conversation) -> None:
        """The session follows the Claude session of this row from now on. Waits while the database
        cannot be written.
        """

    async def put_right(
        self, session_id: str, read: Conversation, followed: str | None, notes: Sequence[Note]
    ) -> None:
        """Let the conversation's row name the session's own Claude session again, or none if it has
        none yet, unless it no longer names the one that was `read`; keep notes for Claude. Its hash
        is the session's own again, or none if another program has written another one. Waits while
        the database cannot be written.
        """
