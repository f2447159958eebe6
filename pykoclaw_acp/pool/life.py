"""One worker's life: launched or adopted, ready, listened to, then left to the next daemon, or lost and cleaned up."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog

from pykoclaw_acp import crash_points
from pykoclaw_acp.channel.frames import (
    PROTOCOL,
    Ack,
    Background,
    FromWorker,
    Heartbeat,
    Hello,
    Lost,
    Numbered,
    Ping,
    Place,
    Pong,
    Ready,
    Skipped,
    Stop,
    ToWorker,
    check_order,
)
from pykoclaw_acp.channel.processes import WorkerRecord
from pykoclaw_acp.channel.spec import LaunchSpec, WorkerIdentity
from pykoclaw_acp.errors import Conflict, LaunchFailed, RowRefused, StaleEpoch, StoreClosed, WorkerFailed
from pykoclaw_acp.pool.launcher import Channel, Launcher
from pykoclaw_acp.pool.listener import WorkerListener
from pykoclaw_acp.pool.liveness import Liveness
from pykoclaw_acp.pool.ports import Ledger, PoolLimits
from pykoclaw_acp.retries import until_done
from pykoclaw_acp.system import memory, shortage

KILL_AFTER: Final = 0.5  # s after SIGTERM
BEQUEATH_WAIT: Final = 10.0  # s; for a worker that writes to its spool what nobody takes, and ends
HOPELESS: Final = (Conflict, RowRefused)  # the next try would meet them as well
TERM_GRACE: Final = 1.5  # s; for what a dead worker left; the CLI ends its tools on SIGTERM, usually in 35 ms
HURRY: Final = 0.3  # s; the same while the server stops

log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a worker's life needs; `changed` is called whenever the worker may have become idle, or is gone."""

    launcher: Launcher
    ledger: Ledger
    listener: WorkerListener
    limits: PoolLimits
    changed: Callable[[WorkerLife], None]


