"""The worker pool: one live worker per session, launched for a prompt, fenced by its epoch, evicted when idle."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import hashlib
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import structlog

from pykoclaw_acp.ops import steps
from pykoclaw_acp.pool.launcher import Channel, Launcher, LaunchFailed, WorkerProcess
from pykoclaw_acp.sessions.ports import WorkerFailed, WorkerListener, WorkerWish
from pykoclaw_acp.worker.frames import (
    PROTOCOL,
    Ack,
    Background,
    FromWorker,
    Heartbeat,
    Hello,
    Lost,
    Numbered,
    Ready,
    Stop,
    ToWorker,
)
from pykoclaw_acp.worker.spec import LaunchSpec

STOP_AGAIN: Final = 0.5  # s between SIGTERM and SIGKILL
TERM_GRACE: Final = 2.0  # s; for what a dead worker left; the CLI ends its tools on SIGTERM, usually in 35 ms
HURRY: Final = 0.3  # s; the same while the server stops

log: Final = structlog.get_logger()


class Ledger(Protocol):
    """Where the pool writes down which workers there are."""

    async def next_epoch(self, session_id: str) -> int:
        """The session's next epoch, committed."""

    async def worker_started(self, spec: LaunchSpec, process: WorkerProcess) -> None:
        """A worker lives."""

    async def worker_gone(self, session_id: str, epoch: int) -> None:
        """It does not any more, and nothing of it is left."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Counts and times (s) of config.py, and the directory of sockets and temporary files."""

    directory: Path
    max_workers: int
    idle_timeout: float
    start_timeout: float
    stall_timeout: float
    stop_grace: float


class _Live:
    """A worker from its launch to the end of its clean-up."""

    def __init__(self, spec: LaunchSpec) -> None:
        self.spec = spec
        self.channel: Channel | None = None
        self.ready: asyncio.Future[Ready] = asyncio.get_running_loop().create_future()
        self.cleaned = asyncio.Event()
        self.busy = True
        self.background = 0
        self.frame = 0
        self.lost: Lost | None = None
        self.stopping = False
        self.last_sign = asyncio.get_running_loop().time()
        self.idle_timer: asyncio.TimerHandle | None = None
        self.idle_since = 0.0

    @property
    def idle(self) -> bool:
        return not self.busy and not self.background and not self.stopping and self.ready.done()


