"""One worker's life: launched or adopted, ready, listened to, then left to the next daemon, or lost
and cleaned up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from pykoclaw_acp import crash_points
from pykoclaw_acp.channel.frames import (
    PROTOCOL,
    Ack,
    FromWorker,
    Hello,
    Numbered,
    Ping,
    Ready,
    Stop,
    ToWorker,
)
from pykoclaw_acp.channel.processes import WorkerRecord
from pykoclaw_acp.channel.spec import LaunchSpec, WorkerIdentity
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import LaunchFailed, StaleEpoch, StoreClosed, WorkerFailed
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.pool import ending
from pykoclaw_acp.pool.callers import Caller
from pykoclaw_acp.pool.frame_dispatch import FrameDispatch
from pykoclaw_acp.pool.inbox import Inbox
from pykoclaw_acp.pool.launcher import Launcher
from pykoclaw_acp.pool.listener import WorkerListener
from pykoclaw_acp.pool.liveness import Liveness
from pykoclaw_acp.pool.occupation import Occupation
from pykoclaw_acp.pool.ports import CallTaker, PoolLimits, WorkerStore
from pykoclaw_acp.pool.process import KILL_AFTER, LaunchedWorker
from pykoclaw_acp.system import memory

SPOOL_WAIT: Final = 10.0  # s; for a worker that writes to its spool what nobody takes, and ends
# s; for what a dead worker left; the CLI ends its tools on SIGTERM, usually in 35 ms
CLEAN_UP_GRACE: Final = 1.5
HURRIED_GRACE: Final = 0.3  # s; as long as that while the server stops
DIED: Final = TurnFailure(ErrorKind.WORKER_LOST, "Claude's worker process died.")
STOPPED: Final = TurnFailure(ErrorKind.STOPPED, "Claude's worker was stopped.")
REPLACED: Final = TurnFailure(ErrorKind.WORKER_LOST, "Claude's worker was replaced by a newer one.")

log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class PoolContext:
    """What all workers of a pool share; `changed` is called when a worker may have become idle, or
    is gone.
    """

    launcher: Launcher
    store: WorkerStore
    listener: WorkerListener
    limits: PoolLimits
    changed: Callable[[WorkerLife], None]
    database: CallTaker | None = None  # for tools and plugins


class WorkerLife:
    """A worker from its launch, or its adoption, to the end of its clean-up; `live()` is that whole
    time.
    """

    def __init__(self, begin: LaunchSpec | WorkerRecord, context: PoolContext) -> None:
        self.spec: WorkerIdentity = begin.identity if isinstance(begin, WorkerRecord) else begin
        self.ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self.ready.add_done_callback(lambda future: future.cancelled() or future.exception())
        self.cleaned = asyncio.Event()
        self.adopted = isinstance(begin, WorkerRecord)  # an earlier daemon launched it
        self.occupation = Occupation(lambda: context.changed(self))
        self.stopping = False
        self.idle_since = 0.0
        self.idle_timer: asyncio.TimerHandle | None = None
        self._begin = begin
        self._context = context
        self._process = LaunchedWorker(begin, context.launcher, context.store)
        acked = begin.acked_frame if isinstance(begin, WorkerRecord) else 0
        self._inbox = Inbox(self.spec.epoch, acked, self.occupation)
        self._failure: TurnFailure | None = None  # why it is gone
        self._detached = False
        self._hurry = False
        self._hooks = False  # whether they may run at its end
        self._liveness = Liveness(context.limits.stall_timeout, self.kill)
        self._caller = Caller(context.database, self.send)
        self._kills = memory.KillWatch()
        self._dispatch = FrameDispatch(
            self.spec, self._liveness, self._caller, context.listener, self._kills
        )

    # --- its state

    @property
    def recorded(self) -> bool:
        """Whether its row is written; until then nobody listens to it."""
        return self._process.recorded

    @property
    def workspace(self) -> str | None:
        """The `workspace` of its options; None: it was launched by a version that does not know."""
        begin = self._begin
        return begin.workspace if isinstance(begin, WorkerRecord) else begin.options.workspace

    @property
    def foreign(self) -> bool:
        """Whether it lives, and speaks another version of the protocol: it gets no prompt."""
        return self._inbox.foreign and self._failure is None

    @property
    def usable(self) -> bool:
        """Whether it takes prompts, or will when it is ready."""
        lost = self._failure is not None or self._inbox.last_words is not None
        return not self.stopping and not lost and not self.foreign

    @property
    def answers(self) -> bool:
        """Whether it has answered Hello; it is ready when its earlier frames are committed, and
        what it missed is made up for.
        """
        return self._inbox.greeted or self.ready.done()

    @property
    def takes_blocks(self) -> bool:
        """Whether it is ready, and takes all kinds of content blocks."""
        return self.ready.done() and not self.ready.exception() and self.ready.result().blocks

    @property
    def idle(self) -> bool:
        """Whether it is ready, and has neither a turn nor background work."""
        return self.usable and not self.occupation and self.ready.done()

    @property
    def spent(self) -> bool:
        """Whether it is foreign, and its work is done."""
        return self.foreign and not self.stopping and not self.occupation

    @property
    def start_failure(self) -> str | None:
        """Why it never became ready; None if it did, was stopped, or was adopted."""
        if self.stopping or self.adopted:
            return None
        if not self.ready.done() or self.ready.cancelled():
            return None
        failure = self.ready.exception()
        return None if failure is None else str(failure)

    # --- its life

    async def live(self) -> None:
        """Launch or adopt it, listen until it is gone, clean up; if it was detached, leave it to
        the next daemon.
        """
        structlog.contextvars.bind_contextvars(session=self.spec.session_id, epoch=self.spec.epoch)
        failure = DIED
        try:
            failure = await self._run()
        finally:
            if self._detached:
                await asyncio.shield(self._leave())
            else:
                if failure.kind == DIED.kind and self._kills.lately:
                    failure = TurnFailure(ErrorKind.OUT_OF_MEMORY, memory.KILLED)
                self._failure = STOPPED if self.stopping else failure
                if (left := await asyncio.shield(self._end())) is not None:
                    await ending.clean_up_later(left)

    async def _run(self) -> TurnFailure:
        """Launch or adopt it, take what it says; returns why it is gone, unless it says so itself."""
        watching: asyncio.Task[None] | None = None
        try:
            if self.adopted:
                asyncio.get_running_loop().call_later(
                    self._context.limits.worker_start_timeout, self._require_ready
                )
            channel = await self._process.open(self._inbox.committed)
            await channel.send(self._hello())
            if self.stopping:
                await channel.send(Stop(epoch=self.spec.epoch, hooks=self._hooks))
            watching = asyncio.get_running_loop().create_task(
                self._liveness.watch(), name="watch-worker"
            )
            async for batch in channel.batches():
                with self._liveness.processing():
                    await self._take(batch)
        except LaunchFailed as error:
            said = f"Claude's worker could not be launched: {error.message}"
            return TurnFailure(error.kind, said)
        except ConnectionError:
            pass
        except StoreClosed:
            self._detached = True
        except StaleEpoch:
            log.warning("A worker that is not the newest was ended", action="worker_stale")
            self.kill()
            return REPLACED
        except Exception as error:
            # A frame that cannot be kept must not be acknowledged: end the worker, fail the turn.
            log.exception("The worker's frames could not be taken", action="frames_failed")
            self.kill()
            return ending.not_recorded(error)
        finally:
            if watching is not None:
                watching.cancel()
            self._caller.gone()
        return DIED

    def _require_ready(self) -> None:
        if not self.answers:
            log.warning(
                "An adopted worker does not answer",
                action="worker_silent",
                session=self.spec.session_id,
            )
            self.kill()

    # --- commands

    async def send(self, frame: ToWorker) -> None:
        """Write a frame; raises ConnectionError when the worker is gone or of another epoch."""
        await self._process.send(frame)

    async def ping(self) -> bool:
        """Wait for a sign of life; False if the worker ends instead. A killed one looks alive for
        some milliseconds.
        """
        return await self._liveness.ping(self.send(Ping(epoch=self.spec.epoch)))

    def detach(self) -> None:
        """Leave the worker to the next daemon: `live()` returns when what was received is
        committed.
        """
        self._detached = True
        self._process.detach()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    async def stop(self, grace: float, *, hurry: bool = False) -> None:
        """Ask it to stop, after `grace` (s) terminate it, then kill it; wait for its clean-up."""
        self.stopping = True
        self._hurry = hurry
        asked = self._context.listener.hooks_may_run(self.spec.session_id, self.workspace)
        self._hooks = await ending.hooks_may_run(asked, grace / 2)
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(grace):
                await self.send(Stop(epoch=self.spec.epoch, hooks=self._hooks))
        await self._process.terminate(grace, self.cleaned)
        await self.cleaned.wait()

    # --- what it says

    def _hello(self) -> Hello:
        limits = self._context.limits
        return Hello(
            epoch=self.spec.epoch,
            after=self._inbox.committed,
            protocol=PROTOCOL,
            data=limits.data,
            database=self._context.database is not None,
            scheduler=limits.scheduler,
        )

    async def _take(self, batch: list[FromWorker]) -> None:
        """Commit what is new, then acknowledge it."""
        self._dispatch.take(batch)
        for frames in self._inbox.split(self._inbox.sort(batch)):
            if frames:
                await self._commit(frames)
            if (ready := self._inbox.take_greeting()) is not None:
                await self._become_ready(ready)

    async def _commit(self, frames: list[Numbered]) -> None:
        crash_points.reached("frames_received")
        await self._context.listener.frames(self.spec.session_id, self.spec.epoch, frames)
        crash_points.reached("frames_committed")
        self._inbox.committed = frames[-1].n
        await asyncio.sleep(0)  # clients are shown it first
        # What a dead worker sent before is still to be read
        with contextlib.suppress(ConnectionError):
            await self.send(Ack(epoch=self.spec.epoch, upto=self._inbox.committed))
        crash_points.reached("frames_acknowledged")

    async def _become_ready(self, ready: Ready) -> None:
        if self.adopted:
            if self.foreign:
                log.warning(
                    "The worker is of another version",
                    action="worker_foreign",
                    protocol=ready.protocol,
                )
            await self._context.listener.adopted(self.spec.session_id, ready, foreign=self.foreign)
        if not self.ready.done():
            self.ready.set_result(ready)
            launched = self._begin if isinstance(self._begin, LaunchSpec) else None
            self._context.listener.ready(self.spec.session_id, ready.offer, launched)
        self._context.changed(self)

    # --- its end

    async def _end(self) -> ending.CleanUp | None:
        """Clean up, whatever fails; returns what is to be tried again, beside the next worker."""
        spec, context = self.spec, self._context
        # one that was adopted, and has not answered, may be about to end by itself
        adopted = self.adopted and not self.ready.done()
        await self._process.end(self.cleaned, SPOOL_WAIT if adopted else KILL_AFTER)
        taken = await self._take_spool()
        failure = self._inbox.last_words or self._failure or DIED
        if not self.ready.done():
            self.ready.set_exception(WorkerFailed(failure.kind, failure.message))
        log.info("Worker gone", action="worker_gone", reason=failure.kind, stopped=self.stopping)
        await ending.tell(spec, failure, context.listener)
        grace = HURRIED_GRACE if self._hurry else CLEAN_UP_GRACE
        left = await ending.clean_up(spec, context.launcher, grace, keep_spool=not taken)
        if taken:  # else its row keeps the session from having another one
            await ending.record(spec, context.store)
        await self._process.close()
        self.occupation.close()
        self.cleaned.set()
        context.changed(self)
        self._liveness.ended()
        return left

    async def _take_spool(self) -> bool:
        """Commit the frames of its spool; False if that is left to the next start."""
        self._inbox.foreign = True  # the spool does not say which version wrote it
        try:
            await self._context.launcher.deliver_spool(self.spec, self._inbox.committed, self._take)
        except Exception as error:
            hopeless = isinstance(error, (ValueError, *ending.HOPELESS))
            log.exception(
                "A dead worker's spool could not be taken", action="spool_failed", kept=not hopeless
            )
            return hopeless
        return True

    async def _leave(self) -> None:
        await self._process.close()
        self._liveness.ended()
        log.info("Worker left to the next daemon", action="worker_left")
