"""The sessions' journal on the database: every change of a turn is one unit with the events that tell of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

import msgspec

from pykoclaw_acp import long_texts
from pykoclaw_acp.channel.frames import AskWithdrawn, EventFrame, Gap, Numbered, TurnEnded, TurnStarted
from pykoclaw_acp.errors import Conflict, NoPlaceForEnd
from pykoclaw_acp.model import prompt_text
from pykoclaw_acp.model.choices import Offer
from pykoclaw_acp.model.cursors import Cursor, CursorChange
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.notes import failure, gap
from pykoclaw_acp.model.permissions import Ask, Deadline, Question, RequestPolicy, Settled, Workspace
from pykoclaw_acp.model.trust import Trusted
from pykoclaw_acp.model.turns import Outcome, PromptKeys, SessionRecord, Turn
from pykoclaw_acp.store import (
    clocks,
    cursors,
    events,
    merging,
    offers,
    overview,
    permissions,
    sessions,
    trust,
    turns,
    workers,
)
from pykoclaw_acp.store.database import Database, NewEvent, Statement, Unit
from pykoclaw_acp.system.clock import Clock
from pykoclaw_acp.tasks import in_pieces

if TYPE_CHECKING:
    from pykoclaw_acp.model.away import AwayPolicy


class SessionJournal:
    """Implements `sessions.ports.Journal`; every method that writes returns after the commit.

    What a request asks for is refused while the store cannot be written; what has happened already waits until it can.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def clock(self) -> Clock:
        """What decides about ages."""
        return self._database.clock

    def require_writable(self) -> None:
        """Raises StoreUnavailable while the store cannot be written."""
        self._database.condition.require()

    async def writable(self) -> None:
        """Returns as soon as the store can be written."""
        await self._database.condition.writable()

    @property
    def troubles(self) -> int:
        """How often the store could not be written, until now."""
        return self._database.condition.troubles

    async def create(self, record: SessionRecord) -> None:
        """A new session and its conversation."""
        await self._commit(Unit(statements=sessions.insert(record, self.clock.now())))

    async def find(self, session_id: str) -> SessionRecord | None:
        """The session that this id leads to, unless there is none or it was deleted."""
        return await sessions.find(self._database, session_id)

    async def moved(self, session_id: str, seq: int) -> int:
        """Where the place `seq` of this id's log has gone when logs were merged."""
        return await merging.moved(self._database, session_id, seq)

    async def name_taken(self, name: str) -> bool:
        """Whether a conversation, ours or another channel's, has this name."""
        return await sessions.name_taken(self._database, name)

    async def adopt(self, record: SessionRecord) -> None:
        """What a load changes."""
        await self._run(sessions.reopen(record, self.clock.now()), patient=True)

    async def mark_closed(self, session_id: str) -> None:
        """The client closed the session."""
        await self._run(sessions.close(session_id))

    async def delete(self, session_id: str) -> None:
        """Nobody finds the session any more, and nothing of what was said in it is kept."""
        await overview.delete(self._database, session_id)

    async def accept(self, turn: Turn) -> None:
        """A prompt was accepted: `queued`, durable."""
        helper = prompt_text.by_client_itself(turn.content, turn.client)
        used = sessions.prompted(turn.session_id, self.clock.now(), helper=helper)
        prompt = await in_pieces(long_texts.encoded(turn.content))
        await self._commit(Unit(statements=(turns.insert(turn, prompt), used), durable=True))

    async def begin(self, turn_id: str) -> None:
        """This daemon begins to prepare a `queued` turn for Claude."""
        await self._run(turns.count_attempt(turn_id, 1), patient=True)

    async def not_begun(self, turn_id: str) -> None:
        """It does not any more."""
        await self._run(turns.count_attempt(turn_id, -1))

    async def dispatch(self, turn: Turn, epoch: int, said: Sequence[Event]) -> list[int]:
        """`queued` to `dispatched`, durable, with the user's message."""
        rows = await in_pieces(events.rows_in_steps(turn.session_id, turn.turn_id, said))
        return await self._commit(
            Unit(
                statements=(turns.dispatch(turn.turn_id, epoch), *sessions.follow(turn.session_id, said)),
                events=rows,
                durable=True,
            ),
            patient=True,
        )

    async def record(
        self,
        session_id: str,
        epoch: int,
        frames: Sequence[Numbered],
        outcomes: dict[str, Outcome],
        *,
        dead: bool = False,
    ) -> list[Logged]:
        """A worker's frames in one transaction; returns the events that they made.

        The last frame's number is noted in the row of the last event, or else in the worker's row: a piece of text
        changes one page.

        Raises StaleEpoch unless the worker is its session's newest, or `dead`, while no other worker lives.
        """
        statements: list[Statement] = []
        rows: list[NewEvent] = []
        told: list[tuple[str | None, Event]] = []
        ends: list[tuple[str, str]] = []
        for frame in frames:
            said: list[Event] = []
            turn_id: str | None = None
            if isinstance(frame, EventFrame):
                turn_id, said = frame.turn_id, [frame.event]
            elif isinstance(frame, Gap):
                turn_id, said = frame.turn_id, gap(f"gap-{epoch}-{frame.n}", frame.n - frame.first + 1, frame.file)
            elif isinstance(frame, TurnStarted):
                new = turns.insert_background(session_id, frame.turn_id, epoch)
                statements.append(new if frame.background else turns.start(frame.turn_id))
            elif isinstance(frame, TurnEnded):
                outcome = outcomes[frame.turn_id]
                turn_id, said = frame.turn_id, failure(frame.turn_id, outcome)
                statements.append(turns.end(frame.turn_id, outcome, self.clock.now()))
                statements.append(sessions.used(session_id, self.clock.now()))
                statements.append(sessions.set_claude_session(session_id, frame.claude_session_id))
                ends.append((session_id, frame.turn_id))
            elif isinstance(frame, Ask):
                statements.append(permissions.insert(session_id, frame, self.clock.now()))
            elif isinstance(frame, AskWithdrawn):
                statements.append(permissions.withdraw(frame.ask_id))
            statements.extend(sessions.follow(session_id, said))
            rows.extend(events.rows(session_id, turn_id, said))
            told.extend((turn_id, event) for event in said)
        if statements or not rows:
            statements.append(workers.acknowledge(session_id, epoch, frames[-1].n))
        else:
            rows[-1] = msgspec.structs.replace(rows[-1], frame=(epoch, frames[-1].n))
        worker = None if dead else (session_id, epoch)
        unit = Unit(statements=tuple(statements), events=tuple(rows), ends=tuple(ends), worker=worker)
        seqs = await self._commit(unit, patient=True)
        return [
            Logged(seq, turn_id, event, len(row.payload))
            for seq, (turn_id, event), row in zip(seqs, told, rows, strict=True)
        ]

    async def finish(
        self, session_id: str, turn_id: str, outcome: Outcome, said: Sequence[Event]
    ) -> tuple[Outcome, list[int]]:
        """End a turn that no worker can end; one that has ended already keeps its end, and nothing is said."""
        rows = await in_pieces(events.rows_in_steps(session_id, turn_id, said))
        now = self.clock.now()
        ended = (turns.end(turn_id, outcome, now, once=True), sessions.used(session_id, now))
        try:
            return outcome, await self._commit(Unit(ended, rows, ends=((session_id, turn_id),)), patient=True)
        except Conflict as error:
            if (known := await turns.outcome(self._database, turn_id)) is None:
                raise NoPlaceForEnd(turn_id) from error
            return known, []

    async def append(self, session_id: str, said: Sequence[Event], *, patient: bool = False) -> list[int]:
        """Events outside of any turn; `patient`: of what has happened already."""
        statements = (*sessions.follow(session_id, said), sessions.used(session_id, self.clock.now()))
        return await self._commit(Unit(statements, events.rows(session_id, None, said)), patient=patient)

    async def offer(self, cwd: str) -> Offer | None:
        """What the last worker in this directory offered, or models of another."""
        found = await offers.of(self._database, cwd)
        if found is None and (other := await offers.newest(self._database)) is not None:
            return Offer(models=other.models)
        return found

    async def keep_offer(self, cwd: str, offer: Offer) -> None:
        """What the newest worker in this directory offers."""
        await self._run(offers.keep(cwd, offer))

    async def unused(self, before: int) -> list[str]:
        """Sessions whose events may be deleted."""
        return await sessions.unused(self._database, before)

    async def prune(self, session_id: str, before: int) -> bool:
        """Delete what was said in the session and hide it, if it is still unused."""
        try:
            await self._commit(Unit(statements=sessions.prune(session_id, before)))
        except Conflict:
            return False
        return True

    async def settle(self, settled: Settled, used: str | None = None) -> None:
        """A permission question is answered, or moot; `used`: the parked question whose answer this is."""
        more = () if used is None else (permissions.use_up(used),)
        await self._commit(Unit(statements=(permissions.settle(settled), *more)), patient=True)

    async def set_clock(self, ask_id: str, policy: RequestPolicy, deadline: Deadline | None) -> None:
        """Which away policy an open question is under, and until when."""
        await self._run(permissions.set_clock(ask_id, policy, deadline))

    async def park(self, session_id: str, ask: Ask, said: Sequence[Event]) -> list[int]:
        """An open question gives up its worker and waits on."""
        rows = events.rows(session_id, ask.turn_id, said)
        return await self._commit(Unit(statements=(permissions.park(ask.ask_id),), events=rows))

    async def answer_parked(self, settled: Settled, turn: Turn) -> None:
        """A parked question is answered: with it the prompt that tells Claude so is `queued`, durable."""
        told = permissions.settle_parked(settled, turn.turn_id)
        prompt = await in_pieces(long_texts.encoded(turn.content))
        await self._commit(Unit(statements=(told, turns.insert(turn, prompt)), durable=True), patient=True)

    async def trusted(self, paths: Collection[str]) -> list[Trusted]:
        """What the user has said of these directories and of those above them."""
        return await trust.of(self._database, paths)

    async def trust_first_use(self, path: str, workspaces: Sequence[Workspace]) -> None:
        """The first use of a directory that is trusted with what it holds then: this."""
        rows = [trust.add(one.path, one.content, "upgrade") for one in workspaces if one.content]
        await self._commit(Unit(statements=(trust.used(path), *rows)), patient=True)

    async def ask(self, session_id: str, ask: Ask) -> None:
        """A question that no worker asks."""
        await self._commit(
            Unit(statements=permissions.insert_workspace(session_id, ask, self.clock.now())), patient=True
        )

    async def settle_workspaces(self, settled: Settled, trusted: Sequence[Workspace]) -> None:
        """A question about trust is answered: these are trusted from now on."""
        rows = [trust.add(one.path, one.content, settled.answered_by or "") for one in trusted]
        await self._commit(Unit(statements=(permissions.settle(settled), *rows), durable=bool(rows)), patient=True)

    async def workspace_answers(self, turn_id: str) -> list[Question]:
        """Questions about trust that were asked for this turn and are answered, the newest first."""
        return await permissions.about_trust(self._database, turn_id)

    async def questions(self, session_id: str | None = None) -> list[Question]:
        """Questions that wait, and answered ones whose turn still goes on with the answer."""
        return await permissions.waiting(self._database, session_id)

    async def settled(self, ask_ids: Sequence[str]) -> list[Question]:
        """Those of the questions that are settled, but for parked ones."""
        return await permissions.settled(self._database, ask_ids)

    async def matching(self, prefix: str) -> list[Question]:
        """Questions whose id begins so."""
        return await permissions.matching(self._database, prefix)

    async def is_open(self, ask_id: str) -> bool:
        """Whether the question waits for an answer."""
        return await permissions.is_open(self._database, ask_id)

    async def set_away_policy(self, session_id: str, policy: AwayPolicy | None, *, patient: bool = False) -> None:
        """The session's own away policy."""
        await self._run(sessions.set_away_policy(session_id, policy), patient=patient)

    async def answered(self, turn_id: str) -> None:
        """A client has got the turn's response."""
        await self._run(turns.answered(turn_id), patient=True)

    async def ended_turns(self, session_id: str, column: turns.Key, value: str) -> list[tuple[Turn, Outcome]]:
        """Clients' turns that have ended, by one of their keys."""
        return await turns.ended(self._database, session_id, column, value)

    async def newest_turn(self, session_id: str, since: int) -> tuple[Turn, Outcome] | None:
        """The session's last prompt of a client, if it has ended, and not before `since` (ms, own clock)."""
        return await turns.newest(self._database, session_id, since)

    async def has_unfinished(self, session_id: str, keys: PromptKeys) -> bool:
        """Whether a turn without an end has one of these keys."""
        return await turns.has_unfinished(self._database, session_id, keys)

    async def turns_of_front(self, session_id: str, front: str) -> list[str]:
        """Ids of the turns that a front asked for."""
        return await turns.of_front(self._database, session_id, front)

    async def find_created(self, request_key: str) -> str | None:
        """Id of the session that this `session/new` has made."""
        return await sessions.find_created(self._database, request_key)

    async def change_cursors(self, changes: Sequence[CursorChange]) -> None:
        """How far clients were shown sessions, and who goes on from where."""
        await self._commit(Unit(statements=tuple(cursors.change(one) for one in changes)), patient=True)

    async def cursors(self, session_id: str, client: str) -> list[Cursor]:
        """How far the instances of a client were shown the session."""
        return await cursors.of(self._database, session_id, client)

    async def instances(self) -> list[str]:
        """Those that have cursors."""
        return await cursors.instances(self._database)

    async def age_cursors(self, ended: Sequence[str], living: Sequence[str], before: int) -> None:
        """These instances have ended, those live; what was left before that is dropped."""
        await self._commit(Unit(statements=tuple(cursors.age(ended, living, self.clock.now(), before))))

    async def read(self, session_id: str, after: int, limit: int) -> list[Logged]:
        """The log from `after` on, in order."""
        return await events.read(self._database, session_id, after, limit)

    async def note_time(self) -> None:
        """Write down where the own clock stands."""
        await self._run(clocks.note(self.clock))

    async def _run(self, statement: Statement, *, patient: bool = False) -> None:
        await self._commit(Unit(statements=(statement,)), patient=patient)

    async def _commit(self, unit: Unit, *, patient: bool = False) -> list[int]:
        return await self._database.commit(unit, patient=patient)
