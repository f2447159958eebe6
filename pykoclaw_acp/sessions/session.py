"""A session in this process: its queue of turns, the end of its log, its clients, its questions."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Coroutine, Sequence
from typing import Any, Final

import structlog

from pykoclaw_acp.ops import steps
from pykoclaw_acp.sessions import endings
from pykoclaw_acp.sessions.attachment import Attachment
from pykoclaw_acp.sessions.events import Event, OpenTools, ToolEnded, encode
from pykoclaw_acp.sessions.model import Outcome, SessionRecord, Turn, TurnTimes
from pykoclaw_acp.sessions.ports import Client, Journal, Logged, WorkerFailed, Workers, WorkerWish
from pykoclaw_acp.sessions.questions import Questions
from pykoclaw_acp.sessions.tail import Tail
from pykoclaw_acp.worker.frames import (
    Ask,
    AskWithdrawn,
    EventFrame,
    Interrupt,
    Numbered,
    Prompt,
    TurnEnded,
    TurnStarted,
)

log: Final = structlog.get_logger()


class Session:
    """The one owner of a session's turns and log. Turns run one at a time, in the order of their prompts."""

    def __init__(
        self, record: SessionRecord, wish: WorkerWish, journal: Journal, workers: Workers, times: TurnTimes
    ) -> None:
        self.id = record.session_id
        self.record = record
        self.wish = wish
        self.attachments: list[Attachment] = []
        self._journal = journal
        self._workers = workers
        self._cancel_grace = times.cancel_grace
        self._tail = Tail()
        self._open_tools = OpenTools()
        self._background: set[str] = set()
        self._worker_outdated = False
        self._news = asyncio.Event()
        self._queue: deque[Turn] = deque()
        self._current: Turn | None = None
        self._epoch = 0
        self._runner: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._questions = Questions(self, journal, workers, times.permission_timeout)

    # --- clients and log --------------------------------------------------------------------------------------------

    @property
    def last_seq(self) -> int:
        """The newest event's place in the log."""
        return self.record.last_seq

    def attach(self, client: Client, after: int) -> Attachment:
        """Deliver everything after `after` to this client, from now on."""
        attachment = Attachment(self, client, after)
        self.attachments.append(attachment)
        self._questions.attached(attachment)
        return attachment

    def queued(self, turn_ids: set[str]) -> set[str]:
        """Which of these turns still wait, so that their messages are not in the log yet."""
        return {turn.turn_id for turn in self._queue if turn.turn_id in turn_ids}

    def detach(self, attachment: Attachment) -> None:
        """The client is no longer interested."""
        if attachment in self.attachments:
            self.attachments.remove(attachment)

    async def read_after(self, cursor: int, limit: int) -> list[Logged]:
        """The next events after the cursor; waits until there are any."""
        while cursor >= self.last_seq:
            await self._news.wait()
        if recent := self._tail.after(cursor, limit):
            return recent
        end = self.last_seq
        return await self._journal.read(self.id, cursor, limit) or [Logged(end, None, None)]

    def _publish(self, logged: Sequence[Logged]) -> None:
        if not logged:
            return
        for one in logged:
            self._open_tools.follow(one.event)
        self._tail.extend(logged)
        self.record.last_seq = max(self.record.last_seq, logged[-1].seq)
        self._news.set()
        self._news = asyncio.Event()

    # --- turns ------------------------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """A turn runs or waits."""
        return self._runner is not None

    async def submit(self, turn: Turn, author: Attachment) -> None:
        """Accept a prompt: when this returns it is in the journal, and it will run."""
        await self._journal.accept(turn)
        steps.reached("turn_queued")
        author.own.add(turn.turn_id)
        if turn.cancelled.is_set():
            await self._finish(turn, Outcome("cancelled", stop_reason="cancelled"))
            return
        self._queue.append(turn)
        log.info("Turn queued", action="turn_queued", session=self.id, turn=turn.turn_id)
        if self._runner is None:
            self._runner = asyncio.get_running_loop().create_task(self._run_queue())

    def cancel(self, turn: Turn | None = None) -> None:
        """Stop this turn, or all that run or wait: each ends `cancelled`."""
        wanted = [turn] if turn is not None else [*self._queue, *([self._current] if self._current else [])]
        for one in wanted:
            if one.ended.done() or one.cancelled.is_set():
                continue
            one.cancelled.set()
            log.info("Turn cancelled", action="turn_cancelled", session=self.id, turn=one.turn_id)
            if one is self._current:
                self._spawn(self._interrupt(one))
            elif one in self._queue:
                self._queue.remove(one)
                self._spawn(self._finish(one, Outcome("cancelled", stop_reason="cancelled")))
        for turn_id in self._background if turn is None else ():
            self._spawn(self._interrupt_background(turn_id))

    async def idle(self) -> None:
        """Wait until no turn runs or waits."""
        while self._runner is not None:
            await asyncio.wait([self._runner])

    async def _run_queue(self) -> None:
        try:
            while self._queue:
                turn = self._current = self._queue.popleft()
                with structlog.contextvars.bound_contextvars(session=self.id, turn=turn.turn_id):
                    await self._run(turn)
                self._current = None
        finally:
            self._current = None
            self._runner = None
            self._workers.release(self.id)
            if self._worker_outdated:
                self._worker_outdated = False
                self._workers.retire(self.id)

    def change_worker(self, wish: WorkerWish) -> None:
        """From the next worker on; the one that there is ends as soon as nothing runs on it."""
        self.wish = wish
        if self.busy:
            self._worker_outdated = True
        else:
            self._workers.retire(self.id)

    async def _run(self, turn: Turn) -> None:
        try:
            if not turn.cancelled.is_set():
                await self._begin(turn)
            if turn.cancelled.is_set() and turn.state == "queued":
                await self._finish(turn, Outcome("cancelled", stop_reason="cancelled"))
        except WorkerFailed as failure:
            await self._finish(turn, endings.not_started(turn, failure.kind, failure.message))
        except Exception:
            log.exception("The turn could not be run", action="turn_broken")
            await self._finish(turn, endings.not_started(turn, "internal", endings.INTERNAL))
        await asyncio.wait([turn.ended])

    async def _begin(self, turn: Turn) -> None:
        """Have a worker, write down that the prompt leaves, let it leave."""
        acquiring = asyncio.ensure_future(self._workers.acquire(self.wish))
        acquiring.add_done_callback(lambda done: done.cancelled() or done.exception())
        cancelled = asyncio.ensure_future(turn.cancelled.wait())
        await asyncio.wait([acquiring, cancelled], return_when=asyncio.FIRST_COMPLETED)
        cancelled.cancel()
        if turn.cancelled.is_set():
            acquiring.cancel()
            return
        self._epoch = acquiring.result()
        said = endings.user_messages(turn)
        seqs = await self._journal.dispatch(turn, self._epoch, said)
        turn.state = "dispatched"
        self._publish(_logged(seqs, turn.turn_id, said))
        steps.reached("turn_dispatched")
        log.info("Turn dispatched", action="turn_dispatched", epoch=self._epoch)
        if turn.cancelled.is_set():  # during the commit; the prompt has not left
            await self._finish(turn, Outcome("cancelled", stop_reason="cancelled"))
            return
        try:
            await self._workers.send(self.id, Prompt(epoch=self._epoch, turn_id=turn.turn_id, content=turn.content))
        except ConnectionError:
            log.info("The worker died before the prompt left", action="prompt_not_sent")
        steps.reached("prompt_sent")
        if not self._workers.is_live(self.id) and not turn.ended.done():
            await self._finish(turn, endings.lost(turn, "worker_lost", "Claude's worker process died."))

    async def _interrupt(self, turn: Turn) -> None:
        """Ask the worker to stop; kill it when it does not."""
        if turn.state == "queued":
            return
        try:
            await self._workers.send(self.id, Interrupt(epoch=self._epoch, turn_id=turn.turn_id))
            await asyncio.wait([turn.ended], timeout=self._cancel_grace)
        except ConnectionError:
            return
        if not turn.ended.done():
            log.warning("The turn did not stop; its worker is killed", action="cancel_overdue", turn=turn.turn_id)
            self._workers.kill(self.id)

    async def _interrupt_background(self, turn_id: str) -> None:
        with contextlib.suppress(ConnectionError):
            await self._workers.send(self.id, Interrupt(epoch=self._epoch, turn_id=turn_id))

    async def _finish(self, turn: Turn, outcome: Outcome, more: Sequence[Event] = ()) -> None:
        """End a turn that no worker ends, saying so in the log."""
        if turn.ended.done() or turn.ending:
            return
        turn.ending = True
        said = endings.user_messages(turn) if turn.state == "queued" else []
        events = [*said, *more, *endings.failure(turn.turn_id, outcome)]
        try:
            await self._end(turn.turn_id, outcome, events)
        except Exception:
            log.exception("The turn's end could not be recorded", action="turn_end_lost")
        self._resolve(turn, outcome)

    def _resolve(self, turn: Turn, outcome: Outcome) -> None:
        turn.state = outcome.state
        if not turn.ended.done():
            turn.ended.set_result((outcome, self.last_seq))
            steps.reached("turn_end_committed")
            kind = outcome.fault.kind if outcome.fault else outcome.stop_reason
            log.info("Turn ended", action="turn_ended", turn=turn.turn_id, state=outcome.state, reason=kind)

    # --- from the worker --------------------------------------------------------------------------------------------

    async def frames(self, epoch: int, frames: Sequence[Numbered]) -> None:
        """Commit a worker's frames, then tell everybody."""
        outcomes: dict[str, Outcome] = {}
        for frame in frames:
            if isinstance(frame, EventFrame) and self._current and frame.turn_id == self._current.turn_id:
                self._current.spoke = True
            elif isinstance(frame, TurnEnded):
                turn = self._current if self._current and self._current.turn_id == frame.turn_id else None
                outcomes[frame.turn_id] = endings.of_frame(frame, cancelled=bool(turn and turn.cancelled.is_set()))
        logged = await self._journal.record(self.id, epoch, frames, outcomes)
        self._publish(logged)
        for frame in frames:
            if isinstance(frame, Ask):
                self._questions.open(epoch, frame, self.last_seq)
            elif isinstance(frame, AskWithdrawn):
                self._questions.withdraw(frame.ask_id)
            elif isinstance(frame, TurnStarted) and frame.background:
                self._epoch = epoch
                self._background.add(frame.turn_id)
        for turn_id, outcome in outcomes.items():
            self._background.discard(turn_id)
            self._workers.set_resume(self.id, outcome.claude_session_id)
            if self._current is not None and self._current.turn_id == turn_id:
                self._resolve(self._current, outcome)

    async def lost(self, epoch: int, kind: str, message: str) -> None:
        """The worker is gone: what it was doing ends now, in words."""
        closed: list[Event] = [ToolEnded(tool, "failed") for tool in self._open_tools]
        background, self._background = self._background, set()
        turn = self._current
        if turn is not None and turn.state != "queued" and epoch == self._epoch:
            await self._finish(turn, endings.lost(turn, kind, message), closed)
            closed = []
        for turn_id in background:
            outcome = endings.background_lost(message)
            await self._end(turn_id, outcome, [*closed, *endings.failure(turn_id, outcome)])
            closed = []
        if closed:
            self._publish(_logged(await self._journal.append(self.id, closed), None, closed))
        await self._questions.withdraw_all()

    async def _end(self, turn_id: str, outcome: Outcome, events: Sequence[Event]) -> None:
        """Write down the end of a turn that no worker ends, and show what is said about it."""
        seqs = await self._journal.finish(self.id, turn_id, outcome, events)
        self._publish(_logged(seqs, turn_id, events))

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _logged(seqs: Sequence[int], turn_id: str | None, events: Sequence[Event]) -> list[Logged]:
    return [Logged(seq, turn_id, event, len(encode(event))) for seq, event in zip(seqs, events, strict=True)]
