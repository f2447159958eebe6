"""The twin of `sessions.ports.LogStore`."""

from __future__ import annotations

from collections.abc import Sequence

from pykoclaw_acp.model import folding
from pykoclaw_acp.model.events import (
    ConfigChanged,
    Event,
    ModeChanged,
    Plan,
    PlanEntry,
    Text,
    TitleChanged,
    Usage,
    UserMessage,
)
from pykoclaw_acp.model.log import Logged, TurnsPlace
from pykoclaw_acp.model.seams import CutMessage
from pykoclaw_acp.model.session_options import SessionOptions
from pykoclaw_acp.store.last_turns import holding
from tests.twins.base import MemoryStore


class MemoryLogStore(MemoryStore):
    async def append(
        self,
        session_id: str,
        events: Sequence[Event],
        *,
        options: SessionOptions | None = None,
        patient: bool = False,
    ) -> list[int]:
        def append() -> list[int]:
            row = self.database.session(session_id)
            before = row.updated_at
            self.database.used(session_id)
            if all(isinstance(one, TitleChanged | ModeChanged | ConfigChanged) for one in events):
                row.updated_at = before
            if options is not None:
                row.record.options = options
            return self.database.log(session_id, None, events)

        return await self.database.write(append, patient=patient)

    async def last_plan(self, session_id: str, upto: int | None = None) -> tuple[PlanEntry, ...]:
        logged = self.database.read().logs.get(session_id, [])
        before = [one.event for one in logged if upto is None or one.seq <= upto]
        plans = [event for event in before if isinstance(event, Plan)]
        return plans[-1].entries if plans else ()

    async def read(self, session_id: str, after: int, limit: int) -> list[Logged]:
        """Each event as it was logged: here nothing is folded."""
        return [one for one in self.database.read().logs.get(session_id, []) if one.seq > after][
            :limit
        ]

    async def plan_goes_on(self, session_id: str, seq: int) -> bool:
        for one in self.database.read().logs.get(session_id, []):
            if one.seq > seq and one.turn_id is None:
                if folding.begins(one):
                    return False
                if isinstance(one.event, Plan):
                    return bool(one.event.entries)
        return False

    async def last_turns(self, session_id: str, turns: int) -> TurnsPlace:
        begins: dict[str, int] = {}
        database = self.database.read()
        for one in database.logs.get(session_id, []):
            turn = database.turns.get(one.turn_id or "")
            if isinstance(one.event, UserMessage) and (turn is None or turn.dispatched):
                begins.setdefault(one.event.message_id, one.seq)
        newest = list(begins.values())[-turns:]
        left_out = len(begins) - len(newest)
        return TurnsPlace(newest[0] - 1, left_out) if left_out else TurnsPlace(0, 0)

    async def in_effect(self, session_id: str, upto: int) -> list[Logged]:
        log = self.database.read().logs.get(session_id, [])
        return holding([one for one in log if one.seq <= upto])

    async def said_before(self, session_id: str, seq: int) -> CutMessage | None:
        database = self.database.read()
        log = [
            one
            for one in database.logs.get(session_id, [])
            if one.seq <= seq
            and not isinstance(one.event, Usage | TitleChanged | ModeChanged | ConfigChanged)
        ]
        last = log[-1] if log else None
        if last is None or not isinstance(last.event, Text) or last.event.note:
            return None
        mine = last.event.message_id
        texts: list[str] = []
        for one in reversed(log):
            if not isinstance(one.event, Text) or one.event.message_id != mine:
                break
            texts.append(one.event.text)
        turn = database.turns.get(last.turn_id or "")
        ends = [one.seq for one in database.logs[session_id] if one.turn_id == last.turn_id]
        over = turn is None or (
            not turn.unfinished and ends[-1] <= seq and (turn.answered or turn.background)
        )
        return CutMessage(mine, "".join(reversed(texts)), over)
