"""Workers in memory: fifty of them cost nothing. What a worker does is said in the
prompt's text.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Collection, Sequence
from pathlib import Path
from typing import Any

from pykoclaw_acp.channel.files import WorkerFiles
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
from pykoclaw_acp.channel.processes import WorkerHandle, WorkerProcess, WorkerRecord
from pykoclaw_acp.channel.requests import StopSubagents, WorkerReply, WorkerRequest
from pykoclaw_acp.channel.spec import LaunchSpec, WorkerIdentity
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import LaunchFailed
from pykoclaw_acp.link.records import Site
from pykoclaw_acp.model.choices import Config
from pykoclaw_acp.model.events import WHY, Event, Text, note_event
from pykoclaw_acp.pool.launcher import Deliver, Inheritance
from pykoclaw_acp.pool.whereabouts import Sighting, Unlisted, Whereabouts

MEMORY = 50_000_000  # bytes
_pids = itertools.count(1_000_000)


class MemoryChannel:
    """A worker: `say N` makes it answer N deltas, `die` makes it die, `hang` lets it wait to be
    interrupted, `refuse` ends with a refusal.

    `pace N MS SIZE` makes it answer N deltas of SIZE bytes, MS ms apart; each says when it left
    (ns, monotonic). It outlives its daemon, and can be attached to by the next one. `deaf`: it
    lives, and takes no command any more; `hangs`: it does not even live; `full` is set when there
    is room again in the line to it.
    """

    def __init__(self, spec: LaunchSpec, state: Path, process: WorkerProcess | None = None) -> None:
        self.spec = spec
        self.files = WorkerFiles.of(state / spec.instance, spec)
        self.handle = WorkerHandle(
            process or WorkerProcess(next(_pids), 0, "boot"), self.files.socket
        )
        self.protocol = PROTOCOL
        self.asks: list[str] = []
        self.mode: str | None = None
        self.config: Config | None = Config()  # None: of a version before SetConfig
        self.model: str | None = None
        self.upto = 0
        self.blocks = True  # it takes images and files; False: as an earlier version
        self.got: list[ToWorker] = []
        self.terminated = False
        self.acked = 0
        self.deaf = False
        self.replies: tuple[type[WorkerRequest], ...] = (StopSubagents,)  # what it answers at once
        self.hangs = False
        self.full: asyncio.Event | None = None
        self.prompts: list[str] = []
        self.contents: list[list[dict[str, Any]]] = []
        self.answers: list[Answer] = []
        self.last = 0  # number of the newest frame
        self.told: list[FromWorker] = []
        self.adopted = False
        self._given: str | None = None
        self._out: asyncio.Queue[list[FromWorker] | None] = asyncio.Queue()
        self._gone = asyncio.Event()
        self._pacing: asyncio.Task[None] | None = None
        self.tasks = 0  # that run in the background
        self.running: list[str] | None = None  # what it says of that to a daemon; None: nothing

    def say(self, *frames: FromWorker) -> None:
        """Let the worker send these frames, as they are."""
        self.told.extend(frame for frame in frames if isinstance(frame, Numbered))
        self._out.put_nowait(list(frames))

    def adopt(self) -> None:
        """A new daemon connects: the worker answers its Hello."""
        self.adopted = True
        self._out = asyncio.Queue()

    def ready(self, *frames: FromWorker) -> None:
        """Say what it is and does, and these earlier reports, all at once."""
        said = Ready(
            epoch=self.spec.epoch,
            pid=self.handle.process.pid,
            protocol=self.protocol,
            claude_session_id=self.claude,
            fresh=self.claude != self.spec.resume_session_id,
            turn_id=self._given,
            asks=self.asks,
            mode=self.mode,
            config=self.config,
            model=self.model,
            upto=self.upto,
            blocks=self.blocks,
            steers=True,
            running=self.running,
            background=self.tasks,
        )
        self._out.put_nowait([said, *frames])

    def report(self, turn_id: str | None, *events: Event) -> None:
        """Report these events."""
        for event in events:
            self.last += 1
            self.say(EventFrame(epoch=self.spec.epoch, n=self.last, turn_id=turn_id, event=event))

    def event(self, turn_id: str, text: str) -> EventFrame:
        self.last += 1
        return EventFrame(
            epoch=self.spec.epoch, n=self.last, turn_id=turn_id, event=Text("m", text)
        )

    def started(self, turn_id: str, *, background: bool = False) -> TurnStarted:
        self.last += 1
        return TurnStarted(
            epoch=self.spec.epoch, n=self.last, turn_id=turn_id, background=background
        )

    def begin_own(self, turn_id: str, *calls: str) -> None:
        """Claude begins a turn by itself, as these calls have ended."""
        self.say(self.started(turn_id, background=True))
        self.last += 1
        why = note_event(f"{turn_id}{WHY}", "> Why.", calls)
        self.say(EventFrame(epoch=self.spec.epoch, n=self.last, turn_id=None, event=why))

    def background(self, running: int) -> None:
        self.last += 1
        self.tasks = running
        self.say(Background(epoch=self.spec.epoch, n=self.last, running=running))

    def ended(self, turn_id: str, stop: str = "end_turn") -> TurnEnded:
        self.last += 1
        return TurnEnded(
            epoch=self.spec.epoch,
            n=self.last,
            turn_id=turn_id,
            stop_reason=stop,
            claude_session_id=self.claude,
            last_uuid=f"end-{turn_id}",
        )

    @property
    def claude(self) -> str:
        """Its Claude session."""
        fresh = self.spec.branch is not None or self.spec.resume_session_id is None
        return self.spec.session_id if fresh else self.spec.resume_session_id or ""

    @property
    def labels(self) -> dict[str, int | str]:
        return {"worker_pid": self.handle.process.pid}

    async def send(self, frame: ToWorker) -> None:
        if self.dead:
            raise ConnectionResetError
        self.got.append(frame)
        if self.full is not None:
            await self.full.wait()
        if isinstance(frame, Ping) and not self.hangs:
            self.say(Pong(epoch=self.spec.epoch))
        if self.deaf or self.hangs:
            return
        if isinstance(frame, Hello) and self.adopted:
            later = [one for one in self.told if isinstance(one, Numbered) and one.n > frame.after]
            self.ready(*later)
        elif isinstance(frame, Answer):
            self.answers.append(frame)
        elif isinstance(frame, Prompt):
            self._given = frame.turn_id
            self.contents.append(frame.content)
            text = str(frame.content[-1]["text"])
            self.prompts.append(text)
            self._play(frame.turn_id, text)
        elif isinstance(frame, self.replies):
            self.say(WorkerReply(epoch=self.spec.epoch, request=frame.request))
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
        elif word.startswith("/"):
            self.say(self.ended(turn_id))
        elif word == "refuse":
            self.say(self.event(turn_id, "I will not."), self.ended(turn_id, "refusal"))
        elif word == "die":
            if rest:
                self.say(self.event(turn_id, rest))
            self.kill()
        elif word == "pace":
            self._pacing = asyncio.get_running_loop().create_task(
                self._pace(turn_id, *map(int, rest.split()))
            )

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

    @property
    def dead(self) -> bool:
        return self._gone.is_set()

    def kill(self) -> None:
        self._gone.set()
        self._out.put_nowait(None)

    def detach(self) -> None:
        self._out.put_nowait(None)

    def terminate(self) -> None:
        self.terminated = self.dead is False
        if not self.deaf:
            self.kill()

    async def close(self) -> None:
        self._out.put_nowait(None)


class MemoryWhereabouts:
    """All live workers of the launcher work for the data directory that is here."""

    def __init__(self, launcher: MemoryLauncher) -> None:
        self._launcher = launcher

    def lives(self, worker: WorkerRecord) -> bool:
        return self._launcher.channel(worker.identity) is not None

    async def locate(self, worker: WorkerRecord, here: Site) -> Sighting:
        return Sighting("here")

    def survey(self, here: Site, listed: Collection[WorkerRecord]) -> list[Unlisted]:
        return []

    def launched_for(self, worker: WorkerRecord) -> str:
        return "memory"

    def memory(self, workers: Sequence[WorkerRecord]) -> list[int | None]:
        return [MEMORY if self.lives(worker) else None for worker in workers]

    def server_memory(self, workers: Collection[WorkerRecord]) -> int | None:
        return MEMORY

    def sessions(self, workers: Collection[WorkerRecord]) -> dict[tuple[int, int], str]:
        return {}


class MemoryLauncher:
    """`refuse`: the next launches fail; `slow`: launched workers are not ready by themselves.

    `blocks`: as in Ready, of the next ones. `process` stands for all of its workers, as their rows
    name it; `unreachable`: no daemon can attach to them.
    """

    def __init__(self, state: Path) -> None:
        self.whereabouts: Whereabouts = MemoryWhereabouts(self)
        self.state = state
        self.process: WorkerProcess | None = None
        self.launched: list[MemoryChannel] = []
        self.cleaned: list[str] = []
        self.kept: list[str] = []
        self.ended: list[WorkerHandle] = []
        self.unreachable = False
        self.spools: dict[str, list[list[FromWorker]]] = {}
        self.damaged: dict[str, list[str]] = {}
        self.refuse = False
        self.break_clean_up = False
        self.slow = False
        self.blocks = True
        self.most = 0

    @property
    def live(self) -> list[MemoryChannel]:
        return [channel for channel in self.launched if not channel.dead]

    async def warm(self) -> None:
        pass

    async def launch(self, spec: LaunchSpec) -> MemoryChannel:
        if self.refuse:
            raise LaunchFailed(ErrorKind.START_FAILED, "no memory")
        channel = MemoryChannel(spec, self.state, self.process)
        self.launched.append(channel)
        self.most = max(self.most, len(self.live))
        channel.blocks = self.blocks
        if not self.slow:
            channel.ready()
        return channel

    def channel(self, worker: WorkerIdentity) -> MemoryChannel | None:
        """The live worker that this is."""
        return next((one for one in self.live if one.spec.cookie == worker.cookie), None)

    async def recover(self, inherited: Inheritance) -> list[WorkerRecord]:
        alive = [one for one in inherited.workers if self.channel(one.identity) is not None]
        going_on = list(inherited.choose(alive))
        for channel in self.live:
            cookie = channel.spec.cookie
            claimed = any(
                one.identity.cookie == cookie for one in inherited.workers
            ) or inherited.owns(cookie)
            if claimed and all(one.identity.cookie != cookie for one in going_on):
                channel.kill()
        return going_on

    async def attach(self, worker: WorkerRecord) -> MemoryChannel:
        channel = self.channel(worker.identity)
        if channel is None or self.unreachable:
            raise LaunchFailed(ErrorKind.START_FAILED, "it is gone")
        channel.adopt()
        return channel

    async def end(self, worker: WorkerRecord, grace: float) -> None:
        self.ended.append(worker.handle)
        if (channel := self.channel(worker.identity)) is not None:
            channel.kill()

    async def deliver_spool(self, worker: WorkerIdentity, after: int, into: Deliver) -> None:
        for batch in self.spools.pop(worker.cookie, []):
            if told := [one for one in batch if not isinstance(one, Numbered) or one.n > after]:
                await into(told)

    async def clean(
        self, worker: WorkerIdentity, grace: float, *, keep_spool: bool = False
    ) -> None:
        if self.break_clean_up:
            raise OSError("too many open files")
        self.cleaned.append(worker.cookie)
        await self.discard(worker, keep_spool=keep_spool)

    async def discard(self, worker: WorkerIdentity, *, keep_spool: bool = False) -> None:
        if keep_spool:
            self.kept.append(worker.cookie)
        else:
            self.spools.pop(worker.cookie, None)

    async def damaged_spools(self, instances: Collection[str]) -> list[str]:
        return [path for name in sorted(instances) for path in self.damaged.get(name, [])]

    async def prepare(
        self, instance: str, kept: Collection[WorkerRecord], *, spare: bool = False
    ) -> None:
        if not spare:
            names = {one.identity.cookie for one in kept}
            self.spools = {name: left for name, left in self.spools.items() if name in names}

    async def probe(self) -> None:
        pass

    async def close(self) -> None:
        pass
