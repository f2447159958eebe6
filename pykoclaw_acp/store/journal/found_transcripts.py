"""The index of transcripts, over `store/found_transcripts.py`."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence

from pykoclaw_acp.model.found_transcripts import FoundTranscript
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.store import branches
from pykoclaw_acp.store import found_transcripts as store
from pykoclaw_acp.store.journal.base import SqlStore
from pykoclaw_acp.store.units import Statement, Unit


class SqlFoundStore(SqlStore):
    """Implements `transcripts.ports.FoundStore` and `sessions.ports.TranscriptSessions`."""

    async def transcript_folders(self) -> dict[str, str]:
        """Folders that were looked at, each with its digest."""
        return await store.folders(self._database)

    async def known_in_folder(self, folder: str) -> dict[str, str]:
        """Size and time of a folder's transcripts, by name."""
        return await store.known(self._database, folder)

    async def keep_found(
        self,
        folder: str,
        found: Sequence[FoundTranscript],
        gone: Collection[str],
        digest: str | None,
    ) -> None:
        """Keep what was found in a folder."""
        statements: list[Statement] = []
        for one in found:
            statements.extend(store.keep(folder, one))
        statements.extend(store.forget([os.path.join(folder, name) for name in gone]))
        if digest is not None:
            statements.append(store.set_digest(folder, digest))
        if statements:
            await self._commit(Unit(tuple(statements)))

    async def forget_folder(self, folder: str) -> None:
        """The folder is gone."""
        await self._commit(Unit(store.forget_folder(folder)))

    async def conversation_following(self, claude_session_id: str) -> str | None:
        """A conversation without a session whose row names this Claude session."""
        return await store.conversation_following(self._database, claude_session_id)

    async def adopt_transcript(self, record: SessionRecord, updated_at: int) -> None:
        """Insert a session for the transcript that has its id."""
        await self._commit(Unit(store.adopt(record, updated_at, self.clock.now())))

    async def branched_off(self, claude_session_ids: Collection[str]) -> set[str]:
        """Return those of these Claude sessions at which another one may yet begin."""
        return await branches.branched_off(self._database, claude_session_ids)

    async def begun_transcripts(self, session_id: str) -> set[str]:
        """Claude sessions that the session's workers have begun under other ids than its own."""
        return await store.begun(self._database, session_id)

    async def bury_transcript(self, claude_session_id: str, *, remove: bool = False) -> None:
        """The transcript makes no session any more."""
        await self._commit(Unit(store.bury(claude_session_id, remove=remove), durable=True))

    async def transcripts_to_remove(self) -> set[str]:
        """Deleted Claude sessions whose transcripts are to be removed."""
        return await store.to_remove(self._database)

    async def transcripts_removed(self, claude_session_ids: Collection[str]) -> None:
        """Record that these transcripts were removed."""
        await self._commit(Unit(store.set_removed(claude_session_ids)))