class WorkerPool:
    """Workers by session. `listener` gets their frames, and is told when one is lost."""

    def __init__(self, launcher: Launcher, ledger: Ledger, listener: WorkerListener, limits: PoolLimits) -> None:
        self._launcher = launcher
        self._ledger = ledger
        self._listener = listener
        self._limits = limits
        self._resume: dict[str, str | None] = {}
        self._live: dict[str, _Live] = {}
        self._starting: set[str] = set()  # counted already, not launched yet
        self._changed = asyncio.Event()  # a worker became idle or went away
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = False

    # --- for sessions -----------------------------------------------------------------------------------------------

    def set_resume(self, acp_session_id: str, claude_session_id: str | None) -> None:
        """Which Claude session the next worker of this session resumes; None: it begins one."""
        self._resume[acp_session_id] = claude_session_id

    def warm(self) -> None:
        """A prompt is likely soon: prepare the launcher."""
        self._start(self._warm())

    def is_live(self, session_id: str) -> bool:
        """Whether the session has a worker that can take a prompt."""
        live = self._live.get(session_id)
        return live is not None and not live.stopping and live.lost is None

    async def acquire(self, wish: WorkerWish) -> int:
        """A ready worker for the session, kept from eviction until `release`; returns its epoch.

        Raises WorkerFailed when none could be started.
        """
        live = self._live.get(wish.session_id)
        while live is not None and (live.stopping or live.lost is not None):
            await live.cleaned.wait()
            live = self._live.get(wish.session_id)
        if live is None:
            live = await self._launch(wish)
        live.busy = True
        if live.idle_timer is not None:
            live.idle_timer.cancel()
        try:
            ready = await asyncio.wait_for(asyncio.shield(live.ready), self._limits.start_timeout)
        except TimeoutError:
            self.kill(wish.session_id)
            seconds = self._limits.start_timeout
            raise WorkerFailed("start_timeout", f"Claude was not ready within {seconds:g} s.") from None
        self._resume[wish.session_id] = None if ready.fresh else ready.claude_session_id
        return live.spec.epoch

    def release(self, session_id: str) -> None:
        """The session has nothing to do: its worker may be evicted after the idle time."""
        live = self._live.get(session_id)
        if live is None:
            return
        live.busy = False
        self._count_idle(live)
        self._changed.set()

    async def send(self, session_id: str, frame: ToWorker) -> None:
        """Write a frame to the session's worker; raises ConnectionError when there is none."""
        live = self._live.get(session_id)
        if live is None or live.channel is None or live.spec.epoch != frame.epoch:
            raise ConnectionError("the worker is gone")
        await live.channel.send(frame)

    def kill(self, session_id: str) -> None:
        """End the session's worker at once; its listener is told."""
        live = self._live.get(session_id)
        if live is not None and live.channel is not None:
            live.channel.kill()

    def retire(self, session_id: str) -> None:
        """The session's worker takes no prompt any more, and ends in order; the next prompt gets a new one."""
        live = self._live.get(session_id)
        if live is not None:
            self._retire(live)

    async def stop(self, session_id: str) -> None:
        """End the session's worker in order, and wait until nothing of it is left."""
        live = self._live.get(session_id)
        if live is not None:
            await self._stop(live)

    async def close(self, grace: float) -> None:
        """Stop all workers, within `grace` (s) also those that hang, then the launcher."""
        self._closing = True
        await asyncio.gather(*(self._stop(live, grace / 3) for live in list(self._live.values())))
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._launcher.close()

    # --- launch -----------------------------------------------------------------------------------------------------

    async def _launch(self, wish: WorkerWish) -> _Live:
        await self._make_room(wish.session_id)
        try:
            return await self._launch_in_room(wish)
        finally:
            self._starting.discard(wish.session_id)
            self._changed.set()

    async def _launch_in_room(self, wish: WorkerWish) -> _Live:
        if self._closing:
            raise WorkerFailed("shutting_down", "The server is stopping.")
        epoch = await self._ledger.next_epoch(wish.session_id)
        steps.reached("worker_epoch")
        name = f"{hashlib.sha256(wish.session_id.encode()).hexdigest()[:16]}-{epoch}"  # an id is never a path
        spec = LaunchSpec(
            session_id=wish.session_id,
            epoch=epoch,
            cwd=wish.cwd,
            additional_directories=list(wish.additional_directories),
            resume_session_id=self._resume.get(wish.session_id),
            model=wish.model,
            permission_mode=wish.permission_mode,
            setting_sources=list(wish.setting_sources),
            cli_path=wish.cli_path,
            mcp_servers=list(wish.mcp_servers),
            socket=str(self._limits.directory / "sockets" / name),
            temporary=str(self._limits.directory / "tmp" / name),
            log_level=wish.log_level,
        )
        live = self._live[wish.session_id] = _Live(spec)
        live.ready.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._start(self._live_through(live))
        return live

    async def _make_room(self, session_id: str) -> None:
        """Wait until one more worker is allowed; the one that is idle longest goes first."""
        while len(self._live) + len(self._starting) >= self._limits.max_workers:
            idle = sorted((live for live in self._live.values() if live.idle), key=lambda live: live.idle_since)
            if idle:
                self._retire(idle[0])
            else:
                log.info("All workers are busy; the turn waits", action="pool_full", session=session_id)
            self._changed.clear()
            await self._changed.wait()
        self._starting.add(session_id)

    async def _warm(self) -> None:
        with contextlib.suppress(LaunchFailed, OSError):
            await self._launcher.warm()

    # --- one worker's life ------------------------------------------------------------------------------------------

    async def _live_through(self, live: _Live) -> None:
        """Launch, listen, tell its end, clean up."""
        spec = live.spec
        structlog.contextvars.bind_contextvars(session=spec.session_id, epoch=spec.epoch)
        kind, message = "worker_lost", "Claude's worker process died."
        try:
            live.channel = await self._launcher.launch(spec)
            steps.reached("worker_launched")
            process = live.channel.process
            structlog.contextvars.bind_contextvars(worker_pid=process.pid)
            await self._ledger.worker_started(spec, process)
            log.info("Worker launched", action="worker_launched", resume=spec.resume_session_id is not None)
            await live.channel.send(Hello(epoch=spec.epoch, after=0, protocol=PROTOCOL))
            if live.stopping:
                await live.channel.send(Stop(epoch=spec.epoch))
            self._start(self._watch(live))
            async for batch in live.channel.batches():
                await self._take(live, batch)
        except LaunchFailed as error:
            kind, message = "start_failed", f"Claude's worker could not be launched: {error}"
        except ConnectionError:
            pass
        except Exception:
            # A frame that cannot be kept must not be acknowledged: its worker ends, and the turn says so.
            log.exception("The worker's frames could not be taken", action="frames_failed")
            kind, message = "internal", "The answer could not be recorded; the log of pykoclaw-acp says why."
            if live.channel is not None:
                live.channel.kill()
        finally:
            if live.stopping:
                kind = "stopped"
            if live.lost is None:
                live.lost = Lost(epoch=spec.epoch, kind=kind, message=message)
            await asyncio.shield(self._end(live))

    async def _end(self, live: _Live) -> None:
        lost = live.lost
        assert lost is not None
        if not live.ready.done():
            live.ready.set_exception(WorkerFailed(lost.kind, lost.message))
        if live.channel is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(live.channel.gone(), STOP_AGAIN)
            live.channel.kill()
        log.info("Worker gone", action="worker_gone", reason=lost.kind, stopped=live.stopping)
        try:
            await self._listener.lost(live.spec.session_id, live.spec.epoch, lost.kind, lost.message)
            await self._launcher.clean(live.spec, HURRY if self._closing else TERM_GRACE)
            await self._ledger.worker_gone(live.spec.session_id, live.spec.epoch)
        except Exception:
            log.exception("A dead worker could not be cleaned up", action="clean_up_failed")
        finally:
            if live.channel is not None:
                await live.channel.close()
            del self._live[live.spec.session_id]
            live.cleaned.set()
            self._changed.set()

    async def _take(self, live: _Live, batch: list[FromWorker]) -> None:
        live.last_sign = asyncio.get_running_loop().time()
        numbered: list[Numbered] = []
        for frame in batch:
            if frame.epoch != live.spec.epoch:
                continue
            if isinstance(frame, Ready):
                steps.reached("worker_ready")
                if not live.ready.done():
                    live.ready.set_result(frame)
                if not live.busy:
                    self._count_idle(live)
            elif isinstance(frame, Lost):
                live.lost = frame
            elif not isinstance(frame, Heartbeat):
                if frame.n != live.frame + 1:
                    raise ValueError(f"frame {frame.n} came after {live.frame}")
                live.frame = frame.n
                numbered.append(frame)
                if isinstance(frame, Background):
                    live.background = frame.running
                    self._count_idle(live)
                    self._changed.set()
        if numbered:
            steps.reached("frames_received")
            await self._listener.frames(live.spec.session_id, live.spec.epoch, numbered)
            steps.reached("frames_committed")
            assert live.channel is not None
            with contextlib.suppress(ConnectionError):  # what a dead worker sent before is still to be read
                await live.channel.send(Ack(epoch=live.spec.epoch, upto=live.frame))
            steps.reached("frames_acknowledged")

    async def _watch(self, live: _Live) -> None:
        """Kill a worker that gives no sign of life; a pause of this process itself is no silence of the worker's."""
        loop = asyncio.get_running_loop()
        interval = self._limits.stall_timeout / 3
        while not live.cleaned.is_set():
            before = loop.time()
            await asyncio.sleep(interval)
            late = loop.time() - before > 2 * interval
            if not late and loop.time() - live.last_sign > self._limits.stall_timeout and live.channel is not None:
                log.warning("Worker gives no sign of life", action="worker_stalled", session=live.spec.session_id)
                live.channel.kill()
                return

    # --- eviction and stop ------------------------------------------------------------------------------------------

    def _count_idle(self, live: _Live) -> None:
        if live.idle_timer is not None:
            live.idle_timer.cancel()
            live.idle_timer = None
        if not live.idle or self._closing:
            return
        loop = asyncio.get_running_loop()
        live.idle_since = loop.time()
        live.idle_timer = loop.call_later(self._limits.idle_timeout, self._evict, live)

    def _evict(self, live: _Live) -> None:
        if live.idle:
            log.info("Worker evicted", action="worker_evicted", session=live.spec.session_id)
            self._retire(live)

    def _retire(self, live: _Live) -> None:
        live.stopping = True  # at once: a prompt that comes before the task runs must not take this worker
        self._start(self._stop(live))

    async def _stop(self, live: _Live, grace: float | None = None) -> None:
        """Stop, SIGTERM, SIGKILL: until the worker is gone and cleaned up."""
        live.stopping = True
        if live.channel is not None:
            with contextlib.suppress(ConnectionError):
                await live.channel.send(Stop(epoch=live.spec.epoch))
        step = self._limits.stop_grace if grace is None else grace
        for signal in ("terminate", "kill"):
            try:
                await asyncio.wait_for(live.cleaned.wait(), step)
            except TimeoutError:
                if live.channel is not None:
                    getattr(live.channel, signal)()
            else:
                return
            step = min(step, STOP_AGAIN)
        await live.cleaned.wait()

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        # A context of its own: the worker's log lines are not those of the turn that launched it.
        task = asyncio.get_running_loop().create_task(coroutine, context=contextvars.Context())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
