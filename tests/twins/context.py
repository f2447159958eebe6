"""The twin of `sessions.ports.ContextStore`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pykoclaw_acp.errors import InvalidRequest
from pykoclaw_acp.model.branches import Branch, RewindPoint
from pykoclaw_acp.model.contexts import TurnEnd
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.model.turns import SessionRecord, TurnState
from tests.twins.base import MemoryStore
from tests.twins.branches import MemoryBranchStore


class MemoryContextStore(MemoryStore):
    async def newest_ends(self, session_id: str, claude_id: str, limit: int) -> list[TurnEnd]:
        database = self.database.read()
        seqs: dict[str | None, int] = {}
        for one in database.logs.get(session_id, []):
            seqs.setdefault(one.turn_id, one.seq)
        ends = {
            row.outcome.last_uuid: row.turn_id
            for row in reversed(database.turns.values())
            if row.session_id == session_id and row.outcome is not None
        }
        mine = [
            TurnEnd(
                row.turn_id,
                row.outcome.last_uuid,
                row.outcome.stop_reason == "end_turn",
                seqs.get(row.turn_id, 0),
                tuple(
                    one.turn_id
                    for one in database.turns.values()
                    if one.taken_by == row.turn_id and one.session_id == session_id
                ),
            )
            for row in database.turns.values()
            if row.session_id == session_id
            and row.state is TurnState.DONE
            and not row.background
            and row.outcome is not None
            and row.outcome.claude_session_id == claude_id
            and row.outcome.last_uuid is not None
            and ends[row.outcome.last_uuid] == row.turn_id
            and not row.lost
            and not row.rewound
            and not any(str(block.get("text", "")).startswith("/") for block in row.content)
        ]
        return mine[::-1][:limit]

    async def forgotten(self, session_id: str) -> set[str]:
        rows = self.database.read().turns.values()
        mine = (one for one in rows if one.session_id == session_id and one.rewound)
        return {one.turn_id.rpartition("/")[2] for one in mine}

    async def doubtful_carriers(self, session_id: str) -> list[str]:
        tables = self.database.read()
        carriers = {
            turn_id
            for note_id, turn_id in tables.carriers.items()
            if tables.notes[note_id][0] == session_id
        }
        well = [
            row.position
            for row in tables.turns.values()
            if row.session_id == session_id
            and row.state is TurnState.DONE
            and not (row.lost or row.rewound)
        ]
        found = [
            row
            for row in tables.turns.values()
            if row.turn_id in carriers
            and row.position > max(well, default=0)
            and row.started
            and not row.unfinished
            and row.state is not TurnState.DONE
            and not row.lost
            and not row.rewound
        ]
        return [row.turn_id for row in found][::-1][:20]

    async def give_notes_again(self, turn_ids: Collection[str]) -> None:
        def give() -> None:
            for turn_id in turn_ids:
                self.database.give_notes_again(turn_id)

        await self.database.write(give, patient=True)

    async def has_note(self, note_id: str) -> bool:
        return note_id in self.database.read().notes

    async def refused(self, record: SessionRecord) -> RewindPoint | None:
        ended = [
            row
            for row in self.database.read().turns.values()
            if row.session_id == record.session_id
            and not row.unfinished
            and (row.dispatched or row.state is not TurnState.CANCELLED)
        ]
        newest = max(ended, key=lambda row: row.position, default=None)
        if newest is None or newest.outcome is None or newest.background:
            return None
        if newest.outcome.stop_reason != "refusal" or newest.rewound or newest.lost:
            return None
        try:
            return await MemoryBranchStore(self.database).rewind_point(record, None)
        except InvalidRequest:
            return None

    async def forget_refused(
        self, session_id: str, point: RewindPoint, note: Note | None, said: Sequence[Event]
    ) -> list[int]:
        def forget() -> list[int]:
            self.database.turns[point.turn_id].rewound = True
            if note is not None:
                self.database.notes.setdefault(note.note_id, (session_id, note.text))
            else:
                self.database.give_notes_again(point.turn_id)
            self.database.session(session_id).record.branch = point.branch
            return self.database.log(session_id, None, said)

        return await self.database.write(forget, patient=True)

    async def lose_context(
        self,
        session_id: str,
        branch: Branch | None,
        note: Note | None,
        said: Sequence[Event],
        lost: Collection[str] = (),
    ) -> list[int]:
        def lose() -> list[int]:
            if branch is not None:
                self.database.session(session_id).record.branch = branch
                for row in self.database.turns.values():
                    row.lost = row.lost or (row.session_id == session_id and not row.unfinished)
            if note is not None:
                self.database.notes.setdefault(note.note_id, (session_id, note.text))
            for turn_id in lost:
                self.database.turns[turn_id].lost = True
                self.database.give_notes_again(turn_id)
            return self.database.log(session_id, None, said)

        return await self.database.write(lose, patient=True)
