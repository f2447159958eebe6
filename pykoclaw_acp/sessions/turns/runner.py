"""One turn at a time: given to Claude, stopped, ended; and what is written down of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import structlog
from msgspec.structs import replace

from pykoclaw_acp import crash_points
from pykoclaw_acp.channel import long_prompt
from pykoclaw_acp.channel.frames import Interrupt, Prompt
from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.channel.steering import Steer
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import DamageMet, StoreClosed, WorkerFailed
from pykoclaw_acp.model import limit_waits, prompt_text
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.model.turns import Turn, TurnState
from pykoclaw_acp.retries import until_done
from pykoclaw_acp.sessions import contents
from pykoclaw_acp.sessions.choosing import Choosing
from pykoclaw_acp.sessions.directories import Directories, cwd_missing
from pykoclaw_acp.sessions.early_start import EarlyStart
from pykoclaw_acp.sessions.ports import Workers
from pykoclaw_acp.sessions.ports.journal import TurnsAndNotes
from pykoclaw_acp.sessions.session_environment import SessionEnvironment
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.sessions.turns import limits, outcomes, titling
from pykoclaw_acp.sessions.turns.attempts import Attempts
from pykoclaw_acp.sessions.turns.conversation import TurnConversation
from pykoclaw_acp.sessions.turns.endings import Endings
from pykoclaw_acp.sessions.turns.overdue import Overdue
from pykoclaw_acp.sessions.turns.slow_start import SlowStart
from pykoclaw_acp.sessions.turns.titling import Titling
from pykoclaw_acp.sessions.turns.unclaimed import Unclaimed
from pykoclaw_acp.sessions.workspace_gate import CHANGING, LOOKS, WorkspaceGate
from pykoclaw_acp.system import disks
from pykoclaw_acp.tasks import Tasks, in_pieces, told_elsewhere

T = TypeVar("T")

log: Final = structlog.get_logger()


class TurnRunner:
    """Runs a session's turns on its worker, one at a time."""

    def __init__(
        self,
        state: SessionState,
        journal: TurnsAndNotes,
        workers: Workers,
        *,
        overdue: Overdue,
        unclaimed: Unclaimed,
        gate: WorkspaceGate,
        endings: Endings,
        choosing: Choosing,
        environment: SessionEnvironment,
        titling: Titling,
        directories: Directories,
        others: TurnConversation,
        early: EarlyStart,
        slow: SlowStart,
    ) -> None:
        self._state = state
        self._journal = journal
        self._workers = workers
        self._overdue = overdue
        self._unclaimed = unclaimed
        self._gate = gate
        self._choosing = choosing
        self._environment = environment
        self._titling = titling
        self._directories = directories
        self._others = others
        self._early = early
        self._slow = slow
        self._endings = endings
        self.attempts = Attempts(journal)
        self._waited = False  # for the user, while others could use the conversation
        self._tasks = Tasks()

    async def run(self, turn: Turn) -> None:
        """Run a queued turn to its end, whatever happens."""
        try:
            await self._run(turn)
            await turn.over()
            self._titling.after(turn)
        finally:
            self._others.unlock()

    async def _run(self, turn: Turn) -> None:
        try:
            if not await self._unclaimed.wait_for_claim(turn):
                await self._end_unclaimed(turn)
            elif not turn.cancelled.is_set():
                await self._begin(turn)
            if turn.cancelled.is_set() and turn.state == TurnState.QUEUED:
                await self._endings.finish(turn, outcomes.CANCELLED)
        except StoreClosed:
            log.info("The turn is left to the next daemon", action="turn_left")
        except Exception as error:
            if outcomes.is_fault(turn, error):
                with contextlib.suppress(MemoryError):
                    log.exception("The turn could not be run", action="turn_broken")
            ending = partial(self._end_broken, turn, error)
            await until_done(ending, "A turn that could not be run could not be ended")

    async def _end_broken(self, turn: Turn, error: Exception) -> None:
        await self._endings.finish(turn, limits.again(outcomes.not_started(turn, error), turn))

    async def suspend(self, turns: Sequence[Turn]) -> None:
        """Start no worker any more, and count these turns as not being prepared."""
        self._early.suspend()
        for turn in turns:
            await self.attempts.pause(turn)

    async def send_prompt(self, turn: Turn, prompt: Prompt | None = None) -> None:
        """Let the prompt leave for the worker, which `prompt` may hold already; that it does is in
        the journal. One that is cancelled meanwhile ends instead, as does one that cannot be read.
        """
        turn.leaving = True
        try:
            try:
                frame = prompt or await self._frame(turn)
            except StoreClosed:
                raise
            except Exception as error:
                log.exception("The prompt could not be sent", action="prompt_unreadable")
                await self._endings.finish(turn, outcomes.not_started(turn, error))
                return
            if turn.cancelled.is_set():  # an interrupt would overtake the prompt
                await self._endings.finish(turn, outcomes.CANCELLED)
                return
        finally:
            turn.leaving = False
        try:
            await self._workers.send(self._state.id, frame)
        except ConnectionError:
            log.info("The worker died before the prompt left", action="prompt_not_sent")
        crash_points.reached("prompt_sent")

    async def _frame(self, turn: Turn) -> Prompt | Steer:
        """The frame of a prompt that leaves as the journal has it."""
        if turn.unsaid:
            blocks = prompt_text.for_claude(turn.content, remembers=True)
            blocks = await contents.whole(self._journal, blocks)
            return await in_pieces(outcomes.steer(self._state.epoch, turn, blocks))
        carried = await self._journal.carried_notes(turn.turn_id)
        return (await self._prompt(turn, carried))[0]

    async def _prompt(self, turn: Turn, notes: Sequence[Note]) -> tuple[Prompt, Sequence[Note]]:
        """The prompt's frame, and those of the notes that it carries."""
        record = self._state.record
        remembers = record.claude_session_id is not None or record.branch is not None
        blocks = prompt_text.for_claude(turn.content, remembers=remembers)
        blocks = await contents.whole(self._journal, blocks)
        blocks, carried = prompt_text.with_notes(blocks, notes)
        helper = turn.helper or record.auxiliary
        who = {"helper": helper, "links": self._state.opens_pages}
        frame = long_prompt.prompt(self._state.epoch, turn.turn_id, blocks, **who)
        return await in_pieces(frame), carried

    async def stop(self, turn: Turn) -> None:
        """Ask the worker to stop the turn, and kill it when it does not. Returns when the journal has
        that the worker was told, or can never have it, being damaged, or the turn has ended. One
        that has not got its prompt gets none.
        """
        if turn.state == TurnState.QUEUED or turn.leaving:
            await turn.over()
            return
        overdue = self._tasks.start(self._overdue.watch(turn))
        try:
            frame = Interrupt(epoch=self._state.epoch, turn_id=turn.turn_id)
            await self._workers.send(self._state.id, frame)
        except ConnectionError:
            overdue.cancel()
            await turn.over()
            return
        with contextlib.suppress(DamageMet, StoreClosed):  # the worker knows
            await self._journal.ask_cancel(turn.turn_id)

    async def _end_unclaimed(self, turn: Turn) -> None:
        given = turn.recovered and await self._others.has_prompt(turn.turn_id)
        shown = await self._is_shown(turn)
        outcome = outcomes.given_already() if given or shown else outcomes.not_begun(turn)
        await self._endings.finish(turn, outcome, shown=shown)

    async def _is_shown(self, turn: Turn) -> bool:
        """Whether the prompt was taken in from a transcript: Claude has had it, which a database does
        not know that was put back.
        """
        again = turn.recovered or limit_waits.goes_on_from(turn.keys.request) is not None
        return again and await self._journal.in_transcript(self._state.id, turn.turn_id)

    async def _begin(self, turn: Turn) -> None:
        """Have a worker, write down that the prompt leaves, let it leave."""
        await self.attempts.begin(turn)
        prepared = await self._prepare(turn)
        if prepared is None:
            return
        self._state.epoch, notes = prepared
        if await self._is_shown(turn):
            await self._endings.finish(turn, outcomes.given_already(), notes, shown=True)
            return
        await self.attempts.begin(turn)
        pending = await self._journal.pending_notes(self._state.id)
        prompt, carried = await self._prompt(turn, pending)
        notes = [*await self._gate.ends(turn, notes), *notes]
        self._gate.drop_request(turn)
        unsaid = list(self._state.unsaid)
        said = [*await in_pieces(outcomes.user_messages(turn)), *unsaid, *notes]
        said += titling.first(self._state.record, turn)
        seqs = await self._journal.dispatch(turn, self._state.epoch, said, carried)
        del self._state.unsaid[: len(unsaid)]
        turn.state, turn.leaving = TurnState.DISPATCHED, True
        self._state.log.committed(seqs, turn.turn_id, said)
        crash_points.reached("turn_dispatched")
        log.info("Turn dispatched", action="turn_dispatched", epoch=self._state.epoch)
        await self._choosing.tell_worker()
        await self.send_prompt(turn, prompt)
        if not self._workers.is_live(self._state.id) and not turn.ended.done():
            await self._endings.finish(
                turn, outcomes.lost(turn, ErrorKind.WORKER_LOST, "Claude's worker process died.")
            )

    async def _prepare(self, turn: Turn) -> tuple[int, list[Event]] | None:
        """Look at what others did and have a worker, anew if others could use the conversation in
        between. Returns what `_acquire` does; None if the turn is cancelled.
        """
        said: list[Event] = []
        forgot = False  # what Claude remembered
        while True:
            self._waited = False
            if self._early.runs:
                self._slow.watch(turn)
            # Before the look, so that this sees what such a worker lacks.
            await self._unless_cancelled(turn, self._early.over())
            self._slow.pause()
            if not await self._unless_cancelled(turn, self._look(turn)):
                return None
            try:
                acquired = await self._unless_cancelled(turn, self._acquire(turn))
            except WorkerFailed as failure:
                if forgot:
                    raise
                forgot = True
                await self._others.context.lost(failure)
                self._others.unlock()  # the next look takes it again
                continue
            if acquired is None:
                return None
            epoch, notes = acquired
            said += notes
            if not self._waited:
                return epoch, said

    async def _look(self, turn: Turn) -> bool:
        """Keep other programs from the conversation, take in what they did, and look at the
        directories.
        """
        await self._others.before_prompt(patient=turn.is_ours)
        await self._directories.before_prompt()
        return True

    async def _acquire(self, turn: Turn) -> tuple[int, list[Event]]:
        """Have a worker for which what acts in its directories counts as the user says. Returns its
        epoch, and notes for the log. Raises WorkerFailed, also if the directories keep changing
        while workers start.
        """
        notes: list[Event] = []
        await self._environment.returned(turn)
        for _ in range(LOOKS):
            self._slow.pause()
            wanted = self._environment.options(turn.given)
            options, noted = await self._gate.admit(turn, wanted, self._pause_soon)
            notes += noted
            self._environment.retire_other(options)
            launched = self._workers.workspace(self._state.id) != options.workspace
            self._slow.watch(turn)
            epoch = await self._workers.acquire(self._state.id, options)
            crash_points.reached("worker_acquired")
            if contents.needs_blocks(turn.content) and not self._workers.takes_blocks(
                self._state.id
            ):
                self._workers.retire(self._state.id)  # an earlier version's
                continue
            if not launched or (
                await self._gate.unchanged() and await self._gate.counts_as_before()
            ):
                return epoch, notes
        raise WorkerFailed(ErrorKind.WORKSPACE_CHANGING, CHANGING)

    async def completed(self, options: WorkerOptions) -> WorkerOptions:
        """The options with what the database has for a worker that is launched now, whoever waits for
        it when it is ready. Raises WorkerFailed.
        """
        try:
            path = await disks.call(options.cwd, partial(os.path.realpath, options.cwd))
        except TimeoutError as error:
            raise WorkerFailed(
                ErrorKind.CWD_MISSING, cwd_missing(options.cwd, disks.SILENT)
            ) from error
        rules = () if options.restricted else await self._journal.rules(path, self._state.id)
        plan = await self._state.log.plan()
        self._environment.note_launched(options)
        return replace(options, plan=plan, rules=rules)

    async def _unless_cancelled(self, turn: Turn, doing: Coroutine[Any, Any, T]) -> T | None:
        """The result of `doing`; None, and it is given up, if the turn is cancelled first."""
        task = asyncio.create_task(doing, name="unless-cancelled")
        task.add_done_callback(told_elsewhere)
        cancelled = asyncio.create_task(turn.cancelled.wait(), name="turn-cancelled")
        try:
            await asyncio.wait([task, cancelled], return_when=asyncio.FIRST_COMPLETED)
        finally:
            cancelled.cancel()
            if not task.done():
                task.cancel()
        return None if turn.cancelled.is_set() else task.result()

    def _pause_soon(self, turn: Turn) -> None:
        self._waited = True
        self._others.unlock()
        self._tasks.start(self.attempts.pause(turn))