class WorkerLife:
    """A worker from its launch, or its adoption, to the end of its clean-up; `live()` is that whole time."""

    def __init__(self, begin: LaunchSpec | WorkerRecord, around: Surroundings) -> None:
        self.spec: WorkerIdentity = begin.identity if isinstance(begin, WorkerRecord) else begin
        self.ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self.ready.add_done_callback(lambda future: future.cancelled() or future.exception())
        self.cleaned = asyncio.Event()
        self.busy = True
        self.stopping = False
        self.idle_since = 0.0
        self.idle_timer: asyncio.TimerHandle | None = None
        self._begin = begin
        self._around = around
        self._channel: Channel | None = None
        self._background = 0
        self._frame = begin.acked_frame if isinstance(begin, WorkerRecord) else 0
        self._lost: Lost | None = None
        self.foreign = False
        self.recorded = isinstance(begin, WorkerRecord)  # its row is written; until then nobody listens to it
        self._left_alone = False
        self._hurry = False
        self._greeting: Ready | None = None  # to be taken after the frames that the worker had told before
        self._liveness = Liveness(around.limits.stall_timeout, self.kill)

    @property
    def workspace(self) -> str | None:
        """The `workspace` of its options; None: it was launched by a version that does not know."""
        begin = self._begin
        return begin.workspace if isinstance(begin, WorkerRecord) else begin.options.workspace

    @property
    def usable(self) -> bool:
        """It takes prompts, or will when it is ready."""
        return not self.stopping and self._lost is None and not self.foreign

    @property
    def answers(self) -> bool:
        """It has answered its Hello; it is ready as soon as what it had told before is in the log."""
        return self._greeting is not None or self.ready.done()

    @property
    def start_failure(self) -> str | None:
        """Why it never became ready, if nobody wanted it to end; None also for one that another daemon launched."""
        if self.stopping or isinstance(self._begin, WorkerRecord) or not self.ready.done() or self.ready.cancelled():
            return None
        failure = self.ready.exception()
        return None if failure is None else str(failure)

    @property
    def spent(self) -> bool:
        """It speaks another version of the protocol, and what it had to do is done."""
        return self.foreign and not self.stopping and not self.busy and not self._background

    @property
    def idle(self) -> bool:
        """It is ready, and has neither a turn nor background work."""
        return self.usable and not self.busy and not self._background and self.ready.done()

    async def live(self) -> None:
        """Launch or adopt, listen, tell its end, clean up; or leave it alone when it was detached."""
        spec = self.spec
        structlog.contextvars.bind_contextvars(session=spec.session_id, epoch=spec.epoch)
        kind, message = "worker_lost", "Claude's worker process died."
        watching: asyncio.Task[None] | None = None
        kills = memory.kills()
        try:
            self._channel = await self._open()
            await self._channel.send(self._hello())
            if self.stopping:
                await self._channel.send(Stop(epoch=spec.epoch))
            watching = asyncio.get_running_loop().create_task(self._liveness.watch())
            async for batch in self._channel.batches():
                with self._liveness.sign():
                    await self._take(batch)
        except LaunchFailed as error:
            kind, message = error.kind, f"Claude's worker could not be launched: {error}"
        except ConnectionError:
            pass
        except StoreClosed:
            self._left_alone = True
        except StaleEpoch:
            log.warning("A worker that is not the newest was ended", action="worker_stale")
            message = "Claude's worker was replaced by a newer one."
            self.kill()
        except Exception as error:
            # A frame that cannot be kept must not be acknowledged: its worker ends, and the turn says so.
            log.exception("The worker's frames could not be taken", action="frames_failed")
            kind, message = "internal", "The answer could not be recorded; the log of pykoclaw-acp says why."
            if (found := shortage.of(error)) is not None:
                kind, message = found[0], f"Claude's worker could not go on: {found[1]}"
            self.kill()
        finally:
            if watching is not None:
                watching.cancel()
            if self._left_alone:
                await asyncio.shield(self._leave())
            else:
                if self._lost is None and kind == "worker_lost" and memory.kills() > kills:
                    kind, message = "out_of_memory", memory.KILLED
                if self._lost is None:
                    self._lost = Lost(epoch=spec.epoch, kind="stopped" if self.stopping else kind, message=message)
                await asyncio.shield(self._end())
            self._liveness.ended()

    def _hello(self) -> Hello:
        return Hello(epoch=self.spec.epoch, after=self._frame, protocol=PROTOCOL, data=self._around.limits.data)

    async def _open(self) -> Channel:
        if isinstance(self._begin, WorkerRecord):
            asyncio.get_running_loop().call_later(self._around.limits.worker_start_timeout, self._require_ready)
            try:
                channel = await self._around.launcher.attach(self._begin)
            except LaunchFailed as error:
                raise ConnectionError(str(error)) from error
            structlog.contextvars.bind_contextvars(**channel.labels)
            crash_points.reached("worker_attached")
            log.info("Worker adopted", action="worker_adopted", after=self._frame)
            return channel
        channel = self._channel = await self._around.launcher.launch(self._begin)
        crash_points.reached("worker_launched")
        structlog.contextvars.bind_contextvars(**channel.labels)
        await self._around.ledger.worker_started(self._begin, channel.handle)
        self.recorded = True
        crash_points.reached("worker_recorded")
        log.info("Worker launched", action="worker_launched", resume=self._begin.resume_session_id is not None)
        return channel

    def _require_ready(self) -> None:
        if not self.answers:
            log.warning("An adopted worker does not answer", action="worker_silent", session=self.spec.session_id)
            self.kill()

    def detach(self) -> None:
        """Take what was received, then leave the worker to the next daemon: `live()` returns."""
        self._left_alone = True
        if self._channel is not None:
            self._channel.detach()

    async def send(self, frame: ToWorker) -> None:
        """Write a frame; raises ConnectionError when the worker is gone or of another epoch."""
        if self._channel is None or self.spec.epoch != frame.epoch:
            raise ConnectionError("the worker is gone")
        await self._channel.send(frame)

    async def responds(self) -> bool:
        """Ask for a sign of life; False when the worker ends instead. One that was killed looks alive for a while."""
        return await self._liveness.ask(self.send(Ping(epoch=self.spec.epoch)))

    def kill(self) -> None:
        """End the process at once."""
        if self._channel is not None:
            self._channel.kill()

    async def stop(self, grace: float, *, hurry: bool = False) -> None:
        """Ask it to stop, SIGTERM after `grace` (s), SIGKILL: until it is gone and cleaned up."""
        self.stopping = True
        self._hurry = hurry
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(grace):
                await self.send(Stop(epoch=self.spec.epoch))
        if not await self._ended_within(grace):
            if self._channel is not None:
                self._channel.terminate()
            if not await self._ended_within(min(grace, KILL_AFTER)):
                self.kill()
        await self.cleaned.wait()

    async def _ended_within(self, seconds: float) -> bool:
        """Whether its process ends in time; that what it had to tell cannot be stored yet is no fault of its own."""
        ends: list[asyncio.Future[Any]] = [asyncio.ensure_future(self.cleaned.wait())]
        if self._channel is not None:
            ends.append(asyncio.ensure_future(self._channel.gone()))
        try:
            done, _ = await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in ends:
                one.cancel()
        return bool(done)

    async def _take(self, batch: list[FromWorker]) -> None:
        last = self._frame
        numbered: list[Numbered] = []
        for frame in batch:
            if frame.epoch != self.spec.epoch:
                continue
            if isinstance(frame, Ready):
                self._greet(frame)
            elif isinstance(frame, Lost):
                self._lost = frame
            elif isinstance(frame, Pong):
                self._liveness.answered()
            elif isinstance(frame, Skipped) and not self.foreign:
                raise ValueError(f"frame {frame.n} is not one of this protocol")
            elif not isinstance(frame, Heartbeat | Place) and frame.n:
                check_order(frame, last)
                last = frame.n
                numbered.append(frame)
                if isinstance(frame, Background):
                    self._background = frame.running
                    self._around.changed(self)
        if numbered:
            crash_points.reached("frames_received")
            await self._around.listener.frames(self.spec.session_id, self.spec.epoch, numbered)
            crash_points.reached("frames_committed")
            self._frame = last
            await asyncio.sleep(0)  # clients are shown it first
            with contextlib.suppress(ConnectionError):  # what a dead worker sent before is still to be read
                await self.send(Ack(epoch=self.spec.epoch, upto=self._frame))
            crash_points.reached("frames_acknowledged")
        if self._greeting is not None and self._frame >= self._greeting.upto:
            await self._take_ready(self._greeting)

    def _greet(self, ready: Ready) -> None:
        crash_points.reached("worker_ready")
        self.foreign = ready.protocol != PROTOCOL
        self._background = ready.background
        self._greeting = ready

    async def _take_ready(self, ready: Ready) -> None:
        self._greeting = None
        if isinstance(self._begin, WorkerRecord):
            if self.foreign:
                log.warning("The worker is of another version", action="worker_foreign", protocol=ready.protocol)
            await self._around.listener.adopted(self.spec.session_id, ready, foreign=self.foreign)
        if not self.ready.done():
            self.ready.set_result(ready)
            self._around.listener.ready(self.spec.session_id, ready.offer)
        self._around.changed(self)

    async def _take_spool(self) -> None:
        """What a worker could not send any more, it may have left on disk."""
        self.foreign = True  # nobody says which version wrote it
        await self._around.launcher.deliver_spool(self.spec, self._frame, self._take)

    async def _end(self) -> None:
        """Whatever fails on the way, the session can have a new worker afterwards."""
        spec, around = self.spec, self._around
        await self._end_process()
        keep_spool = False
        try:
            await self._take_spool()
        except Exception as error:
            keep_spool = not isinstance(error, (ValueError, *HOPELESS))  # the next start takes it
            log.exception("A dead worker's spool could not be taken", action="spool_failed", kept=keep_spool)
        assert self._lost is not None
        lost = self._lost
        if not self.ready.done():
            self.ready.set_exception(WorkerFailed(lost.kind, lost.message))
        log.info("Worker gone", action="worker_gone", reason=lost.kind, stopped=self.stopping)
        try:
            await until_done(
                lambda: around.listener.lost(spec.session_id, spec.epoch, lost.kind, lost.message),
                "A worker's end could not be told",
                final=HOPELESS,
            )
        except Exception:
            log.exception("A worker's end could not be told", action="lost_failed")
        try:
            await around.launcher.clean(spec, HURRY if self._hurry else TERM_GRACE, keep_spool=keep_spool)
        except Exception:
            log.exception("A dead worker could not be cleaned up", action="clean_up_failed")
        try:
            if not keep_spool:  # else its row keeps the session from having another one
                await until_done(
                    lambda: around.ledger.worker_gone(spec.session_id, spec.epoch),
                    "A worker's end could not be recorded",
                    final=HOPELESS,
                )
        except Exception:
            log.exception("A worker's end could not be recorded", action="worker_end_lost")
        if self._channel is not None:
            await self._channel.close()
        self.cleaned.set()
        around.changed(self)

    async def _end_process(self) -> None:
        """Whoever writes on while the spool is read would lose what he writes."""
        adopted = isinstance(self._begin, WorkerRecord) and not self.ready.done()  # it may be about to end by itself
        wait = BEQUEATH_WAIT if adopted else KILL_AFTER
        if self._channel is None:
            if isinstance(self._begin, WorkerRecord):
                await self._around.launcher.end(self._begin, wait)
            return
        await self._gone_within(self._channel, wait)
        self._channel.kill()
        await self._gone_within(self._channel, KILL_AFTER)

    async def _gone_within(self, channel: Channel, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await channel.gone()

    async def _leave(self) -> None:
        if self._channel is not None:
            await self._channel.close()
        log.info("Worker left to the next daemon", action="worker_left")
