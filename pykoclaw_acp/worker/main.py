"""The worker process: one Claude session, spoken to over its own unix socket by one daemon after
the other.

Started by the fork server, which has imported the SDK and passes the bound socket on. Without a
daemon the worker continues its turn for at most `LaunchSpec.orphan_grace`, and keeps its frames on
disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Final

import structlog

from pykoclaw_acp.channel.choosing import SetConfig, SetMode, SetModel
from pykoclaw_acp.channel.database import DatabaseAnswer
from pykoclaw_acp.channel.files import WorkerFiles
from pykoclaw_acp.channel.frames import (
    PROTOCOL,
    Ack,
    Answer,
    Heartbeat,
    Hello,
    Interrupt,
    Lost,
    Offered,
    Ping,
    Place,
    Pong,
    Prompt,
    Ready,
    Stop,
    ToWorker,
)
from pykoclaw_acp.channel.home import HeldDirectory
from pykoclaw_acp.channel.requests import WorkerRequest
from pykoclaw_acp.channel.socket import SocketLine
from pykoclaw_acp.channel.spec import LaunchSpec
from pykoclaw_acp.channel.spool import Spool
from pykoclaw_acp.channel.steering import Steer
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import ClaudeNotStarted
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.system import reaper, threads
from pykoclaw_acp.system.processes import die_with_parent, reap_orphans
from pykoclaw_acp.tasks import Tasks
from pykoclaw_acp.worker import death, orphan
from pykoclaw_acp.worker.claude import ClaudeSession
from pykoclaw_acp.worker.database_calls import DatabaseCalls
from pykoclaw_acp.worker.failures import fault, spool_full
from pykoclaw_acp.worker.outbox import Outbox
from pykoclaw_acp.worker.reception import DaemonLine, Reception

HEARTBEAT: Final = 10.0  # s
ACCEPT_WAIT: Final = 10.0  # s; a daemon that died before it connected never comes
# s after a send in which deltas of a fast model become one event; slower ones never wait
GATHER: Final = 0.002
LAST_ACK_WAIT: Final = 2.0  # s; how long the last frames wait for their acknowledgement
STRAYS_GRACE: Final = 1.0  # s; for what tools left running, when no daemon waits for it
END_WAIT: Final = 5.0  # s; for the end of a turn that the worker itself interrupts

log: Final = structlog.get_logger()


class Worker:
    """Serves one daemon after the other until one stops it, no daemon comes in time, or Claude is
    lost.
    """

    def __init__(self, spec: LaunchSpec, files: WorkerFiles) -> None:
        self._spec = spec
        self._outbox = Outbox(Spool(files.spool, spec.epoch), spec.spool_limit, self._spool_full)
        self._daemon = DaemonLine()
        self._calls = DatabaseCalls(spec.epoch, self._daemon.send)
        self._claude = ClaudeSession(spec, files.temporary, self._outbox, self._calls)
        self._claude.choices.offer_changed = self._offer
        self._home = HeldDirectory(spec.data)
        self._reception = Reception(spec.epoch, self._place, self._serve_daemon)
        self._committed = 0  # frames, when this daemon came
        self._claimed = asyncio.Event()
        self.connected = False  # to Claude
        self._ended = asyncio.Event()
        self._dismissed: Stop | None = None  # by its daemon, and not by a signal
        self._last_words: Lost | None = None
        self._why_stopped = TurnFailure(
            ErrorKind.WORKER_STOPPED, "Claude's worker was stopped in the middle of this turn."
        )
        self._broken = False
        self._orphaned: asyncio.Task[None] | None = None
        self._tasks = Tasks()

    async def serve(self, listener: socket.socket) -> None:
        """Run until the worker is to end; raises TimeoutError if no daemon ever connected."""
        listener.setblocking(False)
        loop = asyncio.get_running_loop()
        loop.set_default_executor(threads.Executor())
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._ended.set)
        self._start(self._reception.accept(listener, self._start))
        await self._reception.until(self._claimed, ACCEPT_WAIT)
        self._start(self._frames())
        self._start(self._outbox.spill_late())
        self._start(self._heartbeats())
        self._start(self._live())
        await self._ended.wait()
        await self._finish()
        if self.connected:
            await asyncio.to_thread(self.end_strays)
        self._tasks.cancel()
        self._daemon.end()
        listener.close()
        self._home.close()

    def end_strays(self) -> None:
        """End what tools have left, as its ancestor: nobody else finds all of an adopted worker's."""
        alone = not self._daemon.attached and bool(self._spec.orphan_grace)
        # A tool may have started the daemon itself, with PYKOCLAW_NESTED_ACCESS.
        if strays := reaper.end_descendants(STRAYS_GRACE if alone else 0, self._daemon.pid):
            pids = [one.pid for one in strays]
            log.info("Ended what tools had left running", action="strays_ended", pids=pids)

    async def _finish(self) -> None:
        """Stop Claude; unacknowledged frames go to the spool, with the failure of a turn that runs."""
        if self._cut_off and (self._daemon.attached or self._spec.orphan_grace):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_WAIT):
                    await self._claude.give_up(self._why_stopped)
        await self._claude.close(hooks=self._dismissed is None or self._dismissed.hooks)
        if self._cut_off:
            await self._lose(self._why_stopped.kind, self._why_stopped.message)
        else:
            await self._drain()
        if self._spec.orphan_grace:
            self._outbox.bequeath(None if self._daemon.attached else self._last_words)

    @property
    def _cut_off(self) -> bool:
        """Whether a turn runs of which no daemon knows why it ends."""
        known = self._dismissed is not None and self._daemon.attached
        return not known and self._last_words is None and bool(self._claude.turns)

    def _start(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._tasks.start(coroutine)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[None]) -> None:
        """End the worker if one of its tasks fails: its turn would hang."""
        if task.cancelled() or (error := task.exception()) is None:
            return
        log.error("The worker is broken", action="worker_broken", exc_info=error)
        if self._broken:
            self._ended.set()
        else:
            self._broken = True
            self._start(self._lose(*fault(error)))

    # --- Claude

    async def _live(self) -> None:
        """Connect to Claude, report ready, and process its messages until it ends."""
        try:
            await self._claude.connect()
        except ClaudeNotStarted as failure:
            await self._lose(failure.kind, failure.message)
            return
        self.connected = True
        await self._daemon.send(self._ready())
        died = await death.wait(self._claude, self._spec.options)
        if not self._ended.is_set():
            await self._lose(died.kind, died.message)

    async def _lose(self, kind: ErrorKind, message: str) -> None:
        log.warning(
            "The worker ends after a failure", action="claude_lost", kind=kind, reason=message
        )
        self._last_words = Lost(epoch=self._spec.epoch, kind=kind, message=message)
        await self._drain()
        await self._daemon.send(self._last_words)
        self._ended.set()

    async def _drain(self) -> None:
        """Let the daemon, if there is one, take what it was told."""
        if self._daemon.attached:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_ACK_WAIT):
                    await self._outbox.drained()

    def _ready(self) -> Ready:
        upto, orders = self._outbox.number(), self._claude.orders
        return Ready(
            epoch=self._spec.epoch,
            pid=os.getpid(),
            protocol=PROTOCOL,
            claude_session_id=self._claude.claude_session_id,
            fresh=self._claude.fresh,
            turn_id=next(reversed(orders.prompts), self._claude.turns.last_prompt),
            asks=self._claude.permissions.pending,
            background=self._claude.background,
            mode=self._claude.choices.mode,
            model=self._claude.choices.model,
            config=self._claude.choices.config,
            upto=upto if upto > self._committed else 0,
            offer=self._claude.choices.offer,
            told=self._claude.told,
            blocks=True,
            steers=True,
            steered=[*self._claude.steered.ids, *orders.steers],
            running=[*self._claude.turns.ids, *orders.prompts],
        )

    def _offer(self) -> None:
        offer = self._claude.choices.offer
        self._start(self._daemon.send(Offered(epoch=self._spec.epoch, offer=offer)))

    def _spool_full(self, trouble: OSError | None) -> None:
        self._start(self._claude.give_up(spool_full(trouble)))

    # --- the daemon

    def _place(self) -> Place:
        held = self._home.where()
        last, acked = self._outbox.told
        return Place(
            epoch=self._spec.epoch,
            instance=self._spec.instance,
            session_id=self._spec.session_id,
            pid=os.getpid(),
            last=last,
            acked=acked,
            attached=self._daemon.attached,
            path=held.path,
            device=held.device,
            inode=held.inode,
            deleted=held.deleted,
        )

    async def _serve_daemon(
        self, line: SocketLine, hello: Hello, frames: AsyncIterator[ToWorker | None]
    ) -> None:
        """Carry out a daemon's commands until it disconnects."""
        if self._ended.is_set():
            return  # what is told from now on goes to disk
        await self._attach(line, hello)
        try:
            async for frame in frames:
                if frame is not None:
                    await self._command(frame)
        except ValueError as error:
            log.warning("The daemon's channel broke", action="channel_broken", error=str(error))
        self._detach()

    async def _attach(self, line: SocketLine, hello: Hello) -> None:
        die_with_parent(False)
        if self._orphaned is not None:
            self._orphaned.cancel()
            told = {"after": hello.after, "protocol": hello.protocol}
            log.info("Adopted by a new daemon", action="adopted", **told)
        self._home.reopen_if_deleted(hello.data)
        self._daemon.attach(line)
        self._calls.attach(hello)
        self._claimed.set()
        self._committed = hello.after
        if self.connected:
            await self._daemon.send(self._ready())
        self._outbox.attach(hello.after)

    def _detach(self) -> None:
        self._daemon.detach()
        self._calls.detach()
        if not self._spec.orphan_grace:
            self._ended.set()  # nobody would read a spool
            return
        self._outbox.detach()
        if not self._ended.is_set():
            self._orphaned = self._start(self._wait_for_daemon())

    async def _wait_for_daemon(self) -> None:
        """End the worker if no daemon comes within the grace time; while it is idle, sooner."""
        grace = self._spec.orphan_grace
        await orphan.wait(grace, lambda: self._claude.busy)
        self._why_stopped = TurnFailure(
            ErrorKind.ORPHANED, f"No daemon came back within {grace:g} s, so the turn was stopped."
        )
        self._ended.set()

    async def _frames(self) -> None:
        while True:
            await self._daemon.write(await self._outbox.take())
            await asyncio.sleep(GATHER)

    async def _heartbeats(self) -> None:
        while True:
            hangs = self._claude.silence.lasts
            await self._daemon.send(Heartbeat(epoch=self._spec.epoch, hangs=hangs))
            await asyncio.sleep(HEARTBEAT)
            reap_orphans()

    async def _command(self, frame: ToWorker) -> None:
        if frame.epoch != self._spec.epoch:
            return
        if isinstance(frame, Prompt | Steer):
            self._start(self._claude.orders.carry_out(frame))
            await asyncio.sleep(0)  # it begins before the next frame is taken
        elif isinstance(frame, Interrupt):
            self._start(self._claude.interrupt(frame.turn_id, frame.why))
            await asyncio.sleep(0)  # as above
        elif isinstance(frame, SetMode | SetModel | SetConfig):
            self._claude.choices.choose(frame)
        elif isinstance(frame, Answer):
            self._claude.permissions.resolve(frame)
        elif isinstance(frame, Ack):
            self._outbox.acknowledge(frame.upto)
        elif isinstance(frame, DatabaseAnswer):
            self._calls.answer(frame)
        elif isinstance(frame, Ping):
            if self._claude.alive:
                await self._daemon.send(Pong(epoch=self._spec.epoch))
        elif isinstance(frame, WorkerRequest):
            self._start(self._carry_out(frame))
            await asyncio.sleep(0)  # as above
        elif isinstance(frame, Stop):
            self._dismissed = frame
            await self._claude.orders.stop()  # a turn that was given is told to have ended
            self._ended.set()

    async def _carry_out(self, request: WorkerRequest) -> None:
        await self._daemon.send(await self._claude.carry_out(request))


def run(spec: LaunchSpec, files: WorkerFiles, listener: socket.socket) -> int:
    """Run a worker process; returns its exit status."""
    structlog.contextvars.bind_contextvars(
        session=spec.session_id, epoch=spec.epoch, worker_pid=os.getpid()
    )
    worker = Worker(spec, files)
    try:
        asyncio.run(worker.serve(listener))
    except TimeoutError as error:
        log.warning("No daemon came", action="worker_unclaimed", error=str(error))
        return 1
    if not worker.connected:  # to a Claude that was starting, of whose end the SDK would complain
        worker.end_strays()
    return 0
