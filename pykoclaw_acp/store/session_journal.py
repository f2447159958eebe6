"""The sessions' journal on the database: every change of a turn is one unit with the events that tell of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from pykoclaw_acp.sessions import endings
from pykoclaw_acp.sessions.events import Event
from pykoclaw_acp.sessions.model import Outcome, SessionRecord, Turn
from pykoclaw_acp.sessions.ports import Logged, Settled
from pykoclaw_acp.store import events, permissions, sessions, turns, workers
from pykoclaw_acp.store.database import Database, NewEvent, OperationalError, Statement, Unit
from pykoclaw_acp.store.sqlite import result_code
from pykoclaw_acp.worker.frames import Ask, AskWithdrawn, EventFrame, Numbered, TurnEnded, TurnStarted

ATTEMPTS: Final = 6  # each waits 10 s for the lock
BUSY: Final = 5  # SQLITE_BUSY

log: Final = structlog.get_logger()


class SessionJournal:
    """Implements `sessions.ports.Journal`; every method that writes returns after the commit."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create(self, record: SessionRecord) -> None:
        """A new session and its conversation."""
        await self._commit(Unit(statements=sessions.insert(record)))

    async def find(self, session_id: str) -> SessionRecord | None:
        """The session, unless there is none or it was deleted."""
        return await sessions.find(self._database, session_id)

    async def name_taken(self, name: str) -> bool:
        """Whether a conversation, ours or another channel's, has this name."""
        return await sessions.name_taken(self._database, name)

    async def adopt(self, record: SessionRecord) -> None:
        """What a load changes."""
        await self._run(sessions.reopen(record))

    async def mark_closed(self, session_id: str) -> None:
        """The client closed the session."""
        await self._run(sessions.close(session_id))

    async def accept(self, turn: Turn) -> None:
        """A prompt was accepted: `queued`, durable."""
        await self._commit(Unit(statements=(turns.insert(turn),), durable=True))

    async def dispatch(self, turn: Turn, epoch: int, said: Sequence[Event]) -> list[int]:
        """`queued` to `dispatched`, durable, with the user's message."""
        return await self._commit(
            Unit(
                statements=(turns.dispatch(turn.turn_id, epoch),),
                events=events.rows(turn.session_id, turn.turn_id, said),
                durable=True,
            )
        )

    async def record(
        self, session_id: str, epoch: int, frames: Sequence[Numbered], outcomes: dict[str, Outcome]
    ) -> list[Logged]:
        """A worker's frames in one transaction; returns the events that they made."""
        statements: list[Statement] = []
        rows: list[NewEvent] = []
        told: list[tuple[str | None, Event]] = []
        for frame in frames:
            said: list[Event] = []
            turn_id: str | None = None
            if isinstance(frame, EventFrame):
                turn_id, said = frame.turn_id, [frame.event]
            elif isinstance(frame, TurnStarted):
                new = turns.insert_background(session_id, frame.turn_id, epoch)
                statements.append(new if frame.background else turns.start(frame.turn_id))
            elif isinstance(frame, TurnEnded):
                outcome = outcomes[frame.turn_id]
                turn_id, said = frame.turn_id, endings.failure(frame.turn_id, outcome)
                statements.append(turns.end(frame.turn_id, outcome))
                statements.append(sessions.set_claude_session(session_id, frame.claude_session_id))
            elif isinstance(frame, Ask):
                statements.append(permissions.insert(session_id, frame))
            elif isinstance(frame, AskWithdrawn):
                statements.append(permissions.settle(Settled(frame.ask_id, "withdrawn")))
            rows.extend(events.rows(session_id, turn_id, said))
            told.extend((turn_id, event) for event in said)
        statements.append(workers.acknowledge(session_id, epoch, frames[-1].n))
        seqs = await self._commit(Unit(statements=tuple(statements), events=tuple(rows)))
        return [
            Logged(seq, turn_id, event, len(row.payload))
            for seq, (turn_id, event), row in zip(seqs, told, rows, strict=True)
        ]

    async def finish(self, session_id: str, turn_id: str, outcome: Outcome, said: Sequence[Event]) -> list[int]:
        """End a turn that no worker can end, with what is to be said about it."""
        return await self._commit(
            Unit(statements=(turns.end(turn_id, outcome, once=True),), events=events.rows(session_id, turn_id, said))
        )

    async def append(self, session_id: str, said: Sequence[Event]) -> list[int]:
        """Events outside of any turn."""
        return await self._commit(Unit(events=events.rows(session_id, None, said)))

    async def settle(self, settled: Settled) -> None:
        """A permission question is answered, or moot."""
        await self._run(permissions.settle(settled))

    async def read(self, session_id: str, after: int, limit: int) -> list[Logged]:
        """The log from `after` on, in order."""
        return await events.read(self._database, session_id, after, limit)

    async def _run(self, statement: Statement) -> None:
        await self._commit(Unit(statements=(statement,)))

    async def _commit(self, unit: Unit) -> list[int]:
        """Commit, also when another program holds the lock for long: a turn of two hours is worth a minute's wait."""
        for _ in range(ATTEMPTS - 1):
            try:
                return await self._database.commit(unit)
            except OperationalError as error:
                if result_code(error) != BUSY:
                    raise
                log.warning("Another program holds the database's lock", action="database_busy")
        return await self._database.commit(unit)
