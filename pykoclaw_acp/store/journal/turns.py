"""Turns, over `store/turns.py`: each change is committed with the events that tell of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from pykoclaw_acp import crash_points, long_texts
from pykoclaw_acp.channel.frames import Numbered
from pykoclaw_acp.errors import Conflict, NoPlaceForEnd, RowRefused, StoreUnavailable
from pykoclaw_acp.model import blobs as model_blobs
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.limit_waits import LimitWait
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.model.turns import Outcome, PromptKeys, Turn
from pykoclaw_acp.model.work import Work
from pykoclaw_acp.store import (
    blobs,
    events,
    limit_waits,
    notes,
    sessions,
    turns,
    unsaid_prompts,
    work,
)
from pykoclaw_acp.store.database import Statement
from pykoclaw_acp.store.journal.base import SqlStore
from pykoclaw_acp.store.journal.detaching import Detaching
from pykoclaw_acp.store.journal.frames import FrameBatch
from pykoclaw_acp.store.sqlite import sqlite3
from pykoclaw_acp.store.units import EndOfTurn, Unit
from pykoclaw_acp.tasks import in_pieces

_DETACH: Final = "UPDATE acp_turns SET detached = 1 WHERE turn_id = ?"


class SqlTurnJournal(SqlStore):
    """Implements `sessions.ports.TurnJournal`."""

    async def accept(self, turn: Turn) -> None:
        """Insert a prompt as `queued`, durably, its blobs before it."""
        helper = turn.aside or turn.helper
        used = sessions.prompted(turn.session_id, self.clock.now(), helper=helper)
        prompt = await in_pieces(long_texts.encoded(turn.content))
        uses = blobs.use(turn.session_id, model_blobs.names(turn.content))
        waits = limit_waits.accepted(turn)
        unit = Unit((turns.insert(turn, prompt), used, *uses, *waits), durable=True)
        if turn.blobs:
            self.require_writable()
        async with self._database.blobs.kept(turn.blobs):
            crash_points.reached("blobs_written")
            await self._commit(unit)
        turn.blobs = {}

    async def begin_attempt(self, turn_id: str) -> None:
        """This daemon starts to prepare a `queued` turn."""
        await self._run(turns.count_attempt(turn_id, 1), patient=True)

    async def undo_attempt(self, turn_id: str) -> None:
        """Undo `begin_attempt` for a turn that is still `queued`."""
        await self._run(turns.count_attempt(turn_id, -1))

    async def detach(self, turn_id: str) -> None:
        """Nobody waits for the turn any more."""
        await self._run(Statement(_DETACH, (turn_id,)))

    async def ask_cancel(self, turn_id: str) -> None:
        """The worker was told to stop the turn."""
        await self._run(turns.ask_cancel(turn_id), patient=True)

    async def in_transcript(self, session_id: str, turn_id: str) -> bool:
        """Whether a transcript of the session that was looked at has the turn's prompt."""
        return await turns.in_transcript(self._database, session_id, turn_id)

    async def dispatch(
        self, turn: Turn, epoch: int, said: Sequence[Event], carried: Sequence[Note] = ()
    ) -> list[int]:
        """`queued` to `dispatched`, durably, with the user's message, and notes for Claude."""
        rows = await in_pieces(events.rows_in_steps(turn.session_id, turn.turn_id, said))
        statements = [turns.dispatch(turn.turn_id, epoch), *sessions.follow(turn.session_id, said)]
        if carried:
            statements.append(notes.take(carried, turn.turn_id))
        return await self._commit(Unit(tuple(statements), rows, durable=True), patient=True)

    async def record(
        self,
        session_id: str,
        epoch: int,
        frames: Sequence[Numbered],
        outcomes: dict[str, Outcome],
        *,
        dead: bool = False,
    ) -> list[Logged]:
        """A worker's frames in one transaction. `dead`: no worker lives, and the epoch is not
        compared. Raises RowRefused, also if SQLite refuses them for another reason.
        """
        detaching = Detaching()
        light = await in_pieces(detaching.frames(frames))

        async def commit(frames: Sequence[Numbered], names: Iterable[str]) -> list[Logged]:
            batch = FrameBatch.of(session_id, epoch, frames, outcomes, self.clock.now())
            batch.statements.extend(blobs.use(session_id, names))
            unit = batch.unit(None if dead else epoch)
            return batch.logged(await self._commit(unit, patient=True))

        try:
            async with self._database.blobs.kept(detaching.data):
                return await commit(light, detaching.data)
        except StoreUnavailable:  # no file can be written: the rows have the bytes
            return await commit(frames, ())
        except (sqlite3.Error, OverflowError) as error:
            raise RowRefused(str(error)) from error

    async def finish(
        self,
        session_id: str,
        turn_id: str,
        outcome: Outcome,
        said: Sequence[Event],
        *,
        silent: bool = False,
    ) -> tuple[Outcome, list[int]]:
        """End a turn that no worker can end, durably; one that has ended keeps its outcome."""
        if silent:
            unit = Unit((turns.end(turn_id, outcome, self.clock.now(), once=True),), durable=True)
            return await self._finish(turn_id, outcome, unit)
        rows = await in_pieces(events.rows_in_steps(session_id, turn_id, said))
        now = self.clock.now()
        ended = [turns.end(turn_id, outcome, now, once=True), *sessions.follow(session_id, said)]
        ended.append(sessions.used(session_id, now))
        if outcome.goes_on_at is not None:
            wait = LimitWait(session_id, turn_id, outcome.goes_on_at, outcome.tries)
            ended.append(limit_waits.add(wait))
        if outcome.unsaid:
            ended.append(unsaid_prompts.note(turn_id))
        unit = Unit(tuple(ended), rows, ends=(EndOfTurn(session_id, turn_id),), durable=True)
        return await self._finish(turn_id, outcome, unit)

    async def _finish(
        self, turn_id: str, outcome: Outcome, unit: Unit
    ) -> tuple[Outcome, list[int]]:
        try:
            return outcome, await self._commit(unit, patient=True)
        except Conflict as error:
            if (known := await turns.outcome(self._database, turn_id)) is None:
                raise NoPlaceForEnd(turn_id) from error
            return known, []

    async def say_cancelled(
        self, session_id: str, turn_id: str, said: Sequence[Event]
    ) -> list[int]:
        """Log what a prompt was that has ended `unsaid`."""
        statements = (unsaid_prompts.said(turn_id), sessions.used(session_id, self.clock.now()))
        unit = Unit(statements, events.rows(session_id, None, said))
        return await self._commit(unit, patient=True)

    async def mark_answered(self, turn_id: str) -> None:
        """A client has received the turn's response."""
        await self._run(turns.answered(turn_id), patient=True)

    async def ended_turns(
        self, session_id: str, column: turns.KeyColumn, value: str
    ) -> list[tuple[Turn, Outcome]]:
        """Ended turns of clients, by one of their unique keys."""
        return await turns.ended(self._database, session_id, column, value)

    async def is_rewound(self, turn_id: str) -> bool:
        """Whether Claude was made to forget the turn."""
        return await turns.is_rewound(self._database, turn_id)

    async def newest_turn(self, session_id: str, since: int) -> tuple[Turn, Outcome] | None:
        """The session's last prompt of a client, if it ended at or after `since` (ms,
        own clock).
        """
        return await turns.newest(self._database, session_id, since)

    async def work(self, turn_id: str, tools: Collection[str] | None = None) -> Work:
        """What a turn has led to."""
        return await work.of_turn(self._database, turn_id, tools)

    async def find_unfinished(self, session_id: str, keys: PromptKeys) -> Turn | None:
        """The turn without an end that has this request key."""
        if keys.request is None:
            return None
        found = [one.turn for one in await turns.unfinished(self._database)]
        mine = [one for one in found if one.session_id == session_id]
        return next((one for one in mine if one.keys.request == keys.request), None)

    async def has_unfinished(self, session_id: str, keys: PromptKeys) -> bool:
        """Whether a turn without an end has this request key or idempotency key."""
        return await turns.has_unfinished(self._database, session_id, keys)

    async def turns_of_front(self, session_id: str, front: str) -> dict[str, str]:
        """Ids of the turns that came through a front, with their request keys."""
        return await turns.of_front(self._database, session_id, front)
