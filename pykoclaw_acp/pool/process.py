"""The process of one worker, with its channel: launched or adopted, written to, ended."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import structlog

from pykoclaw_acp import crash_points
from pykoclaw_acp.channel.frames import ToWorker
from pykoclaw_acp.channel.processes import WorkerRecord
from pykoclaw_acp.channel.spec import LaunchSpec, WorkerIdentity
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import LaunchFailed
from pykoclaw_acp.pool.launcher import Channel, Launcher
from pykoclaw_acp.pool.ports import WorkerStore
from pykoclaw_acp.system import shortage

KILL_AFTER: Final = 0.5  # s after a request to terminate
WHY_IN_LOG: Final = "the log of pykoclaw-acp says why."

log: Final = structlog.get_logger()


class LaunchedWorker:
    """A worker as the launcher knows it; without a channel as long as it is not open.

    `recorded`: its row is written.
    """

    def __init__(
        self, begin: LaunchSpec | WorkerRecord, launcher: Launcher, store: WorkerStore
    ) -> None:
        self.recorded = isinstance(begin, WorkerRecord)
        self._begin = begin
        self._spec: WorkerIdentity = begin.identity if isinstance(begin, WorkerRecord) else begin
        self._launcher = launcher
        self._store = store
        self._channel: Channel | None = None

    async def open(self, committed: int) -> Channel:
        """Launch or adopt it; `committed`: number of its last frame that is in the log.

        Raises LaunchFailed, and ConnectionError if a worker to adopt cannot be reached.
        """
        if isinstance(self._begin, WorkerRecord):
            self._channel = await self._adopt(self._begin, committed)
        else:
            self._channel = await self._launch(self._begin)
        return self._channel

    async def _launch(self, spec: LaunchSpec) -> Channel:
        channel = self._channel = await self._forked(spec)
        crash_points.reached("worker_launched")
        structlog.contextvars.bind_contextvars(**channel.labels)
        await self._store.worker_started(spec, channel.handle)
        self.recorded = True
        crash_points.reached("worker_recorded")
        log.info(
            "Worker launched", action="worker_launched", resume=spec.resume_session_id is not None
        )
        return channel

    async def _forked(self, spec: LaunchSpec) -> Channel:
        try:
            return await self._launcher.launch(spec)
        except LaunchFailed:
            raise
        except Exception as error:
            log.exception("A worker could not be launched", action="launch_failed")
            found = shortage.of(error, forks=True)
            raise LaunchFailed(*(found or (ErrorKind.START_FAILED, WHY_IN_LOG))) from error

    async def _adopt(self, worker: WorkerRecord, committed: int) -> Channel:
        try:
            channel = await self._launcher.attach(worker)
        except LaunchFailed as error:
            raise ConnectionError(str(error)) from error
        structlog.contextvars.bind_contextvars(**channel.labels)
        crash_points.reached("worker_attached")
        log.info("Worker adopted", action="worker_adopted", after=committed)
        return channel

    async def send(self, frame: ToWorker) -> None:
        """Write a frame; raises ConnectionError when the worker is gone or of another epoch."""
        if self._channel is None or self._spec.epoch != frame.epoch:
            raise ConnectionError("the worker is gone")
        await self._channel.send(frame)

    def detach(self) -> None:
        """Stop reading; the process goes on."""
        if self._channel is not None:
            self._channel.detach()

    def kill(self) -> None:
        """End the process at once."""
        if self._channel is not None:
            self._channel.kill()

    async def terminate(self, grace: float, cleaned: asyncio.Event) -> None:
        """Terminate the process if it does not end within `grace` (s), then kill it."""
        if not await self._join(grace, cleaned):
            if self._channel is not None:
                self._channel.terminate()
            if not await self._join(min(grace, KILL_AFTER), cleaned):
                self.kill()

    async def end(self, cleaned: asyncio.Event, wait: float) -> None:
        """Wait for the end of the process, which may still write to the spool; kill it after `wait`
        (s).
        """
        if self._channel is None:
            if isinstance(self._begin, WorkerRecord):
                await self._launcher.end(self._begin, wait)
            return
        await self._join(wait, cleaned)
        self._channel.kill()
        await self._join(KILL_AFTER, cleaned)

    async def close(self) -> None:
        """Close the channel."""
        if self._channel is not None:
            await self._channel.close()

    async def _join(self, seconds: float, cleaned: asyncio.Event) -> bool:
        """Whether the process ends in time; its frames may have to wait longer for the store."""
        ends: list[asyncio.Future[Any]] = [
            asyncio.create_task(cleaned.wait(), name="worker-cleaned")
        ]
        if self._channel is not None:
            ends.append(asyncio.create_task(self._channel.gone(), name="worker-gone"))
        try:
            done, _ = await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in ends:
                one.cancel()
        return bool(done)
