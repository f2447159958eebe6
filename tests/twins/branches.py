"""The twin of `sessions.ports.branches.BranchStore`, for turns of its own: what other programs'
transcripts and compactions change is examined on SQLite alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

from pykoclaw_acp.errors import Conflict, InvalidParams, InvalidRequest, RowRefused
from pykoclaw_acp.model.branches import (
    Branch,
    Fork,
    ForkedAt,
    ForkPoint,
    Memory,
    RewindPoint,
    Rewound,
)
from pykoclaw_acp.model.events import BLOCKED, MOVED, Event, OpenTools, Text, Thinking, UserMessage
from pykoclaw_acp.model.imports import TranscriptTurn
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.permissions import RequestPolicy
from pykoclaw_acp.model.prompt_text import Note, command_at
from pykoclaw_acp.model.seams import original
from pykoclaw_acp.model.turns import STARTED, Outcome, PromptKeys, SessionRecord, TurnState
from pykoclaw_acp.store.branches import NEVER_SENT, NO_MESSAGE, NO_PROMPT, REWOUND, RUNNING
from pykoclaw_acp.store.remembered import NOT_KNOWN
from tests.twins.database import SessionRow, TurnRow
from tests.twins.making import MemoryMakingStore
from tests.twins.notes import MemoryNoteStore


class MemoryBranchStore(MemoryMakingStore):
    async def point(
        self, record: SessionRecord, last_seq: int, message_id: str | None
    ) -> ForkPoint:
        complete, upto = True, last_seq
        if message_id is not None:
            upto = self._end_of(record.session_id, message_id, last_seq)
        else:
            turns = self._turns(record.session_id)
            running = [self._first(one) for one in turns if one.state in STARTED]
            begins = [seq for seq in running if seq is not None]
            complete, upto = not begins, min(begins, default=last_seq + 1) - 1
        memory = self._memory(record, upto, at_end=complete and upto >= last_seq)
        return ForkPoint(upto, memory, complete)

    async def rewind_point(self, record: SessionRecord, message_id: str | None) -> RewindPoint:
        session, upto = record.session_id, record.last_seq
        if message_id is not None:
            upto = self._end_of(session, message_id, upto)
            message = original(message_id)
            for turn_id in (message, f"{session}/{message}"):
                turn = self.database.read().turns.get(turn_id)
                if turn is not None and self._first(turn) is None and not self._knows(turn):
                    raise InvalidRequest(NEVER_SENT)
        turns = [one for one in self._turns(session) if not one.background and not one.rewound]
        begun = [(self._first(one), one) for one in turns if not one.unfinished]
        if message_id is None:
            begun = [(seq, one) for seq, one in begun if self._knows(one)]
        found = [(seq, one) for seq, one in begun if seq is not None and seq <= upto]
        if not found:
            raise InvalidRequest("There is no prompt to rewind to.")
        first, newest = found[-1]
        if message_id is not None and newest.last_seq != upto:
            raise InvalidRequest(NO_PROMPT)
        memory = self._memory(record, first - 1, at_end=False)
        following = [one for one in turns if one.position >= newest.position and self._knows(one)]
        commands = list(takewhile(lambda one: command_at(one.content) is not None, following))
        rest = following[len(commands) :]
        after = rest[0].turn_id if rest else None
        ids = tuple(one.turn_id for one in commands)
        moved = self._moved(session, first - 1)
        return RewindPoint(newest.turn_id, len(following), first - 1, memory, ids, after, moved)

    def _moved(self, session_id: str, upto: int) -> bool:
        log = self.database.logs.get(session_id, [])
        moves = [one.seq for one in log if (_message(one) or "").startswith(MOVED)]
        edits = [one.seq for one in log if getattr(one.event, "tool_kind", "") == "edit"]
        return bool(edits) and any(one > max(upto, edits[0]) for one in moves)

    def _turns(self, session_id: str) -> list[TurnRow]:
        rows = self.database.read().turns.values()
        mine = [one for one in rows if one.session_id == session_id]
        return sorted(mine, key=lambda one: one.position)

    def _first(self, turn: TurnRow) -> int | None:
        log = self.database.logs.get(turn.session_id, [])
        return next((one.seq for one in log if one.turn_id == turn.turn_id), None)

    def _knows(self, turn: TurnRow) -> bool:
        """Whether Claude knows the prompt: it was sent, and no hook has taken it away."""
        key = (turn.session_id, turn.turn_id)
        if not (turn.dispatched or turn.started or key in self.database.transcript_turns):
            return False
        outcome = turn.outcome
        if outcome is None or outcome.state is not TurnState.DONE or outcome.usage is not None:
            return True
        if any(one.taken_by == turn.turn_id for one in self._turns(turn.session_id)):
            return True  # it may have been one of these
        log = self.database.logs.get(turn.session_id, [])
        said = [_message(one) or "" for one in log if one.turn_id == turn.turn_id]
        return not any(one.endswith(BLOCKED) for one in said)

    def _end_of(self, session_id: str, message_id: str, last_seq: int) -> int:
        """The end of the turn that the message belongs to."""
        message = original(message_id)
        turns, log = self.database.read().turns, self.database.logs.get(session_id, [])
        for turn_id in (message, f"{session_id}/{message}"):
            turn = turns.get(turn_id)
            if turn is not None and turn.session_id == session_id and self._first(turn) is not None:
                return _ended(turn)
        said = [one for one in log if _message(one) == message]
        if not said:
            raise InvalidParams(NO_MESSAGE)
        last = said[-1]
        if last.turn_id is not None:
            return _ended(turns[last.turn_id])
        prompts = (one for one in log if isinstance(one.event, UserMessage) and one.seq > last.seq)
        return next((one.seq - 1 for one in prompts if _message(one) != message), last_seq)

    def _memory(self, record: SessionRecord, upto: int, *, at_end: bool) -> Memory:
        if at_end and record.branch is not None:
            return Memory(record.branch)
        claude = record.claude_session_id
        begun = [(self._first(one) or 0, one) for one in self._turns(record.session_id)]
        reached = [(seq, one) for seq, one in begun if seq <= upto and not one.rewound]
        held = [one for _, one in reached if not one.lost and _is_held(one)]
        newest = held[-1] if held else None
        if newest is not None and newest.outcome is not None:
            source, entry = newest.outcome.claude_session_id, newest.outcome.last_uuid
            if source is not None and entry is not None:
                lacks = any(one.lost and seq > newest.last_seq for seq, one in reached)
                return Memory(Branch(source, entry), newest.last_seq if lacks else None)
        if claude is None or newest is None:
            begin = None if claude is None or not at_end else Branch(claude)
            return Memory(begin, None if at_end else 0)
        if not at_end:
            raise InvalidRequest(NOT_KNOWN)
        return Memory(Branch(claude))

    async def rewound(self, request_key: str) -> Rewound | None:
        return self.database.read().rewinds.get(request_key)

    async def begin_rewind(self, session_id: str, planned: Rewound) -> None:
        await self.database.write(lambda: self.database.begun_rewinds.update({session_id: planned}))

    async def begun_rewind(self, session_id: str) -> Rewound | None:
        return self.database.read().begun_rewinds.get(session_id)

    async def rewind(
        self,
        session_id: str,
        point: RewindPoint,
        said: Sequence[Event],
        done: Rewound,
        *,
        note: Note | None,
        request_key: str | None,
    ) -> list[int]:
        def rewind() -> list[int]:
            tables = self.database
            if request_key is not None:
                if request_key in tables.rewinds:
                    raise RowRefused(request_key)
                tables.rewinds[request_key] = done
            tables.begun_rewinds.pop(session_id, None)
            begin = tables.turns[point.turn_id].position
            for one in self._turns(session_id):
                one.rewound |= not one.unfinished and one.position >= begin
            place = self._first(tables.turns[point.turn_id]) or 1
            for owner, uuid in tables.transcript_turns:
                if owner == session_id and tables.sources.get((owner, f"{uuid}:0"), 0) >= place:
                    tables.rewound_turns[owner, uuid] = None
            for key, turn in tables.transcript_turns.items():
                if key[0] == session_id:
                    tables.transcript_turns[key] = replace(turn, told=True)
            if note is None:
                tables.give_notes_again(point.turn_id)
            for note_id in self._delivered(session_id, point.upto):
                if tables.turns[tables.carriers.get(note_id, point.turn_id)].rewound:
                    tables.carriers.pop(note_id, None)
            self._withdraw_rewound(session_id)
            if note is not None:
                tables.notes.setdefault(note.note_id, (session_id, note.text))
            tables.session(session_id).record.branch = point.branch
            tables.limit_waits.pop(session_id, None)
            tables.interrupt_parked(session_id)
            return tables.log(session_id, None, said)

        return await self.database.write(rewind, patient=True)

    def _delivered(self, session_id: str, upto: int) -> list[str]:
        """Notes of what was delivered before this place."""
        after, notes = self.database.delivered_after, self.database.notes
        return [
            one
            for one, seq in after.items()
            if seq < upto and notes.get(one, ("",))[0] == session_id
        ]

    def _withdraw_rewound(self, session_id: str) -> None:
        """Withdraw pending summaries, and results that the log has as turns that were rewound."""
        tables = self.database
        gone = {
            seq
            for (owner, source), seq in tables.sources.items()
            if owner == session_id and (owner, source.partition(":")[0]) in tables.rewound_turns
        }
        for note_id, (owner, _) in list(tables.notes.items()):
            summary = note_id.rpartition("/")[2].startswith(("rewound-", "refused-", "fork-"))
            rewound = summary or tables.delivered_after.get(note_id) in gone
            if rewound and owner == session_id and note_id not in tables.carriers:
                del tables.notes[note_id]

    async def parked(self, session_id: str, before: str) -> set[str]:
        tables = self.database.read()
        end = tables.turns[before].position
        turns = {key for key, one in tables.turns.items() if one.position < end and not one.rewound}
        return {
            ask_id
            for ask_id, one in tables.requests.items()
            if one.session_id == session_id
            and one.policy == RequestPolicy.PARKED
            and one.outcome is None
            and one.request.turn_id in turns
        }

    async def open_tools(self, session_id: str, upto: int) -> OpenTools:
        tools = OpenTools()
        for one in self.database.read().logs.get(session_id, []):
            if one.seq <= upto:
                tools.follow(one.event)
        return tools

    async def find_created(self, request_key: str) -> str | None:
        rows = self.database.read().sessions.items()
        return next((key for key, one in rows if one.record.request_key == request_key), None)

    async def forked_at(self, session_id: str) -> ForkedAt | None:
        return self.database.read().forks.get(session_id)

    async def fork(self, fork: Fork) -> None:
        pending = await MemoryNoteStore(self.database).untold_notes(fork.source)

        def make() -> None:
            tables, own, upto = self.database, fork.session_id, fork.point.upto
            source = tables.session(fork.source)
            if source.deleted:
                raise Conflict(f"the session {fork.source} is gone")
            if own in tables.sessions or fork.conversation_name in tables.claude_sessions:
                raise RowRefused(own)
            self._insert(fork, source)
            tables.forks[own] = ForkedAt(upto, fork.point.complete)
            log = [one for one in tables.logs.get(fork.source, []) if one.seq <= upto]
            tables.logs[own] = [_copied(own, one) for one in log]
            self._copy_turns(fork)
            for note_id, (_, text) in list(tables.notes.items()):
                carrier = f"{own}/{tables.carriers.get(note_id)}"
                if carrier in tables.turns:
                    tables.notes[f"{own}/{note_id}"] = own, text
                    tables.carriers[f"{own}/{note_id}"] = carrier
            for note in pending if fork.at_end else []:
                tables.notes[f"{own}/{note.note_id}"] = own, note.text
                tables.carriers.pop(f"{own}/{note.note_id}", None)
            for note_id in [] if fork.at_end else self._delivered(fork.source, upto):
                told = tables.turns.get(tables.carriers.get(note_id, ""))
                if told is None or not told.started or (self._first(told) or 0) > upto:
                    tables.notes[f"{own}/{note_id}"] = own, tables.notes[note_id][1]
            after = tables.delivered_after
            after |= {
                f"{own}/{one}": seq for one, seq in after.items() if f"{own}/{one}" in tables.notes
            }
            if fork.note is not None:
                tables.notes[fork.note.note_id] = own, fork.note.text
            tables.log(own, None, fork.said)

        await self.database.write(make)

    def _insert(self, fork: Fork, source: SessionRow) -> None:
        record = replace(
            source.record,
            session_id=fork.session_id,
            conversation_name=fork.conversation_name,
            cwd=fork.cwd,
            additional_directories=fork.directories,
            title_by="",
            last_seq=min(source.record.last_seq, fork.point.upto),
            closed=False,
            request_key=fork.request_key,
            client=fork.client,
            branch=fork.point.memory.branch,
        )
        self.database.sessions[fork.session_id] = SessionRow(record, self.clock.now())
        self.database.claude_sessions[fork.conversation_name] = None
        self.database.folders[fork.conversation_name] = fork.cwd

    def _copy_turns(self, fork: Fork) -> None:
        """With what the fork's transcript will hold of them, and of turns that came later."""
        tables, own = self.database, fork.session_id
        branch = fork.point.memory.branch
        for key, known in list(tables.transcript_turns.items()):
            if key[0] == fork.source:
                tables.transcript_turns[own, key[1]] = replace(known, told=True)
        for one in self._turns(fork.source):
            outcome = one.outcome or Outcome(one.state)
            claude = outcome.claude_session_id or ("" if branch is None else branch.source)
            seen = TranscriptTurn(one.turn_id, claude, own=True, told=True)
            tables.transcript_turns.setdefault((own, one.turn_id), seen)
            if not one.unfinished and (self._first(one) or 0) <= fork.point.upto:
                made = replace(one, turn_id=f"{own}/{one.turn_id}", session_id=own, content=[])
                made.keys, made.task_id = PromptKeys(), None
                made.taken_by = one.taken_by and f"{own}/{one.taken_by}"
                tables.turns[made.turn_id] = made


def _ended(turn: TurnRow) -> int:
    if turn.unfinished:
        raise InvalidRequest(RUNNING)
    if turn.rewound:
        raise InvalidRequest(REWOUND)
    return turn.last_seq


def _is_held(turn: TurnRow) -> bool:
    """Whether Claude's memory may end with this turn."""
    outcome = turn.outcome
    return outcome is not None and bool(turn.state is TurnState.DONE or outcome.last_uuid)


def _message(logged: Logged) -> str | None:
    event = logged.event
    return event.message_id if isinstance(event, Text | Thinking | UserMessage) else None


def _copied(session_id: str, logged: Logged) -> Logged:
    turn = logged.turn_id
    return replace(logged, turn_id=None if turn is None else f"{session_id}/{turn}")
