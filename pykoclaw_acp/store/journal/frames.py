"""A worker's frames as one unit of statements, events and ends of turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from pykoclaw_acp.channel.frames import (
    AskWithdrawn,
    EventFrame,
    Gap,
    Numbered,
    TurnEnded,
    TurnStarted,
)
from pykoclaw_acp.model import notes
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.limit_waits import LimitWait
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.permissions import PermissionRequest
from pykoclaw_acp.model.turns import Outcome, TurnState
from pykoclaw_acp.store import (
    branches,
    events,
    limit_waits,
    permissions,
    sessions,
    shared_conversations,
    turns,
    unsaid_prompts,
    workers,
)
from pykoclaw_acp.store.notes import give_again
from pykoclaw_acp.store.units import EndOfTurn, NewEvent, Statement, Unit


@dataclass(slots=True)
class FrameBatch:
    """Frames of one worker that are committed together."""

    session_id: str
    epoch: int
    now: int  # ms, own clock
    statements: list[Statement] = field(default_factory=list)
    rows: list[NewEvent] = field(default_factory=list)
    events: list[tuple[str | None, Event]] = field(default_factory=list)  # with their turns
    ends: list[EndOfTurn] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        session_id: str,
        epoch: int,
        frames: Sequence[Numbered],
        outcomes: dict[str, Outcome],
        now: int,
    ) -> FrameBatch:
        """The batch of these frames; `outcomes` are those of the turns that end in them."""
        batch = cls(session_id, epoch, now)
        for frame in frames:
            batch._add(frame, outcomes)
        batch._acknowledge(frames[-1].n)
        return batch

    def unit(self, epoch: int | None) -> Unit:
        """What is committed, if `epoch` is the session's newest; with None in any case. Durably, if
        a turn ends, as that is answered.
        """
        worker = None if epoch is None else (self.session_id, epoch)
        return Unit(
            tuple(self.statements),
            tuple(self.rows),
            tuple(self.ends),
            durable=bool(self.ends),
            worker=worker,
        )

    def logged(self, seqs: Sequence[int]) -> list[Logged]:
        """The events under the seqs that the commit has given them."""
        return [
            Logged(seq, turn_id, event, len(row.payload))
            for seq, (turn_id, event), row in zip(seqs, self.events, self.rows, strict=True)
        ]

    def _add(self, frame: Numbered, outcomes: dict[str, Outcome]) -> None:
        if isinstance(frame, EventFrame):
            self._log(frame.turn_id, [frame.event])
        elif isinstance(frame, Gap):
            self._log(
                frame.turn_id,
                notes.gap(f"gap-{self.epoch}-{frame.n}", frame.n - frame.first + 1, frame.file),
            )
        elif isinstance(frame, TurnStarted):
            new = turns.insert_background(self.session_id, frame.turn_id, self.epoch, self.now)
            started = turns.start(frame.turn_id, frame.into)
            self.statements.append(new if frame.background else started)
        elif isinstance(frame, TurnEnded):
            self._end(frame, outcomes[frame.turn_id])
        elif isinstance(frame, PermissionRequest):
            self.statements.append(permissions.insert(self.session_id, frame, self.now))
        elif isinstance(frame, AskWithdrawn):
            self.statements.append(permissions.withdraw(frame.ask_id))

    def _end(self, frame: TurnEnded, outcome: Outcome) -> None:
        self.statements.append(turns.end(frame.turn_id, outcome, self.now))
        if frame.untaken:
            self.statements.append(give_again(frame.turn_id))
        self.statements.append(sessions.used(self.session_id, self.now))
        self.statements += shared_conversations.turn_ended(self.session_id, frame.claude_session_id)
        self.statements.append(branches.drop(self.session_id))
        if outcome.state == TurnState.DONE:
            self.statements.append(limit_waits.answered(self.session_id, frame.turn_id))
        if outcome.goes_on_at is not None:
            at, tries = outcome.goes_on_at, outcome.tries
            wait = LimitWait(self.session_id, frame.turn_id, at, tries)
            self.statements.append(limit_waits.add(wait))
        if outcome.unsaid:
            self.statements.append(unsaid_prompts.note(frame.turn_id))
        if frame.into is None:  # else that turn says it
            self._log(frame.turn_id, notes.ended(frame.turn_id, outcome))
        self.ends.append(EndOfTurn(self.session_id, frame.turn_id, len(self.rows)))

    def _log(self, turn_id: str | None, said: Sequence[Event]) -> None:
        self.statements.extend(sessions.follow(self.session_id, said))
        self.rows.extend(events.rows(self.session_id, turn_id, said))
        self.events.extend((turn_id, event) for event in said)

    def _acknowledge(self, frame: int) -> None:
        """In the row of the last event, so that a piece of text changes one page; else in the
        worker's row.
        """
        if self.statements or not self.rows:
            self.statements.append(workers.acknowledge(self.session_id, self.epoch, frame))
        else:
            self.rows[-1] = msgspec.structs.replace(self.rows[-1], frame=(self.epoch, frame))
