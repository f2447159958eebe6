"""The twins of `sessions.ports.TranscriptSessions` and `transcripts.ports.FoundStore`."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import replace

from pykoclaw_acp.errors import Conflict, RowRefused
from pykoclaw_acp.model.found_transcripts import FoundTranscript
from pykoclaw_acp.model.turns import SessionRecord
from tests.twins.base import MemoryStore
from tests.twins.database import SessionRow
from tests.twins.rows import FoundRow


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
            if database.is_ours(one) or one in database.buried:
                raise Conflict(one)
            if record.conversation_name in database.claude_sessions:
                raise RowRefused(record.conversation_name)
            row = SessionRow(replace(record, prompted=True), self.clock.now())
            row.updated_at = updated_at
            database.sessions[one] = row
            database.claude_sessions[record.conversation_name] = one
            database.folders[record.conversation_name] = record.cwd
            self._unlist(one)

        await self.database.write(adopt)

    async def branched_off(self, claude_session_ids: Collection[str]) -> set[str]:
        tables = self.database.read()
        living = {key: row for key, row in tables.sessions.items() if not row.deleted}
        needed = {row.record.branch.source for row in living.values() if row.record.branch}
        needed |= {
            turn.outcome.claude_session_id or ""
            for turn in tables.turns.values()
            if turn.outcome and turn.session_id in living
            if turn.turn_id.startswith(f"{turn.session_id}/")
        }
        return needed & {*claude_session_ids}

    async def begun_transcripts(self, session_id: str) -> set[str]:
        begun = self.database.read().begun.items()
        return {claude for claude, one in begun if one == session_id}

    async def bury_transcript(self, claude_session_id: str, *, remove: bool = False) -> None:
        def bury() -> None:
            if not self.database.is_ours(claude_session_id):
                self.database.buried.add(claude_session_id)
            if claude_session_id in self.database.buried:
                self.database.to_remove.discard(claude_session_id)
                self.database.to_remove |= {claude_session_id} if remove else set()
            self._unlist(claude_session_id)

        await self.database.write(bury)

    async def transcripts_to_remove(self) -> set[str]:
        return set(self.database.read().to_remove)

    async def transcripts_removed(self, claude_session_ids: Collection[str]) -> None:
        gone = {*claude_session_ids}
        await self.database.write(lambda: self.database.to_remove.difference_update(gone))

    def _unlist(self, claude_session_id: str) -> None:
        for path, row in self.database.found.items():
            if row.found.claude_session_id == claude_session_id:
                self.database.found[path] = replace(
                    row, found=replace(row.found, title=None), listed=False
                )


class MemoryFoundStore(MemoryStore):
    async def transcript_folders(self) -> dict[str, str]:
        return dict(self.database.read().found_folders)

    async def known_in_folder(self, folder: str) -> dict[str, str]:
        rows = self.database.read().found.items()
        return {
            os.path.basename(path): f"{row.found.size} {row.mtime}"
            for path, row in rows
            if row.folder == folder
        }

    async def keep_found(
        self,
        folder: str,
        found: Sequence[FoundTranscript],
        gone: Collection[str],
        digest: str | None,
    ) -> None:
        def keep() -> None:
            for one in found:
                self._keep(folder, one)
                self._grow(one)
            for name in gone:
                self._forget({os.path.join(folder, name)})
            if digest is not None:
                self.database.found_folders[folder] = digest

        await self.database.write(keep)

    def _keep(self, folder: str, one: FoundTranscript) -> None:
        """Of copies with one id, the newest is listed."""
        rows, claude = self.database.found, one.claude_session_id
        copies = {
            path: row
            for path, row in rows.items()
            if row.found.claude_session_id == claude and path != one.path and row.listed
        }
        listed = (
            one.is_session
            and not self.database.is_ours(claude)
            and claude not in self.database.buried
            and all(row.found.updated_at <= one.updated_at for row in copies.values())
        )
        kept = one if listed else replace(one, title=None)
        rows[one.path] = FoundRow(folder, kept, listed, str(one.mtime))
        for path, row in copies.items():
            if row.found.updated_at <= one.updated_at:
                rows[path] = replace(row, found=replace(row.found, title=None), listed=False)

    def _grow(self, one: FoundTranscript) -> None:
        for key, row in self.database.sessions.items():
            if one.claude_session_id in (key, self.database.followed.get(key)):
                shown = row.record.prompted and not row.pruned and not row.deleted
                if shown and row.alias_of is None:
                    row.updated_at = max(row.updated_at, one.updated_at)

    def _forget(self, paths: Collection[str]) -> None:
        """Copies elsewhere of what is gone count as changed: one of them is the newest now."""
        rows = self.database.found
        ids = {rows[path].found.claude_session_id for path in paths if path in rows}
        for path, row in rows.items():
            if path not in paths and not row.listed and row.found.claude_session_id in ids:
                rows[path] = replace(row, mtime="")
                if row.folder in self.database.found_folders:
                    self.database.found_folders[row.folder] = ""
        for path in paths:
            rows.pop(path, None)

    async def forget_folder(self, folder: str) -> None:
        def forget() -> None:
            self._forget(
                {path for path, row in self.database.found.items() if row.folder == folder}
            )
            self.database.found_folders.pop(folder, None)

        await self.database.write(forget)
