"""The worker process: one Claude session, spoken to over its own unix socket; ends with the daemon's connection.

Started by the fork server, which has the SDK imported and hands over the bound socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Coroutine
from typing import Any, Final

import structlog
from claude_agent_sdk import ClaudeSDKError, ProcessError

from pykoclaw_acp.ops.processes import reap_orphans
from pykoclaw_acp.worker.channel import peer_is_ours, read_frames
from pykoclaw_acp.worker.claude import ClaudeSession
from pykoclaw_acp.worker.failures import StartFailure
from pykoclaw_acp.worker.frames import (
    PROTOCOL,
    Ack,
    Answer,
    FromWorker,
    Heartbeat,
    Hello,
    Interrupt,
    Lost,
    Prompt,
    Ready,
    Stop,
    ToWorker,
    encode,
    to_worker,
)
from pykoclaw_acp.worker.outbox import Outbox
from pykoclaw_acp.worker.spec import LaunchSpec

HEARTBEAT: Final = 10.0  # s
ACCEPT_WAIT: Final = 10.0  # s; a daemon that died before it connected never comes
GATHER: Final = 0.002  # s after a send in which deltas of a fast model become one event; slower ones never wait
LAST_ACK_WAIT: Final = 2.0  # s; how long the last frames wait for their acknowledgement

log: Final = structlog.get_logger()


class Worker:
    """Serves one daemon connection until it ends, is told to stop, or Claude is lost."""

    def __init__(self, spec: LaunchSpec) -> None:
        self._spec = spec
        self._outbox = Outbox()
        self._claude = ClaudeSession(spec, self._outbox)
        self._ended = asyncio.Event()
        self._broken = False
        self._alone = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._writer: asyncio.StreamWriter

    async def serve(self, listener: socket.socket) -> None:
        """Accept the daemon, run until the end, leave nothing behind."""
        listener.setblocking(False)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ended.set)
        connection, _ = await asyncio.wait_for(loop.sock_accept(listener), ACCEPT_WAIT)
        listener.close()
        if not peer_is_ours(connection):
            raise PermissionError("the peer belongs to another user")
        reader, self._writer = await asyncio.open_unix_connection(sock=connection)
        self._start(self._commands(reader))
        self._start(self._heartbeats())
        self._start(self._live())
        await self._ended.wait()
        await self._claude.close()
        if not self._alone:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._outbox.drained(), LAST_ACK_WAIT)
        for task in self._tasks:
            task.cancel()
        self._writer.close()

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        """A task that broke would leave its turn hanging: the worker is lost instead."""
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        log.error("The worker is broken", action="worker_broken", exc_info=error)
        if self._broken:
            self._ended.set()
        else:
            self._broken = True
            self._start(self._lose("internal", "Claude's worker had a fault; its log says more."))

    async def _live(self) -> None:
        """Connect Claude, report ready, pump until it ends."""
        try:
            await self._claude.connect()
        except StartFailure as failure:
            await self._lose(failure.kind, failure.message)
            return
        await self._send(
            Ready(
                epoch=self._spec.epoch,
                pid=os.getpid(),
                protocol=PROTOCOL,
                claude_session_id=self._claude.claude_session_id,
                fresh=self._claude.fresh,
            )
        )
        self._start(self._events())
        reason = "it ended"
        try:
            await self._claude.run()
        except ProcessError as error:
            reason = self._claude.last_words() or f"exit status {error.exit_code}"
        except (ClaudeSDKError, OSError, ValueError) as error:
            reason = self._claude.last_words() or str(error).splitlines()[0]
        if not self._ended.is_set():
            await self._lose("worker_lost", f"Claude's process died: {reason[:300]}.")

    async def _lose(self, kind: str, message: str) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._outbox.drained(), LAST_ACK_WAIT)
        log.warning("Claude is lost", action="claude_lost", kind=kind, reason=message)
        await self._send(Lost(epoch=self._spec.epoch, kind=kind, message=message))
        self._ended.set()

    async def _events(self) -> None:
        while True:
            self._writer.write(await self._outbox.take())
            await self._writer.drain()
            await asyncio.sleep(GATHER)

    async def _heartbeats(self) -> None:
        while True:
            await self._send(Heartbeat(epoch=self._spec.epoch))
            await asyncio.sleep(HEARTBEAT)
            reap_orphans()

    async def _commands(self, reader: asyncio.StreamReader) -> None:
        try:
            async for frame in read_frames(reader, to_worker):
                await self._command(frame)
        except (OSError, ValueError) as error:
            log.warning("The daemon's channel broke", action="channel_broken", error=str(error))
        self._alone = True  # nobody acknowledges, and the turn cannot be answered any more
        self._ended.set()

    async def _command(self, frame: ToWorker) -> None:
        if frame.epoch != self._spec.epoch:
            return
        if isinstance(frame, Prompt):
            try:
                await self._claude.prompt(frame)
            except ClaudeSDKError as error:
                log.warning("The prompt did not reach Claude", action="prompt_not_sent", error=str(error))
        elif isinstance(frame, Interrupt):
            self._start(self._claude.interrupt(frame.turn_id))
        elif isinstance(frame, Answer):
            self._claude.answer(frame)
        elif isinstance(frame, Ack):
            self._outbox.acknowledge(frame.upto)
        elif isinstance(frame, Stop):
            self._ended.set()
        elif isinstance(frame, Hello) and frame.protocol != PROTOCOL:
            await self._lose("protocol", "The daemon speaks another version of the worker protocol.")

    async def _send(self, frame: FromWorker) -> None:
        with contextlib.suppress(OSError):
            self._writer.write(encode(frame))
            await self._writer.drain()


def run(spec: LaunchSpec, listener: socket.socket) -> int:
    """The process's whole life; returns its exit status."""
    structlog.contextvars.bind_contextvars(session=spec.session_id, epoch=spec.epoch, worker_pid=os.getpid())
    try:
        asyncio.run(Worker(spec).serve(listener))
    except (TimeoutError, PermissionError) as error:
        log.warning("No daemon came", action="worker_unclaimed", error=str(error))
        return 1
    return 0
