"""What happens when Claude's memory of a conversation cannot be restored: never anything silent.

Nothing of it is decided before a worker has to be launched. A transcript that is missing or empty is
refused by the CLI; of one that was cut off, replaced, or is another conversation's, the CLI says
nothing, so that it is searched for the newest turns. Each that it lacks is told once.
"""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import WorkerFailed
from pykoclaw_acp.model import contexts
from pykoclaw_acp.model.branches import Branch, Memory, RewindPoint
from pykoclaw_acp.model.contexts import Loss, TurnEnd
from pykoclaw_acp.model.digest import MOST_TURNS
from pykoclaw_acp.model.events import Event, Plan
from pykoclaw_acp.model.lost_context import LostContext
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.sessions.context_summary import ContextSummary
from pykoclaw_acp.sessions.ports import Transcripts, Workers
from pykoclaw_acp.sessions.ports.journal import LogAndContext
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.tasks import Tasks

LOOKED_AT: Final = 20  # newest turns that are searched for
MOST_LOST: Final = 2000  # that are searched for if the oldest of those is lost
PAGE: Final = 500  # rows
LOOKS: Final = 9  # at a transcript that lacks the end of a turn
PAUSE: Final = 0.25  # s between them
MOST_PAGES: Final = 20  # of the newest turns

log: Final = structlog.get_logger()


