"""The twin of `sessions.ports.TranscriptSessions`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from pykoclaw_acp.errors import Conflict, RowRefused
from pykoclaw_acp.model.turns import SessionRecord
from tests.twins.base import MemoryStore
from tests.twins.database import SessionRow


class MemoryTranscriptSessions(MemoryStore):
    async def conversation_following(self, claude_session_id: str) -> str | None:
        database = self.database.read()
        owned = {row.record.conversation_name for row in database.sessions.values()}
        named = (
            name
            for name, claude in database.claude_sessions.items()
            if claude == claude_session_id and name not in owned and claude not in database.buried
        )
        return next(named, None)

    async def adopt_transcript(self, record: SessionRecord, updated_at: int) -> None:
        def adopt() -> None:
            database, one = self.database, record.session_id
            if self._is_ours(one) or one in database.buried:
                raise Conflict(one)
            if record.conversation_name in database.claude_sessions:
                raise RowRefused(record.conversation_name)
            row = SessionRow(replace(record, prompted=True), self.clock.now())
            row.updated_at = updated_at
            database.sessions[one] = row
            database.claude_sessions[record.conversation_name] = one
            database.folders[record.conversation_name] = record.cwd

        await self.database.write(adopt)

    async def branched_off(self, claude_session_ids: Collection[str]) -> set[str]:
        rows = self.database.read().sessions.values()
        living = (row.record.branch for row in rows if not row.deleted)
        return {one.source for one in living if one and one.source in claude_session_ids}

    async def bury_transcript(self, claude_session_id: str) -> None:
        def bury() -> None:
            if not self._is_ours(claude_session_id):
                self.database.buried.add(claude_session_id)

        await self.database.write(bury)

    def _is_ours(self, claude_session_id: str) -> bool:
        database = self.database
        return (
            claude_session_id in database.sessions
            or claude_session_id in database.followed.values()
            or any(claude == claude_session_id for _, claude in database.transcripts)
        )
