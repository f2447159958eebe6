"""The twin of `transcripts.ports.ImportStore`."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from pykoclaw_acp.errors import RowRefused
from pykoclaw_acp.model.contexts import entry_uuid
from pykoclaw_acp.model.events import Text, Thinking, ToolStarted, size
from pykoclaw_acp.model.imports import ImportedPiece, KnownTranscripts, TranscriptTurn
from pykoclaw_acp.model.limit_waits import given_up
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.turns import TurnState
from tests.twins.base import MemoryStore


class MemoryImportStore(MemoryStore):
    async def known_transcripts(
        self, session_id: str, named: Collection[str], newest: int
    ) -> KnownTranscripts:
        tables = self.database.read()
        every = {key[1]: row for key, row in tables.transcripts.items() if key[0] == session_id}
        last = sorted(every, key=lambda one: every[one].mtime)[-newest:]
        names = {tables.followed.get(session_id), *named, *last}
        rows = {one: row for one, row in every.items() if one in names}
        has_turns = any(one.session_id == session_id for one in tables.turns.values())
        return KnownTranscripts(tables.followed.get(session_id), rows, has_turns)

    async def transcript_paths(self, session_id: str) -> dict[str, str]:
        rows = self.database.read().transcripts
        return {key[1]: row.path for key, row in rows.items() if key[0] == session_id}

    async def transcript_turns(self, session_id: str, limit: int) -> list[TranscriptTurn]:
        tables = self.database.read()
        return [
            replace(one, told_in=tables.carriers.get(tables.told_by.get(key, "")))
            for key, one in tables.transcript_turns.items()
            if key[0] == session_id
        ][-limit:]

    async def own_turns(self, session_id: str, *, new: bool) -> list[str]:
        tables = self.database.read()
        return [
            one.turn_id
            for one in tables.turns.values()
            if one.session_id == session_id
            and not one.background
            and one.state != TurnState.QUEUED
            and not (new and (session_id, one.turn_id) in tables.transcript_turns)
        ]

    async def background_messages(self, session_id: str, limit: int) -> tuple[list[str], bool]:
        tables = self.database.read()
        mine = [one for one in tables.turns.values() if one.session_id == session_id]
        mine.sort(key=lambda one: -one.position)
        turns = [one for one in mine if one.background]
        ids: list[str] = []
        for turn in [*turns[:limit], *[one for one in mine if not one.background][:limit]]:
            if turn.background and turn.outcome is not None and turn.outcome.last_uuid is not None:
                ids.append(turn.outcome.last_uuid)
            for one in tables.logs.get(session_id, []):
                if one.turn_id != turn.turn_id:
                    continue
                if isinstance(one.event, ToolStarted) and one.event.parent_id is not None:
                    continue
                if isinstance(one.event, ToolStarted):
                    ids.append(one.event.tool_call_id)
                    break
                if isinstance(one.event, Text | Thinking):
                    found = one.event.message_id
                    ids += [found.partition("-whole-")[0], found.rpartition("-")[0]]
                    break
        return ids, any(one.unfinished for one in turns)

    async def scheduled_prompts(self, conversation: str) -> list[str]:
        tasks = self.database.read().tasks.values()
        return [one.prompt for one in tasks if one.conversation == conversation]

    async def imported(self, session_id: str, sources: Collection[str]) -> set[str]:
        known = self.database.read().sources
        return {one for one in sources if (session_id, one) in known}

    async def commit_piece(self, session_id: str, piece: ImportedPiece) -> list[Logged]:
        def commit() -> list[Logged]:
            tables = self.database
            row = tables.taking(session_id)
            tables.transcripts[session_id, piece.row.claude_session_id] = piece.row
            for turn in piece.turns:
                tables.transcript_turns.setdefault((session_id, turn.uuid), turn)
            for uuid, last in piece.last.items():
                key = (session_id, uuid)
                if key in tables.transcript_turns:
                    known = tables.transcript_turns[key]
                    told = piece.told or key in tables.rewound_turns
                    tables.transcript_turns[key] = replace(known, last_uuid=last, told=told)
            for uuid, parent in piece.parents.items():
                key = (session_id, uuid)
                if key in tables.transcript_turns:
                    known = tables.transcript_turns[key]
                    tables.transcript_turns[key] = replace(known, parent=parent)
            self._rewind(session_id, piece.rewound)
            if any((session_id, source) in tables.sources for source, _ in piece.events):
                raise RowRefused("an event that was imported before")
            said = [event for _, event in piece.events]
            if piece.has_persons_prompt and session_id in tables.limit_waits:
                said += given_up(tables.limit_waits.pop(session_id).turn_id)
            seqs = tables.log(session_id, None, said)
            for seq, (source, _) in zip(seqs, piece.events, strict=False):
                tables.sources[session_id, source] = seq
            if seqs:
                row.record.prompted, row.record.auxiliary, row.pruned = True, False, False
            return [
                Logged(seq, None, event, size(event)) for seq, event in zip(seqs, said, strict=True)
            ]

        return await self.database.write(commit, patient=True)

    def _rewind(self, session_id: str, rewound: Collection[str]) -> None:
        tables = self.database
        for uuid in rewound:
            if (session_id, uuid) in tables.transcript_turns:
                known = tables.transcript_turns[session_id, uuid]
                tables.transcript_turns[session_id, uuid] = replace(known, told=True)
                tables.told_by.pop((session_id, uuid), None)
                tables.rewound_turns[session_id, uuid] = None
        turns = [one for one in tables.turns.values() if one.session_id == session_id]
        gone: set[str | None] = set()
        after = False
        for one in sorted(turns, key=lambda one: one.position):
            if not one.background:
                after = one.taken_by in gone or entry_uuid(one.turn_id) in rewound
            if after:
                gone.add(one.turn_id)
                one.rewound |= not one.unfinished
                tables.give_notes_again(one.turn_id)
        if gone:
            tables.interrupt_parked(session_id)

    async def follow_transcript(
        self, session_id: str, claude_session_id: str, *, told: bool
    ) -> None:
        def follow() -> None:
            self.database.followed[session_id] = claude_session_id
            if told:
                self.database.all_told(session_id, but=claude_session_id)

        await self.database.write(follow, patient=True)

    async def mark_told(
        self, session_id: str, turns: Collection[tuple[str, str | None]], note_id: str
    ) -> None:
        def mark() -> None:
            self._withdraw_replaced(session_id, {uuid for uuid, _ in turns}, note_id)
            for uuid, last in turns:
                known = self.database.transcript_turns.get((session_id, uuid))
                if known is not None and known.last_uuid == last:
                    self.database.transcript_turns[session_id, uuid] = replace(known, told=True)
                    self.database.told_by[session_id, uuid] = note_id

        await self.database.write(mark, patient=True)

    def _withdraw_replaced(self, session_id: str, uuids: set[str], note_id: str) -> None:
        """Withdraw pending notes that tell of none but these turns."""
        tables = self.database
        told = {(uuid, by) for (owner, uuid), by in tables.told_by.items() if owner == session_id}
        for by in {by for uuid, by in told if uuid in uuids} - {note_id}:
            if by not in tables.carriers and {uuid for uuid, one in told if one == by} <= uuids:
                tables.notes.pop(by, None)
