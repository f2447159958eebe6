"""What other programs do with a session's conversation: taken into its log, shown to its clients,
and known to Claude at the next prompt.

WhatsApp, the scheduler and `claude --resume` continue a conversation without asking anybody. Its row
names the Claude session of whoever came last; its transcript has what was said. A row may also name
a Claude session that continues nothing, as that of an isolated task, or one whose transcript is gone:
what a side turn said is shown, and the row is put right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

import structlog

from pykoclaw_acp.errors import Conflict, StoreClosed, StoreUnavailable
from pykoclaw_acp.model import notes
from pykoclaw_acp.model.conversations import Conversation
from pykoclaw_acp.model.events import BY_WORDS, TitleChanged, UserMessage
from pykoclaw_acp.model.imports import Side
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.lost_context import LostContext
from pykoclaw_acp.model.prompt_text import Note, is_for_shell
from pykoclaw_acp.model.turns import STARTED, Turn
from pykoclaw_acp.sessions import writes
from pykoclaw_acp.sessions.background import BackgroundTurns
from pykoclaw_acp.sessions.context import SessionContext
from pykoclaw_acp.sessions.permissions.broker import Broker
from pykoclaw_acp.sessions.ports import Imported, RowStanding, Transcripts, TurnLocks, Workers
from pykoclaw_acp.sessions.ports.journal import ConversationsAndNotes
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.sessions.turns import titles, titling
from pykoclaw_acp.sessions.turns.queue import TurnQueue
from pykoclaw_acp.tasks import Tasks, told_elsewhere

PATIENCE: Final = 900.0  # s; of a prompt that nobody would send again, for another program
PAUSE: Final = 0.2  # s between two looks at a transcript that keeps growing

log: Final = structlog.get_logger()


class OtherPrograms:
    """Looks for what other programs did with one session's conversation, one look at a time."""

    def __init__(
        self,
        state: SessionState,
        journal: ConversationsAndNotes,
        workers: Workers,
        transcripts: Transcripts,
        *,
        queue: TurnQueue,
        background: BackgroundTurns,
        permissions: Broker,
        locks: TurnLocks | None = None,
        policy: LostContext = LostContext.AUTO,
    ) -> None:
        self.context = SessionContext(state, journal, workers, transcripts, policy)
        self._state = state
        self._journal = journal
        self._workers = workers
        self._transcripts = transcripts
        self._queue = queue
        self._background = background
        self._permissions = permissions
        self._locks = locks
        self._lock = asyncio.Lock()
        self._tasks = Tasks()
        self._looking: asyncio.Task[None] | None = None  # as long as something changes
        self._end_watching: Callable[[], None] | None = None
        self._again = False  # something has changed since the last look began
        self._outdated = False  # the worker lacks turns of others
        self._replaced = False  # a transcript, since the worker had all that it holds
        self._missing: str | None = None  # Claude session in the row that has no transcript
        self._branched: Side | None = None  # whose turns Claude lacks, as the log says
        self._told: str | None = None  # as `_missing`; the log says so
        self._told_unread = False  # the log says that others' turns may be missing
        self._passed: str | None = None  # as `_missing`, when our newest prompt began
        # Others have written a missing one last; their transcripts may be elsewhere.
        self._apart = False
        self.waits = False  # for another program's turn

    def __bool__(self) -> bool:
        """Whether a look is going on or wanted."""
        return self._again or self._lock.locked()

    # --- when

    async def look(self, *, needed: bool = False) -> None:
        """Look now, to the end, also if the caller is cancelled. An error is logged; `needed`: raises
        StoreUnavailable if the look comes later.
        """
        await asyncio.shield(self._start(self._look(needed=needed)))

    async def look_if_possible(self) -> None:
        """Look unless the database cannot be written; a look that began goes on."""
        if writes.is_writable(self._journal):
            await writes.wait(self._journal, self._start(self._look()))

    async def before_prompt(self, *, patient: bool = False) -> None:
        """Take the conversation's lock and look. Replace the worker if it lacks turns of others,
        the transcript lacks its own, or its options are no longer the session's, once no turn that
        Claude began by itself runs on it.

        Raises WorkerFailed if another program keeps the lock, or Claude's memory is lost and has to
        be there, and StoreUnavailable.
        """
        await self._lock_conversation(PATIENCE if patient else 0)
        await self.look(needed=True)
        if not self._background:  # else Claude goes on after it
            await self.context.without_refused()
        if self._workers.is_live(self._state.id) and (why := await self._why_replace()):
            await self._background.over()
            log.info(why, action="worker_outdated", session=self._state.id)
            await self._workers.stop(self._state.id)
            await self.look(needed=True)  # as its CLI ended, it noted where the next one goes on
        self._outdated = self._replaced = self._state.superseded = False
        self._branched = None
        await self.context.before_launch()
        self._passed = self._missing
        if self._missing is not None and self._missing != self._told:
            self._told = self._missing
            self._state.unsaid += notes.transcript_missing(self._missing)

    async def _lock_conversation(self, patience: float) -> None:
        if self._locks is None:
            return
        name, self.waits = self._state.record.conversation_name, True
        try:
            await self._locks.acquire(name, self._say_it_waits, patience=patience)
        finally:
            self.waits = False

    async def before_early_start(self) -> bool:
        """Whether a worker may be started without a prompt: it has what was taken in until now, and
        what is to be said of a lost memory is said to a prompt.
        """
        if self._state.record.branch is not None or await self.context.loss() is not None:
            return False
        if await self.context.has_refused():
            return False
        await self.context.recover_notes()
        self._outdated = self._replaced = self._state.superseded = False
        return True

    async def _why_replace(self) -> str:
        """Why a worker that lives does not have the conversation as the next one will; empty if it
        has.
        """
        if self._outdated:
            return "The worker lacks turns of others"
        if self._state.superseded:
            return "The worker has other options than the session, or no login"
        if self._replaced and not await self.context.is_whole():
            return "Claude's transcript lacks turns that the worker has"
        return ""

    def _unfinished(self) -> set[str]:
        """Ids of the turns that Claude was given, or has begun by itself, and that have not ended."""
        given = {turn.turn_id for turn in self._queue.turns if turn.state in STARTED}
        return given.union(self._background)

    async def has_prompt(self, turn_id: str) -> bool:
        """Whether Claude's transcript has the prompt of this turn, after a look."""
        await self.look()
        record = self._state.record
        claude = record.claude_session_id or record.session_id
        return bool(await self._transcripts.holding(record, claude, [turn_id]))

    async def hold_lock(self, turn: Turn) -> None:
        """Have the conversation's lock, if it is free, while a turn of another daemon goes on."""
        if self._locks is None:
            return
        taking = self._start(self._locks.acquire(self._state.record.conversation_name))
        over = asyncio.create_task(turn.over(), name="turn-over")
        await asyncio.wait([taking, over], return_when=asyncio.FIRST_COMPLETED)
        if not taking.done():
            taking.cancel()
        elif taking.exception() is None:
            try:
                await over
            finally:
                self.unlock()

    def _say_it_waits(self, holder: str) -> None:
        said = notes.waits_for(str(uuid4()), holder)
        self._start(self._state.log.tell(said, patient=True))

    def unlock(self) -> None:
        """Release the conversation's lock."""
        if self._locks is not None:
            self._locks.release(self._state.record.conversation_name)

    def attend(self, *, attended: bool) -> None:
        """Watch the transcripts while a client is there."""
        if attended and self._end_watching is None:
            self._end_watching = self._transcripts.watch(self._state.id, self.changed)
        elif not attended and self._end_watching is not None:
            end, self._end_watching = self._end_watching, None
            end()

    def changed(self) -> None:
        """Look soon, unless a turn runs: then when it has ended, as this is mostly its own."""
        self._again = True
        if self._looking is None or self._looking.done():
            self._looking = self._start(self._look_while_it_changes())

    async def _look_while_it_changes(self) -> None:
        while self._again and not self._unfinished():
            await self._journal.writable()
            await self._look()
            await asyncio.sleep(PAUSE)

    def _start(self, looking: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._tasks.start(looking, name="look for other programs")
        task.add_done_callback(told_elsewhere)
        return task

    # --- what

    async def _look(self, *, needed: bool = False) -> None:
        async with self._lock:
            self._again = False
            try:
                await self._take_in()
            except StoreClosed:
                raise
            except Conflict as error:  # the session was deleted
                log.info("Turns of other programs are no longer looked for: the session was deleted",
                         action="look_later", error=str(error))  # fmt: skip
            except Exception as error:
                if isinstance(error, StoreUnavailable) and error.retryable:
                    log.info("Turns of other programs cannot be looked for now; tried again later",
                             action="look_later", error=str(error))  # fmt: skip
                    self.changed()
                    if needed:
                        raise
                    return
                log.exception("What other programs did could not be taken in",
                              action="look_failed", session=self._state.id)  # fmt: skip
                await self._say_so()

    async def _say_so(self) -> None:
        """Clients must not believe that they see everything."""
        if not self._told_unread:
            self._told_unread = True
            await self._state.log.tell(notes.not_looked(str(uuid4())), patient=True)

    async def _take_in(self) -> None:
        record = self._state.record
        known = await self._journal.followed(self._state.id)
        row = known.row
        claude = None if row is None else row.claude_session_id
        if claude is None and record.claude_session_id is None:
            return  # nobody has had a turn
        found = await self._transcripts.take_in(record, claude, own=self._unfinished())
        self._outdated = self._outdated or found.standing is RowStanding.MOVED_ON
        self._replaced = self._replaced or found.replaced
        self._state.log.publish([replace(one, imported=True) for one in found.logged])
        await self._permissions.withdraw_rewound()
        await self._entitle(found.logged)
        await self._rename(found)
        own = found.followed or record.claude_session_id
        if own is None and record.branch is None:
            own = claude
        ends = self._outdated and self._workers.is_live(self._state.id)  # before the next prompt
        lacking = [] if (later := ends and found.undecided) else found.notes
        if found.complete:
            self._told_unread = False
        else:
            await self._say_so()
        if lacking and found.standing is not RowStanding.SIDE:
            await self._say_that_it_lacks(lacking[0], found.lacks)
        self._missing = None
        if row is None or claude in (None, own):
            if row is not None and claude is not None and not known.is_current:
                await self._journal.follow_claude_session(self._state.id, row)
        elif found.standing is RowStanding.SIDE:
            log.info("A side turn was taken in", action="side_turn", session=self._state.id)
            if found.resumable:  # else others would have no memory at all
                await self._journal.put_right(self._state.id, row, own, lacking)
                lacking = []
        elif found.standing is RowStanding.MISSING:
            await self._go_past(row, own, found)
        if found.standing in (RowStanding.SIDE, RowStanding.MOVED_ON):
            self._apart = False
        for note in lacking:
            await self._journal.add_note(self._state.id, note)
        if not later:
            await self._transcripts.note_told(self._state.id)
        self._resume(own)

    async def _go_past(self, row: Conversation, own: str | None, found: Imported) -> None:
        """Once there was a turn of ours, others go on from that, as nobody can resume what has no
        transcript. Only once: others that write such a one again have their transcripts elsewhere.
        """
        self._missing = row.claude_session_id
        if self._missing == self._passed and found.resumable and not self._apart:
            log.info("A missing Claude session is given up",
                     action="row_corrected", session=self._state.id)  # fmt: skip
            await self._journal.put_right(self._state.id, row, own, [])
            self._missing, self._apart = None, True

    async def _say_that_it_lacks(self, note: Note, side: Side) -> None:
        """Once for each prompt, however often the branch grows, and again if it is another one."""
        pending = await self._journal.pending_notes(self._state.id)
        if self._branched is not side and all(one.note_id != note.note_id for one in pending):
            await self._state.log.tell(notes.branched(note.note_id, side), patient=True)
        self._branched = side

    def _resume(self, claude_session_id: str | None) -> None:
        if self._state.record.claude_session_id != claude_session_id:
            log.info(
                "The conversation was continued elsewhere",
                action="moved_on",
                session=self._state.id,
                claude_session=claude_session_id,
            )
        record = self._state.record
        record.claude_session_id = claude_session_id
        self._workers.set_resume(self._state.id, claude_session_id, record.branch)

    async def _entitle(self, logged: Collection[Logged]) -> None:
        """A conversation without a title has one from the first prompt that was taken in; what a
        user has given to a shell is none.
        """
        if not titling.lacks_words(self._state.record):
            return
        for one in logged:
            if isinstance(one.event, UserMessage) and not is_for_shell(one.event):
                if (title := titles.title([one.event.content])) is not None:
                    await self._state.log.tell([titling.changed(title, BY_WORDS)], patient=True)
                return

    async def _rename(self, found: Imported) -> None:
        """Take over the title that a person has given the session in a terminal. What an unread
        transcript says is older than what a person has said here.
        """
        title, record = titles.shorten(found.title or ""), self._state.record
        if title is None or title == record.title:
            return
        if found.title_is_new or record.title is None or record.title_by:
            await self._state.log.tell([TitleChanged(title)], patient=True)