class SessionContext:
    """Claude's memory of one session."""

    def __init__(
        self,
        state: SessionState,
        journal: LogAndContext,
        workers: Workers,
        transcripts: Transcripts,
        policy: LostContext,
    ) -> None:
        self._state = state
        self._journal = journal
        self._workers = workers
        self._transcripts = transcripts
        self._policy = policy
        self._told: str | None = None
        self._looking = asyncio.Lock()
        """Held from a look until what follows is in the database: who comes meanwhile finds nothing left."""
        self._tasks = Tasks()

    async def before_launch(self) -> None:
        """Look whether the transcript holds the newest turns, unless a worker lives.

        Raises WorkerFailed if it does not, and has to.
        """
        begun = asyncio.Event()
        await self._tasks.finish(self._lose_if_lost(begun), begun)
        await self.recover_notes()

    async def _lose_if_lost(self, begun: asyncio.Event) -> None:
        async with self._looking:
            if (loss := await self.loss()) is not None:
                begun.set()
                await self._lose(loss)

    async def without_refused(self) -> None:
        """Let Claude forget a prompt that it has refused, and what it did for it: by ACP, neither is in
        the next prompt. Its worker remembers both, and is stopped.
        """
        begun = asyncio.Event()
        await self._tasks.finish(self._forget_if_refused(begun), begun)

    async def _forget_if_refused(self, begun: asyncio.Event) -> None:
        async with self._looking:
            if (point := await self._journal.refused(self._state.record)) is not None:
                begun.set()
                await self._forget(point)

    async def _forget(self, point: RewindPoint) -> None:
        await self._workers.stop(self._state.id)
        note = await self.note_at(point.upto, point.memory, f"refused-{point.turn_id}")
        said = [*contexts.refused(point.turn_id), *await self.without_tasks()]
        seqs = await self._journal.forget_refused(self._state.id, point, note, said)
        self._state.log.committed(seqs, None, said)
        self._begin_at(point.branch)
        log.info("Refused prompt forgotten", action="refused_forgotten", session=self._state.id)

    async def has_refused(self) -> bool:
        """Whether there is such a prompt."""
        return await self._journal.refused(self._state.record) is not None

    async def recover_notes(self) -> None:
        """Give again, unless a worker lives, what was told with prompts that a worker's death kept out of
        the transcript which the next one continues.
        """
        record = self._state.record
        if self._workers.is_live(self._state.id):
            return
        carriers = await self._journal.doubtful_carriers(self._state.id)
        if not carriers:
            return
        held: set[str] | None = set()
        claude = record.claude_session_id if record.branch is None else record.branch.source
        if claude:
            entries = [contexts.entry_uuid(turn_id) for turn_id in carriers]
            held = await self._transcripts.holding(record, claude, entries)
        if held is None:
            return  # the CLI says what is wrong with it
        lost = [turn_id for turn_id in carriers if contexts.entry_uuid(turn_id) not in held]
        if lost:
            await self._journal.give_notes_again(lost)

    async def loss(self) -> Loss | None:
        """What of the newest turns the transcript lacks, and was not told; None if nothing, or a
        worker lives.
        """
        record = self._state.record
        claude = record.claude_session_id
        if claude is None or record.branch is not None or self._workers.is_live(self._state.id):
            return None
        ends = await self._journal.newest_ends(self._state.id, claude, LOOKED_AT)
        for left in range(LOOKS - 1, -1, -1):
            held = await self._held(claude, ends)
            if held is None:
                return None  # the CLI says what is wrong with it
            lost = [end for end in ends if end.lost(held)]
            if not lost:
                return None
            if left and lost[0] is ends[0] and lost[0].begun(held):
                await asyncio.sleep(PAUSE)  # the CLI of a worker that ends may still write
                continue
            if lost[-1] is ends[-1] and len(ends) == LOOKED_AT:  # of one loss, all is told at once
                ends = await self._journal.newest_ends(self._state.id, claude, MOST_LOST)
                held = await self._held(claude, ends)
            return None if held is None else _loss(self._state.id, ends, held)
        return None

    async def is_whole(self) -> bool:
        """Whether the transcript holds the newest turns, also while a worker lives; False if there is
        no transcript, or it cannot be said.
        """
        record = self._state.record
        claude = record.claude_session_id
        if claude is None or record.branch is not None:
            return True
        ends = await self._journal.newest_ends(self._state.id, claude, LOOKED_AT)
        held = await self._held(claude, ends)
        return held is not None and not any(end.lost(held) for end in ends)

    async def _held(self, claude: str, ends: list[TurnEnd]) -> set[str] | None:
        """Which entries of these turns the transcript holds; None if there is none, or they have
        none.
        """
        entries = [uuid for end in ends for uuid in end.entries]
        if not entries:
            return None
        return await self._transcripts.holding(self._state.record, claude, entries)

    async def lost(self, failure: WorkerFailed) -> None:
        """Claude could not be started with its memory. Afterwards it can be without; raises
        WorkerFailed if it must not.
        """
        if failure.kind != ErrorKind.CONTEXT_LOST:
            raise failure
        record = self._state.record
        name = f"{self._state.id} {record.claude_session_id}"
        place = record.branch is not None and record.branch.at is not None
        await self._tasks.finish(self._lose(Loss(None, name, place=place)))

    async def _lose(self, loss: Loss) -> None:
        lost = [end.turn_id for end in loss.lost or ()]
        noted = await self._journal.has_note(loss.note_id)
        if lost and noted:  # by a version that did not keep which
            await self._journal.lose_context(self._state.id, None, None, [], lost)
            return
        if self._policy is LostContext.REQUIRED:
            raise WorkerFailed(ErrorKind.CONTEXT_LOST, contexts.refusal(loss))
        branch = Branch("") if loss.lost is None else None
        if noted or self._told == loss.name:
            if branch is not None:  # a rewind has led back to what is lost
                await self._journal.lose_context(self._state.id, branch, None, [])
                self._begin_at(branch)
            return
        text = await self._digest(loss) if self._policy is LostContext.AUTO else ""
        said = contexts.said(loss, digest=bool(text))
        if branch is not None:
            said += await self.without_tasks()
        note = contexts.note(loss, text) if text else None
        seqs = await self._journal.lose_context(self._state.id, branch, note, said, lost)
        self._told = loss.name
        self._state.log.committed(seqs, None, said)
        if branch is not None:
            self._begin_at(branch)
        log.warning("Claude's memory is lost", action="context_lost", session=self._state.id)

    async def note_at(self, upto: int, memory: Memory, name: str) -> Note | None:
        """What Claude is told of the history up to there that it lacks, without what was rewound, as a
        note with this id; None if it lacks nothing.
        """
        if (after := memory.lacks) is None:
            return None
        told = ContextSummary(await self._journal.forgotten(self._state.id))
        while after < upto and (page := await self._journal.read(self._state.id, after, PAGE)):
            for one in page:
                if one.seq <= upto and one.event is not None:
                    told.follow(one.event, one.turn_id)
            after = page[-1].seq
        return contexts.no_record(name, text) if (text := told.text()) else None

    async def without_tasks(self, upto: int | None = None) -> list[Event]:
        """What empties the plan that the log shows, at its end or at this place, because the next
        Claude session is another one. The CLI keeps a list of tasks for each of its sessions, and
        takes none along to another.
        """
        return [Plan(())] if await self._journal.last_plan(self._state.id, upto) else []

    def _begin_at(self, branch: Branch) -> None:
        record = self._state.record
        record.branch = branch
        self._workers.set_resume(self._state.id, record.claude_session_id, branch)

    async def _digest(self, loss: Loss) -> str:
        """The newest turns that are lost, and what lies between them, without what was rewound, as
        bounded text.
        """
        end = self._state.last_seq
        forgotten = await self._journal.forgotten(self._state.id)
        if loss.lost is None:
            place = await self._journal.last_turns(self._state.id, MOST_TURNS + len(forgotten))
            after, left_out = place.after, place.left_out
        else:
            after = max(0, loss.lost[:MOST_TURNS][-1].first_seq - 1)
            left_out = max(0, len(loss.lost) - MOST_TURNS)
            end = end if loss.upto is None else loss.upto - 1
        told = ContextSummary(loss.kept | forgotten)
        for _ in range(MOST_PAGES):
            page = await self._journal.read(self._state.id, after, PAGE) if after < end else []
            if not page:
                break
            for one in page:
                if one.seq <= end and one.event is not None:
                    told.follow(one.event, one.turn_id)
            after = page[-1].seq
        if loss.lost is None:
            left_out = max(0, left_out - len(forgotten - told.passed))
        return told.text(left_out)


def _loss(session_id: str, ends: list[TurnEnd], held: set[str]) -> Loss | None:
    """What a transcript with these entries lacks of these turns, the newest first."""
    lost = [end for end in ends if end.lost(held)]
    if not lost:
        return None
    name = f"{session_id} {lost[0].turn_id}"
    if not held:
        return Loss(None, name)
    kept = [end for end in ends if not end.lost(held)]
    newer = kept[: ends.index(lost[0])]
    ids = frozenset(one for end in kept for one in end.prompts)
    return Loss(tuple(lost), name, ids, newer[-1].first_seq if newer else None)
