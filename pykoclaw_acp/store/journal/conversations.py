"""The conversations of all programs, over `store/shared_conversations.py`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pykoclaw_acp.model.conversations import Conversation, ConversationOwner, FollowedConversation
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.store import notes as store_notes
from pykoclaw_acp.store import shared_conversations
from pykoclaw_acp.store.journal.base import SqlStore
from pykoclaw_acp.store.units import Unit


class SqlConversationStore(SqlStore):
    """Implements `sessions.ports.ConversationStore`."""

    async def conversation(self, name: str) -> Conversation | None:
        """The conversation's row."""
        return await shared_conversations.find(self._database, name)

    async def continued(self, after: str, limit: int) -> list[str]:
        """Names of conversations that have a Claude session."""
        return await shared_conversations.continued(self._database, after, limit)

    async def owner_of(self, name: str) -> ConversationOwner | None:
        """The session of this conversation, also a deleted one."""
        return await shared_conversations.owner_of(self._database, name)

    async def adopt(self, record: SessionRecord) -> None:
        """Insert a session for a conversation that another program began."""
        await self._run(shared_conversations.adopt(record, self.clock.now()))

    async def begin(self, record: SessionRecord) -> None:
        """Insert a session and, if there is none, its conversation's row."""
        await self._commit(Unit(shared_conversations.begin(record, self.clock.now())))

    async def add_alias(self, session_id: str, owner: str, *, only: bool) -> None:
        """Insert a further id of a session."""
        now = self.clock.now()
        await self._run(shared_conversations.add_alias(session_id, owner, now, only=only))

    async def followed(self, session_id: str) -> FollowedConversation:
        """What the session follows."""
        return await shared_conversations.followed(self._database, session_id)

    async def changed_rows(self, session_ids: Collection[str]) -> dict[str, str]:
        """Return the other Claude sessions that rows of these sessions name, by session."""
        return await shared_conversations.changed_rows(self._database, session_ids)

    async def moved_rows(self) -> dict[str, str]:
        """Return the Claude sessions in rows whose sessions follow another one, by session."""
        return await shared_conversations.moved_rows(self._database)

    async def follow_claude_session(self, session_id: str, conversation: Conversation) -> None:
        """The session follows the Claude session of this row."""
        await self._run(
            shared_conversations.follow_claude_session(session_id, conversation), patient=True
        )

    async def put_right(
        self, session_id: str, read: Conversation, followed: str | None, notes: Sequence[Note]
    ) -> None:
        """Let the conversation's row name the session's own Claude session again."""
        kept = (store_notes.add(session_id, one.note_id, one.text) for one in notes)
        row = shared_conversations.put_right(session_id, read, followed)
        await self._commit(Unit((*kept, row)), patient=True)
