"""Workers in memory: fifty of them cost nothing. What a worker does is said in the prompt's text."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator

from pykoclaw_acp.channel.frames import (
    PROTOCOL,
    Ack,
    Answer,
    Background,
    EventFrame,
    FromWorker,
    Hello,
    Interrupt,
    Numbered,
    Ping,
    Pong,
    Prompt,
    Ready,
    Stop,
    ToWorker,
    TurnEnded,
    TurnStarted,
)
from pykoclaw_acp.channel.processes import LeftWorker, WorkerProcess
from pykoclaw_acp.channel.spec import LaunchSpec, WorkerIdentity
from pykoclaw_acp.errors import LaunchFailed
from pykoclaw_acp.model.events import Text

_pids = itertools.count(1_000_000)


class MemoryChannel:
    """A worker: `say N` makes it answer N deltas, `die` makes it die, `hang` lets it wait to be interrupted.

    `pace N MS SIZE` makes it answer N deltas of SIZE bytes, MS ms apart; each says when it left (ns, monotonic).
    It outlives its daemon, and can be attached to by the next one. `deaf`: it lives, and takes no command any more;
    `hangs`: it does not even live; `full` is set when there is room again in the line to it.
    """

    def __init__(self, spec: LaunchSpec, process: WorkerProcess | None = None) -> None:
        self.spec = spec
        self.process = process or WorkerProcess(next(_pids), 0, "boot")
        self.protocol = PROTOCOL
        self.asks: list[str] = []
        self.mode: str | None = None
        self.model: str | None = None
        self.upto = 0
        self.got: list[ToWorker] = []
        self.terminated = False
        self.acked = 0
        self.deaf = False
        self.hangs = False
        self.full: asyncio.Event | None = None
        self.prompts: list[str] = []
        self.answers: list[Answer] = []
        self._n = 0
        self._told: list[FromWorker] = []
        self._adopted = False
        self._given: str | None = None
        self._out: asyncio.Queue[list[FromWorker] | None] = asyncio.Queue()
        self._gone = asyncio.Event()
        self._pacing: asyncio.Task[None] | None = None

    def say(self, *frames: FromWorker) -> None:
        """Let the worker send these frames, as they are."""
        self._told.extend(frame for frame in frames if isinstance(frame, Numbered))
        self._out.put_nowait(list(frames))

    def adopt(self) -> None:
        """A new daemon connects: the worker answers its Hello."""
        self._adopted = True
        self._out = asyncio.Queue()

    def ready(self) -> None:
        self.say(
            Ready(
                epoch=self.spec.epoch,
                pid=self.process.pid,
                protocol=self.protocol,
                claude_session_id=self.spec.resume_session_id or self.spec.session_id,
                fresh=self.spec.resume_session_id is None,
                turn_id=self._given,
                asks=self.asks,
                mode=self.mode,
                model=self.model,
                upto=self.upto,
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
        self.got.append(frame)
        if self.full is not None:
            await self.full.wait()
        if isinstance(frame, Ping) and not self.hangs:
            self.say(Pong(epoch=self.spec.epoch))
        if self.deaf or self.hangs:
            return
        if isinstance(frame, Hello) and self._adopted:
            self.ready()
            self._out.put_nowait([one for one in self._told if isinstance(one, Numbered) and one.n > frame.after])
        elif isinstance(frame, Answer):
            self.answers.append(frame)
        elif isinstance(frame, Prompt):
            self._given = frame.turn_id
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
        elif word == "pace":
            self._pacing = asyncio.get_running_loop().create_task(self._pace(turn_id, *map(int, rest.split())))

    async def _pace(self, turn_id: str, count: int, interval: int, size: int) -> None:
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for at in range(count):
            await asyncio.sleep(max(0.0, begun + at * interval / 1000 - loop.time()))
            self.say(self.event(turn_id, f"{at}@{time.monotonic_ns()} ".ljust(size, "x")))
        self.say(self.ended(turn_id))

    async def batches(self) -> AsyncIterator[list[FromWorker]]:
        while (batch := await self._out.get()) is not None:
            yield batch

    async def gone(self) -> None:
        await self._gone.wait()

    def kill(self) -> None:
        self._gone.set()
        self._out.put_nowait(None)

    def detach(self) -> None:
        self._out.put_nowait(None)

    def terminate(self) -> None:
        self.terminated = self._gone.is_set() is False
        if not self.deaf:
            self.kill()

    async def close(self) -> None:
        self._out.put_nowait(None)


class MemoryLauncher:
    """`refuse`: the next launches fail; `slow`: launched workers are not ready by themselves.

    `process` stands for all of its workers, as their rows name it; `unreachable`: no daemon can attach to them.
    """

    def __init__(self) -> None:
        self.process: WorkerProcess | None = None
        self.launched: list[MemoryChannel] = []
        self.cleaned: list[str] = []
        self.kept: list[str] = []
        self.ended: list[WorkerProcess] = []
        self.unreachable = False
        self.spools: dict[str, list[list[FromWorker]]] = {}
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
            raise LaunchFailed("start_failed", "no memory")
        channel = MemoryChannel(spec, self.process)
        self.launched.append(channel)
        self.most = max(self.most, len(self.live))
        if not self.slow:
            channel.ready()
        return channel

    async def attach(self, left: LeftWorker) -> MemoryChannel:
        for channel in self.live:
            if channel.spec.cookie == left.identity.cookie and not self.unreachable:
                channel.adopt()
                return channel
        raise LaunchFailed("start_failed", "it is gone")

    def spooled(self, identity: WorkerIdentity, after: int) -> list[list[FromWorker]]:
        left = self.spools.pop(identity.cookie, [])
        return [[one for one in batch if not isinstance(one, Numbered) or one.n > after] for batch in left]

    async def end(self, process: WorkerProcess, grace: float) -> None:
        self.ended.append(process)

    async def clean(self, identity: WorkerIdentity, grace: float, *, keep_spool: bool = False) -> None:
        if self.break_clean_up:
            raise OSError("too many open files")
        self.cleaned.append(identity.cookie)
        if keep_spool:
            self.kept.append(identity.cookie)

    async def probe(self) -> None:
        pass

    async def close(self) -> None:
        pass
