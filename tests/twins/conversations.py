"""The twin of `sessions.ports.ConversationStore`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from pykoclaw_acp.errors import Conflict, RowRefused
from pykoclaw_acp.model.conversations import Conversation, ConversationOwner, FollowedConversation
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.model.turns import SessionRecord
from tests.twins.base import MemoryStore
from tests.twins.database import SessionRow


class MemoryConversationStore(MemoryStore):
    async def conversation(self, name: str) -> Conversation | None:
        database = self.database.read()
        if name not in database.claude_sessions:
            return None
        claude = database.claude_sessions[name] or None
        return Conversation(name, claude, database.folders.get(name), database.hashes.get(name))

    async def continued(self, after: str, limit: int) -> list[str]:
        rows = self.database.read().claude_sessions.items()
        return sorted(name for name, claude in rows if claude and name > after)[:limit]

    async def owner_of(self, name: str) -> ConversationOwner | None:
        rows = self.database.read().sessions.values()
        mine = [
            ConversationOwner(one.record.session_id, one.deleted)
            for one in rows
            if one.record.conversation_name == name and one.alias_of is None
        ]
        return min(mine, key=lambda one: one.deleted, default=None)

    async def adopt(self, record: SessionRecord) -> None:
        def adopt() -> None:
            if not self.database.claude_sessions.get(record.conversation_name):
                raise Conflict(record.conversation_name)
            self._insert(record)

        await self.database.write(adopt)

    async def begin(self, record: SessionRecord) -> None:
        def begin() -> None:
            if record.conversation_name not in self.database.claude_sessions:
                self.database.claude_sessions[record.conversation_name] = None
                self.database.folders[record.conversation_name] = record.cwd
            self._insert(record)

        await self.database.write(begin)

    def _insert(self, record: SessionRecord) -> None:
        rows = self.database.sessions
        if any(one.record.conversation_name == record.conversation_name for one in rows.values()):
            raise Conflict(record.conversation_name)
        if record.session_id in rows:
            raise RowRefused(record.session_id)
        rows[record.session_id] = SessionRow(replace(record), self.clock.now())

    async def add_alias(self, session_id: str, owner: str, *, only: bool) -> None:
        def add() -> None:
            rows = self.database.sessions
            known = rows.get(owner)
            taken = only and any(one.alias_of == owner for one in rows.values())
            if known is None or known.deleted or taken:
                raise Conflict(owner)
            if session_id in rows:
                raise RowRefused(session_id)
            record = SessionRecord(session_id, known.record.conversation_name, None)
            rows[session_id] = SessionRow(record, self.clock.now(), alias_of=owner)

        await self.database.write(add)

    async def followed(self, session_id: str) -> FollowedConversation:
        row = self.database.read().session(session_id)
        known = await self.conversation(row.record.conversation_name)
        return FollowedConversation(known, self.database.followed.get(session_id), row.prompt_hash)

    async def changed_rows(self, session_ids: Collection[str]) -> dict[str, str]:
        known = [one for one in session_ids if one in self.database.read().sessions]
        found = [(one, await self.followed(one)) for one in known]
        return {
            session_id: one.row.claude_session_id
            for session_id, one in found
            if one.row is not None
            and one.row.claude_session_id is not None
            and one.row.claude_session_id != one.claude_session_id
        }

    async def moved_rows(self) -> dict[str, str]:
        rows = self.database.read().sessions
        own = [one for one in rows if rows[one].alias_of is None and not rows[one].deleted]
        moved = await self.changed_rows(own)
        return {one: claude for one, claude in moved.items() if one in self.database.followed}

    async def follow_claude_session(self, session_id: str, conversation: Conversation) -> None:
        def follow() -> None:
            row = self.database.session(session_id)
            row.prompt_hash = conversation.prompt_hash
            self.database.followed.pop(session_id, None)
            if conversation.claude_session_id is not None:
                self.database.followed[session_id] = conversation.claude_session_id

        await self.database.write(follow, patient=True)

    async def put_right(
        self, session_id: str, read: Conversation, followed: str | None, notes: Sequence[Note]
    ) -> None:
        def put_right() -> None:
            for one in notes:
                self.database.notes.setdefault(one.note_id, (session_id, one.text))
            if self.database.claude_sessions.get(read.name) == read.claude_session_id:
                self.database.claude_sessions[read.name] = followed
                own = self.database.session(session_id).prompt_hash
                same = self.database.hashes[read.name] in (None, own)
                self.database.hashes[read.name] = own if same else None

        await self.database.write(put_right, patient=True)
