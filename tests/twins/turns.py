"""The twin of `sessions.ports.TurnJournal`."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Literal

from pykoclaw_acp.channel.frames import (
    AskWithdrawn,
    EventFrame,
    Gap,
    Numbered,
    TurnEnded,
    TurnStarted,
)
from pykoclaw_acp.errors import Conflict, NoPlaceForEnd
from pykoclaw_acp.model import notes
from pykoclaw_acp.model.events import Event, UserMessage, size
from pykoclaw_acp.model.limit_waits import LimitWait, goes_on_from
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.permissions import PermissionRequest, RequestOutcome, RequestPolicy
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.model.turns import Outcome, PromptKeys, Turn, TurnState
from pykoclaw_acp.model.work import Work, led_to
from tests.twins.base import MemoryStore
from tests.twins.database import TurnRow


class MemoryTurnJournal(MemoryStore):
    async def accept(self, turn: Turn) -> None:
        def queue() -> None:
            waited = goes_on_from(turn.keys.request)
            known = self.database.limit_waits.get(turn.session_id)
            if waited is not None and (known is None or known.turn_id != waited):
                raise Conflict("the session does not wait")
            self.database.queue(turn)
            if turn.task_id is None:
                self.database.limit_waits.pop(turn.session_id, None)
            self.database.blobs.update(turn.blobs)
            turn.blobs = {}
            row = self.database.session(turn.session_id)
            helper = turn.aside or turn.helper
            row.record.auxiliary = helper and (row.record.auxiliary or not row.record.prompted)
            row.record.prompted, row.pruned = True, False
            self.database.used(turn.session_id)

        await self.database.write(queue)

    async def begin_attempt(self, turn_id: str) -> None:
        await self.database.write(lambda: self._count(turn_id, 1), patient=True)

    async def undo_attempt(self, turn_id: str) -> None:
        await self.database.write(lambda: self._count(turn_id, -1))

    async def detach(self, turn_id: str) -> None:
        def detach() -> None:
            if turn_id in self.database.turns:
                self.database.turns[turn_id].detached = True

        await self.database.write(detach)

    async def ask_cancel(self, turn_id: str) -> None:
        def ask() -> None:
            if turn_id in self.database.turns:
                self.database.turns[turn_id].cancel_asked = True

        await self.database.write(ask, patient=True)

    async def in_transcript(self, session_id: str, turn_id: str) -> bool:
        return (session_id, turn_id) in self.database.read().transcript_turns

    def _count(self, turn_id: str, change: int) -> None:
        row = self.database.turns.get(turn_id)
        if row is not None and row.state == TurnState.QUEUED:
            row.attempts += change

    async def dispatch(
        self, turn: Turn, epoch: int, events: Sequence[Event], notes: Sequence[Note] = ()
    ) -> list[int]:
        def dispatch() -> list[int]:
            row = self.database.turns.get(turn.turn_id)
            if row is None or row.state != TurnState.QUEUED:
                raise Conflict(f"the turn {turn.turn_id} is not queued")
            if turn.task_id is not None and turn.task_id not in self.database.tasks:
                raise Conflict(f"the task {turn.task_id} was deleted")
            row.state, row.dispatched = TurnState.DISPATCHED, True
            self.database.carriers.update({note.note_id: turn.turn_id for note in notes})
            return self.database.log(turn.session_id, turn.turn_id, events)

        return await self.database.write(dispatch, patient=True)

    async def record(
        self, session_id: str, epoch: int, frames: Sequence[Numbered], outcomes: dict[str, Outcome]
    ) -> list[Logged]:
        def record() -> list[Logged]:
            self.database.require_newest(session_id, epoch)
            told = [one for frame in frames for one in self._told(session_id, frame, outcomes)]
            self.database.acknowledged[session_id, epoch] = frames[-1].n
            return told

        return await self.database.write(record, patient=True)

    def _told(self, session_id: str, frame: Numbered, outcomes: dict[str, Outcome]) -> list[Logged]:
        if isinstance(frame, EventFrame):
            return self._log(session_id, frame.turn_id, [frame.event])
        if isinstance(frame, Gap):
            said = notes.gap(f"gap-{frame.epoch}-{frame.n}", frame.n - frame.first + 1, frame.file)
            return self._log(session_id, frame.turn_id, said)
        if isinstance(frame, TurnStarted) and frame.background:
            self.database.insert_turn(
                TurnRow(frame.turn_id, session_id, background=True, state=TurnState.RUNNING)
            )
        elif isinstance(frame, TurnStarted):
            known = self.database.turns.get(frame.turn_id)
            if known is not None and known.state == TurnState.DISPATCHED:
                known.state = TurnState.RUNNING
                known.started, known.taken_by = True, frame.into
        elif isinstance(frame, TurnEnded):
            outcome = outcomes[frame.turn_id]
            self._end(frame.turn_id, outcome)
            self.database.turns[frame.turn_id].unsaid = outcome.unsaid
            by_person = self.database.turns[frame.turn_id].keys.fingerprint is not None
            if outcome.state == TurnState.DONE and by_person:
                self.database.limit_waits.pop(session_id, None)
            self._wait(session_id, frame.turn_id, outcome)
            if frame.untaken:
                self.database.give_notes_again(frame.turn_id)
            self.database.used(session_id)
            self.database.turn_ended(session_id, frame.claude_session_id)
            logged = self._log(session_id, frame.turn_id, notes.ended(frame.turn_id, outcome))
            self._keep_place(session_id, frame.turn_id)
            return logged
        elif isinstance(frame, PermissionRequest):
            self.database.insert_request(session_id, frame)
        elif isinstance(frame, AskWithdrawn):
            asked = self.database.requests.get(frame.ask_id)
            if asked is not None and asked.outcome is None and asked.policy != RequestPolicy.PARKED:
                self.database.requests[frame.ask_id] = replace(
                    asked, outcome=RequestOutcome.WITHDRAWN
                )
        return []

    def _log(self, session_id: str, turn_id: str | None, events: Sequence[Event]) -> list[Logged]:
        seqs = self.database.log(session_id, turn_id, events)
        return [
            Logged(seq, turn_id, event, size(event))
            for seq, event in zip(seqs, events, strict=True)
        ]

    def _end(self, turn_id: str, outcome: Outcome) -> bool:
        row = self.database.turns.get(turn_id)
        if row is None or not row.unfinished:
            return False
        row.state, row.ended_clock = outcome.state, self.clock.now()
        row.ended_at = time.time_ns() // 1_000_000
        row.outcome = outcome
        return True

    def _keep_place(self, session_id: str, turn_id: str) -> None:
        """The turn ends where the log does now."""
        self.database.turns[turn_id].last_seq = self.database.session(session_id).record.last_seq

    def _wait(self, session_id: str, turn_id: str, outcome: Outcome) -> None:
        if outcome.goes_on_at is None:
            return
        newest = max(
            (one for one in self._of_clients(session_id) if one.task_id is None),
            key=lambda one: one.position,
        )
        if not outcome.tries or newest.turn_id == turn_id:
            self.database.limit_waits[session_id] = LimitWait(
                session_id, turn_id, outcome.goes_on_at, outcome.tries
            )

    async def finish(
        self,
        session_id: str,
        turn_id: str,
        outcome: Outcome,
        events: Sequence[Event],
        *,
        silent: bool = False,
    ) -> tuple[Outcome, list[int]]:
        def finish() -> tuple[Outcome, list[int]]:
            if self._end(turn_id, outcome):
                if silent:
                    return outcome, []
                self.database.turns[turn_id].unsaid = outcome.unsaid
                self._wait(session_id, turn_id, outcome)
                self.database.used(session_id)
                seqs = self.database.log(session_id, turn_id, events)
                self._keep_place(session_id, turn_id)
                return outcome, seqs
            row = self.database.turns.get(turn_id)
            if row is None or row.outcome is None:
                raise NoPlaceForEnd(turn_id)
            return _told(row.outcome), []

        return await self.database.write(finish, patient=True)

    async def say_cancelled(
        self, session_id: str, turn_id: str, events: Sequence[Event]
    ) -> list[int]:
        def say() -> list[int]:
            row = self.database.turns.get(turn_id)
            if row is None or not row.unsaid:
                raise Conflict(f"the log says what turn {turn_id} was")
            row.unsaid = False
            self.database.used(session_id)
            return self.database.log(session_id, None, events)

        return await self.database.write(say, patient=True)

    async def mark_answered(self, turn_id: str) -> None:
        def answered() -> None:
            if turn_id in self.database.turns:
                self.database.turns[turn_id].answered = True

        await self.database.write(answered, patient=True)

    async def ended_turns(
        self, session_id: str, column: Literal["request_key", "idempotency_key"], value: str
    ) -> list[tuple[Turn, Outcome]]:
        key = "request" if column == "request_key" else "idempotency"
        return [
            _ended(one)
            for one in self._of_clients(session_id)
            if getattr(one.keys, key) == value and one.outcome
        ]

    async def is_rewound(self, turn_id: str) -> bool:
        row = self.database.read().turns.get(turn_id)
        return row is not None and row.rewound

    async def newest_turn(self, session_id: str, since: int) -> tuple[Turn, Outcome] | None:
        newest = max(self._of_clients(session_id), key=lambda one: one.position, default=None)
        ended = None if newest is None else newest.ended_clock
        return (
            _ended(newest) if newest is not None and ended is not None and ended >= since else None
        )

    async def work(self, turn_id: str, tools: Collection[str] | None = None) -> Work:
        tables = self.database.read()
        if (turn := tables.turns.get(turn_id)) is None:
            return Work()
        log = tables.logs.get(turn.session_id, [])
        begins = {one.turn_id: one.seq for one in reversed(log)}
        since = begins.get(turn_id, 0)
        own = (
            one
            for one in tables.turns.values()
            if one.session_id == turn.session_id and one.background and one.position > turn.position
        )
        later = (one for one in own if begins.get(one.turn_id, 0) > since)
        turns = [turn, *sorted(later, key=lambda one: one.position)]
        return led_to(
            [(one.turn_id, one.outcome or Outcome(one.state)) for one in turns],
            [
                (one.turn_id, one.event)
                for one in log
                if one.seq >= since
                and not (
                    isinstance(one.event, UserMessage)
                    and (turn.outcome is None or one.seq <= turn.last_seq)
                )
            ],
            tools,
        )

    async def find_unfinished(self, session_id: str, keys: PromptKeys) -> Turn | None:
        rows = self.database.read().turns.values()
        mine = [one for one in rows if one.session_id == session_id and one.unfinished]
        row = next((one for one in mine if one.keys.request == keys.request is not None), None)
        if row is None:
            return None
        found = Turn(row.turn_id, session_id, row.content, row.keys, client=row.client)
        found.client_process, found.state, found.recovered = row.client_process, row.state, True
        found.detached = row.detached
        if row.cancel_asked:
            found.cancelled.set()
        return found

    async def has_unfinished(self, session_id: str, keys: PromptKeys) -> bool:
        rows = self.database.read().turns.values()
        mine = [one.keys for one in rows if one.session_id == session_id and one.unfinished]
        return any(
            (keys.request is not None and one.request == keys.request)
            or (keys.idempotency is not None and one.idempotency == keys.idempotency)
            for one in mine
        )

    async def turns_of_front(self, session_id: str, front: str) -> dict[str, str]:
        rows = self.database.read().turns.values()
        mine = [one for one in rows if one.session_id == session_id and one.keys.front == front]
        return {one.turn_id: one.keys.request for one in mine if one.keys.request is not None}

    def _of_clients(self, session_id: str) -> list[TurnRow]:
        rows = self.database.read().turns.values()
        return [one for one in rows if one.session_id == session_id and not one.background]


def _ended(row: TurnRow) -> tuple[Turn, Outcome]:
    assert row.outcome is not None
    turn = Turn(
        row.turn_id,
        row.session_id,
        [],
        row.keys,
        row.created_at,
        task_id=row.task_id,
        state=row.state,
        answered=row.answered,
    )
    return turn, _told(row.outcome)


def _told(outcome: Outcome) -> Outcome:
    """As it is read again."""
    return replace(outcome, claude_session_id=None)
