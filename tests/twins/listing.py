"""The twin of `sessions.ports.ListStore`."""

from __future__ import annotations

from dataclasses import replace

from pykoclaw_acp.model import conversations
from pykoclaw_acp.model.listing import Archived, ListedSession, ListQuery
from tests.twins.base import MemoryStore
from tests.twins.database import SessionRow


class MemoryListStore(MemoryStore):
    async def listed(self, query: ListQuery) -> list[ListedSession]:
        rows = self.database.read().sessions.values()
        found = [_listed(row) for row in rows if self._is_listed(row, query)]
        if query.archived is not Archived.ONLY:
            found += [*self._others(query), *self._transcripts(query)]
        wanted = [one for one in found if query.after is None or one.place < query.after]
        listed = sorted(wanted, key=lambda one: one.place, reverse=True)[: query.limit]
        return [replace(one, cwd=one.cwd or self._folder(one, query)) for one in listed]

    def _folder(self, one: ListedSession, query: ListQuery) -> str | None:
        """Of a session that has none yet: whatever is asked for, else that of its conversation."""
        if query.cwds is not None:
            return query.cwds[0]
        return self.database.folders.get(one.conversation or "")

    async def set_archived(self, session_id: str, *, archived: bool) -> None:
        def keep() -> None:
            self.database.session(session_id).archived = archived

        await self.database.write(keep)

    def _is_listed(self, row: SessionRow, query: ListQuery) -> bool:
        if row.deleted or row.pruned or row.alias_of is not None or row.record.auxiliary:
            return False
        cwd = row.record.cwd
        if query.cwds is not None and not {cwd, row.record.real_cwd or cwd} & {None, *query.cwds}:
            return False
        name = row.record.conversation_name
        if not row.record.prompted and not self.database.claude_sessions.get(name):
            return False
        if conversations.channel(name) in query.hidden:
            return False
        return query.archived is Archived.INCLUDE or row.archived == (
            query.archived is Archived.ONLY
        )

    def _others(self, query: ListQuery) -> list[ListedSession]:
        owned = {row.record.conversation_name for row in self.database.sessions.values()}
        return [
            ListedSession(
                conversations.id_of(name),
                name,
                None,
                0,
                conversations.title(name),
            )
            for name, claude in self.database.claude_sessions.items()
            if claude and name not in owned and conversations.channel(name) not in query.hidden
        ]

    def _transcripts(self, query: ListQuery) -> list[ListedSession]:
        tables, theirs = self.database, set(self.database.claude_sessions.values())
        rows = [row.found for row in tables.found.values() if query.transcripts and row.listed]
        return [
            ListedSession(one.claude_session_id, None, one.cwd, one.updated_at, one.title)
            for one in rows
            if (query.cwds is None or one.cwd in query.cwds)
            and not tables.is_ours(one.claude_session_id)
            and one.claude_session_id not in {*tables.buried, *theirs}
        ]


def _listed(row: SessionRow) -> ListedSession:
    record = row.record
    return ListedSession(
        record.session_id,
        record.conversation_name,
        record.cwd,
        row.updated_at,
        record.title,
        record.additional_directories,
        row.archived,
    )
