"""Workers in memory: fifty of them cost nothing. What a worker does is said in the prompt's text."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

from pykoclaw_acp.pool.launcher import LaunchFailed, WorkerProcess
from pykoclaw_acp.sessions.events import Text
from pykoclaw_acp.worker.frames import (
    PROTOCOL,
    Ack,
    Background,
    EventFrame,
    FromWorker,
    Interrupt,
    Prompt,
    Ready,
    Stop,
    ToWorker,
    TurnEnded,
    TurnStarted,
)
from pykoclaw_acp.worker.spec import LaunchSpec

_pids = itertools.count(1_000_000)


class MemoryChannel:
    """A worker: `say N` makes it answer N deltas, `die` makes it die, `hang` lets it wait to be interrupted."""

    def __init__(self, spec: LaunchSpec) -> None:
        self.spec = spec
        self.process = WorkerProcess(next(_pids), 0, "boot")
        self.acked = 0
        self.deaf = False
        self.prompts: list[str] = []
        self._n = 0
        self._out: asyncio.Queue[list[FromWorker] | None] = asyncio.Queue()
        self._gone = asyncio.Event()

    def say(self, *frames: FromWorker) -> None:
        """Let the worker send these frames, as they are."""
        self._out.put_nowait(list(frames))

    def ready(self) -> None:
        self.say(
            Ready(
                epoch=self.spec.epoch,
                pid=self.process.pid,
                protocol=PROTOCOL,
                claude_session_id=self.spec.resume_session_id or self.spec.session_id,
                fresh=self.spec.resume_session_id is None,
            )
        )

    def event(self, turn_id: str, text: str) -> EventFrame:
        self._n += 1
        return EventFrame(epoch=self.spec.epoch, n=self._n, turn_id=turn_id, event=Text("m", text))

    def started(self, turn_id: str, *, background: bool = False) -> TurnStarted:
        self._n += 1
        return TurnStarted(epoch=self.spec.epoch, n=self._n, turn_id=turn_id, background=background)

    def background(self, running: int) -> None:
        self._n += 1
        self.say(Background(epoch=self.spec.epoch, n=self._n, running=running))

    def ended(self, turn_id: str, stop: str = "end_turn") -> TurnEnded:
        self._n += 1
        return TurnEnded(
            epoch=self.spec.epoch, n=self._n, turn_id=turn_id, stop_reason=stop, claude_session_id=self.spec.session_id
        )

    async def send(self, frame: ToWorker) -> None:
        if self._gone.is_set():
            raise ConnectionResetError
        if self.deaf:
            return
        if isinstance(frame, Prompt):
            text = str(frame.content[0]["text"])
            self.prompts.append(text)
            self._play(frame.turn_id, text)
        elif isinstance(frame, Interrupt):
            self.say(self.ended(frame.turn_id, "cancelled"))
        elif isinstance(frame, Ack):
            self.acked = frame.upto
        elif isinstance(frame, Stop):
            self.kill()

    def _play(self, turn_id: str, text: str) -> None:
        word, _, rest = text.partition(" ")
        self.say(self.started(turn_id))
        if word == "say":
            for at in range(int(rest)):
                self.say(self.event(turn_id, f"{at} "))
            self.say(self.ended(turn_id))
        elif word == "die":
            if rest:
                self.say(self.event(turn_id, rest))
            self.kill()

    async def batches(self) -> AsyncIterator[list[FromWorker]]:
        while (batch := await self._out.get()) is not None:
            yield batch

    async def gone(self) -> None:
        await self._gone.wait()

    def kill(self) -> None:
        self._gone.set()
        self._out.put_nowait(None)

    def terminate(self) -> None:
        if not self.deaf:
            self.kill()

    async def close(self) -> None:
        self.kill()


class MemoryLauncher:
    """`refuse`: the next launches fail; `slow`: launched workers are not ready by themselves."""

    def __init__(self) -> None:
        self.launched: list[MemoryChannel] = []
        self.cleaned: list[str] = []
        self.refuse = False
        self.break_clean_up = False
        self.slow = False
        self.most = 0

    @property
    def live(self) -> list[MemoryChannel]:
        return [channel for channel in self.launched if not channel._gone.is_set()]

    async def warm(self) -> None:
        pass

    async def launch(self, spec: LaunchSpec) -> MemoryChannel:
        if self.refuse:
            raise LaunchFailed("no memory")
        channel = MemoryChannel(spec)
        self.launched.append(channel)
        self.most = max(self.most, len(self.live))
        if not self.slow:
            channel.ready()
        return channel

    async def clean(self, spec: LaunchSpec, grace: float) -> None:
        if self.break_clean_up:
            raise OSError("too many open files")
        self.cleaned.append(spec.cookie)

    async def close(self) -> None:
        for channel in self.live:
            channel.kill()
