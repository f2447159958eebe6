"""The worker pool: one live worker per conversation, launched for a prompt, fenced by its epoch,
evicted when idle.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Coroutine, Sequence
from typing import Any, Final
from weakref import WeakValueDictionary

import structlog

from pykoclaw_acp import crash_points
from pykoclaw_acp.channel.frames import ToWorker, TurnEnded
from pykoclaw_acp.channel.options import WorkerOptions, suits, suspects
from pykoclaw_acp.channel.processes import WorkerRecord
from pykoclaw_acp.channel.spec import LaunchSpec
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import LaunchFailed, SpoolPending, WorkerFailed
from pykoclaw_acp.model.branches import Branch
from pykoclaw_acp.pool import claiming
from pykoclaw_acp.pool.capacity import Capacity
from pykoclaw_acp.pool.continuity import Continuity
from pykoclaw_acp.pool.launcher import Launcher
from pykoclaw_acp.pool.life import PoolContext, WorkerLife
from pykoclaw_acp.pool.listener import WorkerListener
from pykoclaw_acp.pool.ports import CallTaker, PoolLimits, WorkerStore
from pykoclaw_acp.pool.start_limit import StartLimit
from pykoclaw_acp.tasks import Tasks

UNATTENDED: Final = 120.0  # s; a client that is started again is back by then
DETACH_WAIT: Final = 1.0  # s; for the commits of what was received
SPOOL_PENDING: Final = (
    "What Claude said last could not be recorded yet; it is kept on disk, and the prompt was not sent."
    " The daemon's log says why. Send the prompt again: that tries it once more."
)

log: Final = structlog.get_logger()


class WorkerPool:
    """Workers by session, that is, by conversation. `listener` receives their frames and state
    changes.
    """

    def __init__(
        self,
        launcher: Launcher,
        store: WorkerStore,
        listener: WorkerListener,
        limits: PoolLimits,
        database: CallTaker | None = None,
    ) -> None:
        self._launcher = launcher
        self._store = store
        self._limits = limits
        self._context = PoolContext(
            launcher, store, listener, limits, self._worker_changed, database
        )
        self._continuity = Continuity()
        self._workers: dict[str, WorkerLife] = {}
        self._attended: set[str] = set()  # sessions that a client has open
        # By session, while it is given a worker.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        room = listener.make_room
        self._capacity = Capacity(limits.max_workers, self._workers, self._retire, room)
        self._start_limit = StartLimit()
        self._tasks = Tasks()
        self._closing = False

    # --- for sessions

    def set_resume(
        self, acp_session_id: str, claude_session_id: str | None, branch: Branch | None = None
    ) -> None:
        """Which Claude session the next worker of this session resumes; None: it begins one. With a
        `branch` it begins one that branches off another.
        """
        self._continuity.set_resume(acp_session_id, claude_session_id, branch)

    def warm(self) -> None:
        """Prepare the launcher for a prompt that is likely soon."""
        self._start(self._warm())

    @property
    def has_room(self) -> bool:
        """Whether another worker may be started without ending one."""
        return self._capacity.has_room

    def is_live(self, session_id: str) -> bool:
        """Whether the session has a worker that can take a prompt."""
        worker = self._workers.get(session_id)
        return worker is not None and worker.usable

    def steers(self, session_id: str) -> bool:
        """Whether the session's worker takes prompts for the turn that runs."""
        worker = self._workers.get(session_id)
        if worker is None or not worker.usable or not worker.ready.done():
            return False
        return worker.ready.exception() is None and worker.ready.result().steers

    def workspace(self, session_id: str) -> str | None:
        """`workspace` of the options of the session's worker; None without a live one."""
        worker = self._workers.get(session_id)
        return worker.workspace if worker is not None and worker.usable else None

    def takes_blocks(self, session_id: str) -> bool:
        """Whether the session's worker, which is ready, takes images and embedded resources."""
        worker = self._workers.get(session_id)
        return worker is not None and worker.takes_blocks

    def works(self, session_id: str) -> bool:
        """Whether the session's worker, which has no turn, has background work."""
        worker = self._workers.get(session_id)
        ready = worker is not None and worker.usable and worker.ready.done()
        return worker is not None and ready and not (worker.occupation.busy or worker.idle)

    def note_ended(self, session_id: str, ended: TurnEnded) -> None:
        """Note what its worker says at a turn's end, for the next ones."""
        self._continuity.note_ended(session_id, ended)

    def forget(self, session_id: str) -> bool:
        """Forget the session until the next `set_resume`; False, and nothing is done, while it has
        a worker.
        """
        if session_id in self._workers or self._capacity.is_reserved(session_id):
            return False
        self._continuity.forget(session_id)
        return True

    async def acquire(self, session_id: str, options: WorkerOptions) -> int:
        """Have a ready worker for the session, protected from eviction until `release`; returns its
        epoch.

        Raises WorkerFailed when none could be started.
        """
        lock = self._locks.setdefault(session_id, asyncio.Lock())
        async with lock:  # two launches would get the same epoch
            worker = await self._find_or_launch(session_id, options)
        try:
            ready = await claiming.ready(worker, self._limits.worker_start_timeout)
        except TimeoutError:
            worker.kill()
            seconds = self._limits.worker_start_timeout
            words = f"Claude was not ready within {seconds:g} s.{suspects(options)}"
            raise WorkerFailed(ErrorKind.START_TIMEOUT, words) from None
        self._start_limit.record_success(session_id)
        self._continuity.note_ready(session_id, ready)
        if ready.fresh and ready.claude_session_id != session_id:
            await self._store.transcript_begun(session_id, ready.claude_session_id)
        return worker.spec.epoch

    async def _find_or_launch(self, session_id: str, options: WorkerOptions) -> WorkerLife:
        while (worker := self._workers.get(session_id)) is not None:
            fits = suits(worker.workspace, options.workspace)
            if fits and await claiming.claim(worker):
                return worker
            if not worker.stopping and (worker.foreign or not fits):
                self._retire(worker)  # its background work must not delay a prompt
            await worker.cleaned.wait()
        return await self._launch(session_id, options)

    def attend(self, session_id: str, *, attended: bool) -> None:
        """Note whether a client has the session open: otherwise its worker is soon not kept idle."""
        (self._attended.add if attended else self._attended.discard)(session_id)
        worker = self._workers.get(session_id)
        if worker is not None:
            self._time_idleness(worker)

    def release(self, session_id: str) -> None:
        """Let the session's worker be evicted after the idle timeout."""
        worker = self._workers.get(session_id)
        if worker is not None:
            worker.occupation.release()

    async def send(self, session_id: str, frame: ToWorker) -> None:
        """Write a frame to the session's worker; raises ConnectionError when there is none."""
        worker = self._workers.get(session_id)
        if worker is None:
            raise ConnectionError("the worker is gone")
        await worker.send(frame)

    def kill(self, session_id: str) -> None:
        """Kill the session's worker; the listener is told that it is lost."""
        worker = self._workers.get(session_id)
        if worker is not None:
            worker.kill()

    def retire(self, session_id: str) -> None:
        """Stop the session's worker in the background; the next prompt gets a new one."""
        worker = self._workers.get(session_id)
        if worker is not None:
            self._retire(worker)

    def evict(self, session_id: str) -> None:
        """Stop the session's worker in the background if it has no turn, and no work goes on."""
        worker = self._workers.get(session_id)
        if worker is not None:
            worker.occupation.close()
            self._evict(worker)

    async def stop(self, session_id: str) -> None:
        """Stop the session's worker, and wait until it is cleaned up. It is stopped also if the
        caller is cancelled: nobody else ends one that does not obey.
        """
        worker = self._workers.get(session_id)
        if worker is not None:
            await self._tasks.finish(worker.stop(self._limits.stop_grace))

    async def probe(self) -> None:
        """Check the launcher; raises RestartWanted if workers can only be launched by a
        new daemon.
        """
        await self._launcher.probe()

    async def close(self, grace: float) -> None:
        """Stop all workers within `grace` (s), unless they were detached, then the launcher."""
        workers = [] if self._closing else self._workers.values()
        self._closing = True
        stopping = [self._tasks.start(one.stop(grace / 3, hurry=True)) for one in workers]
        if stopping:
            await asyncio.wait(stopping, timeout=grace + 1)
        for worker in self._workers.values():
            # Its reports, or its end, wait for a store that cannot be written, it may be for ever:
            # the next server records the end.
            worker.detach()
        await self._tasks.end()
        await self._launcher.close()

    # --- from one daemon to the next

    def adopt(self, workers: Sequence[WorkerRecord]) -> None:
        """Take over workers of an earlier daemon; one that cannot be reached, or does not answer in
        time, is lost.
        """
        for one in workers:
            worker = self._workers[one.session_id] = WorkerLife(one, self._context)
            self._start(worker.live())

    async def detach(self) -> None:
        """Commit what was received, and leave the workers to the next daemon, as turns were before."""
        self._closing = True
        for worker in self._workers.values():
            worker.detach()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=DETACH_WAIT)
        await self._tasks.end()
        await self._launcher.close()

    # --- launch

    async def _launch(self, session_id: str, options: WorkerOptions) -> WorkerLife:
        if options.withheld:
            raise WorkerFailed(ErrorKind.AUTHENTICATION_WITHHELD, options.withheld)
        self._start_limit.require(session_id)
        await self._capacity.reserve(session_id)
        try:
            if self._closing:
                raise WorkerFailed(ErrorKind.SHUTTING_DOWN, "pykoclaw-acp is stopping.")
            epoch = await self._next_epoch(session_id)
            crash_points.reached("worker_epoch")
            options = await self._context.listener.completed(session_id, options)
            spec = self._spec(session_id, epoch, options)
            worker = self._workers[session_id] = WorkerLife(spec, self._context)
        finally:
            self._capacity.release(session_id)
        self._start(worker.live())
        return worker

    async def _next_epoch(self, session_id: str) -> int:
        try:
            return await self._store.next_epoch(session_id)
        except SpoolPending:
            await self._take_leftovers(session_id)
        try:
            return await self._store.next_epoch(session_id)
        except SpoolPending as error:
            log.warning(
                "A dead worker's spool is not in the log yet",
                action="spool_pending",
                session=session_id,
            )
            raise WorkerFailed(ErrorKind.SPOOL_PENDING, SPOOL_PENDING) from error

    async def _take_leftovers(self, session_id: str) -> None:
        """Clean up after dead workers whose spools could not be read before."""
        for left in await self._store.left(session_id):
            worker = self._workers[session_id] = WorkerLife(left, self._context)
            self._start(worker.live())
            await worker.cleaned.wait()

    def _spec(self, session_id: str, epoch: int, options: WorkerOptions) -> LaunchSpec:
        return LaunchSpec(
            instance=self._limits.instance,
            session_id=session_id,
            epoch=epoch,
            options=options,
            orphan_grace=self._limits.orphan_grace,
            spool_limit=self._limits.spool_limit,
            data=self._limits.data,
            **self._continuity.of(session_id, options),
        )

    async def _warm(self) -> None:
        with contextlib.suppress(LaunchFailed, OSError):
            await self._launcher.warm()

    # --- eviction

    def _worker_changed(self, worker: WorkerLife) -> None:
        """React to a worker that may have become idle, or busy, or is gone."""
        if worker.cleaned.is_set():
            del self._workers[worker.spec.session_id]
            if worker.start_failure is not None:
                self._start_limit.record_failure(worker.spec.session_id, worker.start_failure)
        elif worker.spent and not self._closing:
            self._retire(worker)
        worker.idle_since = asyncio.get_running_loop().time()
        self._time_idleness(worker)
        self._capacity.changed()

    def _time_idleness(self, worker: WorkerLife) -> None:
        if worker.idle_timer is not None:
            worker.idle_timer.cancel()
            worker.idle_timer = None
        if worker.idle and not self._closing:
            loop = asyncio.get_running_loop()
            left = worker.idle_since + self._limits.idle_timeout - loop.time()
            if worker.spec.session_id not in self._attended:
                left = min(left, UNATTENDED)
            worker.idle_timer = loop.call_later(left, self._evict, worker)

    def _evict(self, worker: WorkerLife) -> None:
        if worker.idle:
            log.info("Worker evicted", action="worker_evicted", session=worker.spec.session_id)
            self._retire(worker)

    def _retire(self, worker: WorkerLife) -> None:
        # at once: a prompt that comes before the task runs must not take this worker
        worker.stopping = True
        self._start(worker.stop(self._limits.stop_grace))

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        # A context of its own: the worker's log lines are not those of the turn that launched it.
        self._tasks.start(coroutine, context=contextvars.Context())
