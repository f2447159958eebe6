"""Everything but processes and sockets: one data directory, its workers, its fronts, one daemon
after the other.

The daemon is the real one, on real SQLite; its statements run in the event loop's thread, so that a
run is the same each time. Workers and fronts outlive it. Time passes when a test says so.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeVar
from uuid import NAMESPACE_OID, uuid5

import pytest
import structlog

from pykoclaw_acp.channel.files import WorkerFiles
from pykoclaw_acp.channel.frames import (
    Answer,
    AskWithdrawn,
    EventFrame,
    FromWorker,
    Interrupt,
    Numbered,
    Stop,
    ToWorker,
    encode,
)
from pykoclaw_acp.channel.frames import Prompt as PromptFrame
from pykoclaw_acp.channel.processes import WorkerProcess, WorkerRecord
from pykoclaw_acp.channel.spec import LaunchSpec, WorkerIdentity
from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import AcpError, LaunchFailed, StartupError
from pykoclaw_acp.link.places import DATABASE, Places
from pykoclaw_acp.model.events import Text
from pykoclaw_acp.model.permissions import PermissionRequest
from pykoclaw_acp.pool import leftovers
from pykoclaw_acp.pool.launcher import Deliver, Inheritance
from pykoclaw_acp.server import app as server
from pykoclaw_acp.server import client_processes, returning
from pykoclaw_acp.server.clients import CALLS_GRACE
from pykoclaw_acp.server.connection import ClientConnection
from pykoclaw_acp.server.link import FrontPeer
from pykoclaw_acp.server.methods import METHODS
from pykoclaw_acp.store import connection as store_connection
from pykoclaw_acp.store import history_copy, open_file
from pykoclaw_acp.store.sqlite import sqlite3
from pykoclaw_acp.system import processes
from tests.integration.clock import Clock
from tests.integration.memory_front import WORKERS, MemoryFront
from tests.integration.memory_launcher import MemoryChannel, MemoryLauncher
from tests.integration.store_faults import Faults, FaultyLooks, FaultyModule, Life
from tests.promises import Asked

REAL_PAUSE: Final = 0.002  # s
# before time passes: threads that are late must not look like ones that hang
REAL_PAUSES: Final = 10
PATIENCE: Final = 60.0  # s of real time, for what threads do
_SLEEP: Final = time.sleep
FIRST_PID: Final = 1 << 23  # above every process's of Linux
T = TypeVar("T")


class InLoop(ThreadPoolExecutor):
    """Does at once what the program gives to threads: their time is not the program's, and on a
    busy machine hours of the program's pass before they are done. Only sleeping takes a thread.
    """

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        if fn is _SLEEP:
            return super().submit(fn, *args, **kwargs)
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:  # as the executor of threads does
            future.set_exception(error)
        return future


class MemoryWorker(MemoryChannel):
    """A worker that does what a test says: `tell`, `end`, `ask`, `die`; `said` is what it told in
    each turn.
    """

    def __init__(
        self,
        spec: LaunchSpec,
        state: Path,
        process: WorkerProcess,
        given: Callable[[MemoryWorker, str], None],
    ) -> None:
        super().__init__(spec, state, process)
        self._tell_given = given
        self.turns: list[str] = []  # that it was given
        self.current: str | None = None
        self.said: dict[str, str] = {}
        self.done: set[str] = set()
        self.lost_something = False
        self.killed = False

    @property
    def session(self) -> str:
        return self.spec.session_id

    @property
    def alive(self) -> bool:
        return not self._gone.is_set()

    def tell(self, text: str) -> None:
        assert self.current is not None
        self.last += 1
        event = Text(f"{WORKERS}{self.current}", text)
        self.said[self.current] = self.said.get(self.current, "") + text
        self.say(EventFrame(epoch=self.spec.epoch, n=self.last, turn_id=self.current, event=event))

    def end(self, stop: str = "end_turn") -> None:
        assert self.current is not None
        turn, self.current = self.current, None
        self.asks = []
        self.done.add(turn)
        self.say(self.ended(turn, stop))

    def ask(self, name: str) -> None:
        assert self.current is not None
        self.last += 1
        self.asks = [*self.asks, name]
        self.say(
            PermissionRequest(
                epoch=self.spec.epoch, n=self.last, ask_id=name, turn_id=self.current, tool_call_id=f"tool-{name}",
                title="Bash: make", tool_kind="execute", input={"command": "make"}, call="a call",
            )
        )  # fmt: skip

    async def send(self, frame: ToWorker) -> None:
        if not self.alive:
            raise ConnectionResetError
        if isinstance(frame, PromptFrame):
            self.turns.append(frame.turn_id)
            self.current = frame.turn_id
            self._tell_given(self, frame.turn_id)
        if isinstance(frame, Stop):
            self.leave_spool()
        if isinstance(frame, Answer):
            self.asks = [one for one in self.asks if one != frame.ask_id]
        if isinstance(frame, Interrupt):
            if frame.turn_id == self.current:
                for name in self.asks:
                    self.last += 1
                    self.say(AskWithdrawn(epoch=self.spec.epoch, n=self.last, ask_id=name))
                self.end("cancelled")
            return
        await super().send(frame)

    def _play(self, turn_id: str, text: str) -> None:
        self.say(self.started(turn_id))

    def be_killed(self) -> None:
        """A daemon ends it, although it does what it is told."""
        self.killed = self.killed or self.alive
        self.kill()

    def leave_spool(self) -> None:
        """What nobody has acknowledged is kept on disk."""
        spool = Path(self.files.spool)
        spool.parent.mkdir(parents=True, exist_ok=True)
        spool.write_bytes(b"".join(encode(frame) for frame in self.unacknowledged()))

    def unacknowledged(self) -> list[FromWorker]:
        return [one for one in self.told if isinstance(one, Numbered) and one.n > self.acked]


class OneDaemonsChannel:
    """A worker's line as one daemon has it: of a dead daemon nothing arrives any more."""

    def __init__(self, worker: MemoryWorker, life: Life) -> None:
        self.handle = worker.handle
        self._worker = worker
        self._life = life

    @property
    def labels(self) -> dict[str, int | str]:
        return self._worker.labels

    async def send(self, frame: ToWorker) -> None:
        if self._life.over:
            raise ConnectionResetError
        await self._worker.send(frame)

    async def batches(self) -> AsyncIterator[list[FromWorker]]:
        async for batch in self._worker.batches():
            yield batch

    async def gone(self) -> None:
        await self._worker.gone()

    def _do(self, act: Callable[[], None]) -> None:
        if not self._life.over:
            act()

    def kill(self) -> None:
        self._do(self._worker.be_killed)

    def terminate(self) -> None:
        self._do(self._worker.be_killed)

    def detach(self) -> None:
        self._do(self._worker.detach)

    async def close(self) -> None:
        self._do(self._worker.detach)


class WorldLauncher(MemoryLauncher):
    """Workers of all daemons; each has a pid of its own that no process has."""

    def __init__(self, state: Path, given: Callable[[MemoryWorker, str], None]) -> None:
        super().__init__(state)
        self.workers: list[MemoryWorker] = []
        self.deaths = 0
        self._given = given
        self._pids = itertools.count(FIRST_PID)

    def of_daemon(self, life: Life) -> OneDaemonsLauncher:
        return OneDaemonsLauncher(self, life)

    def made(self, spec: LaunchSpec) -> MemoryWorker:
        process = WorkerProcess(next(self._pids), 1, processes.boot_id())
        worker = MemoryWorker(spec, self.state, process, self._given)
        self.workers.append(worker)
        self.launched.append(worker)
        worker.ready()
        return worker

    def die(self, worker: MemoryWorker, *, keeps: bool) -> None:
        """SIGKILL; `keeps`: what was not acknowledged is in its spool, otherwise it is lost with
        its memory.
        """
        if keeps:
            worker.leave_spool()
        elif worker.unacknowledged():
            worker.lost_something = True
        self.deaths += 1
        worker.asks = []
        worker.current = None
        worker.kill()

    def worker(self, identity: WorkerIdentity) -> MemoryWorker | None:
        return next(
            (one for one in self.workers if one.alive and one.spec.cookie == identity.cookie), None
        )


class OneDaemonsLauncher:
    """The launcher of one daemon."""

    def __init__(self, world: WorldLauncher, life: Life) -> None:
        self.whereabouts = world.whereabouts
        self._world = world
        self._life = life

    async def warm(self) -> None:
        pass

    async def launch(self, spec: LaunchSpec) -> OneDaemonsChannel:
        if self._life.over:
            raise LaunchFailed(ErrorKind.START_FAILED, "this daemon is dead")
        return OneDaemonsChannel(self._world.made(spec), self._life)

    async def recover(self, inherited: Inheritance) -> list[WorkerRecord]:
        alive = [one for one in inherited.workers if self._world.worker(one.identity) is not None]
        going_on = list(inherited.choose(alive))
        for one in alive:
            if one not in going_on:
                await self.end(one, 0)
        return going_on

    async def attach(self, worker: WorkerRecord) -> OneDaemonsChannel:
        found = self._world.worker(worker.identity)
        if self._life.over or found is None:
            raise LaunchFailed(ErrorKind.START_FAILED, "it is gone")
        found.adopt()
        return OneDaemonsChannel(found, self._life)

    async def end(self, worker: WorkerRecord, grace: float) -> None:
        found = self._world.worker(worker.identity)
        if found is not None and not self._life.over:
            self._world.die(found, keeps=True)

    async def deliver_spool(self, worker: WorkerIdentity, after: int, into: Deliver) -> None:
        await leftovers.deliver(self._spool(worker), worker.epoch, after, into)

    async def clean(
        self, worker: WorkerIdentity, grace: float, *, keep_spool: bool = False
    ) -> None:
        await self.discard(worker, keep_spool=keep_spool)

    async def discard(self, worker: WorkerIdentity, *, keep_spool: bool = False) -> None:
        if not keep_spool and not self._life.over:
            self._spool(worker).unlink(missing_ok=True)

    async def damaged_spools(self, instances: Collection[str]) -> list[str]:
        return leftovers.kept_of(self._world.state, instances)

    async def prepare(
        self, instance: str, kept: Collection[WorkerRecord], *, spare: bool = False
    ) -> None:
        pass

    def _spool(self, worker: WorkerIdentity) -> Path:
        return Path(WorkerFiles.of(self._world.state / worker.instance, worker).spool)

    async def probe(self) -> None:
        pass

    async def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Author:
    """Who has sent a prompt."""

    client: str
    process: int
    front: str


class World:
    """See above; `settings` go to each daemon."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.faults = Faults()
        self._looks = FaultyLooks(self.faults)
        self.clock = Clock(patch)
        self.launcher = WorldLauncher(path / "state", self._given)
        self.fronts: list[MemoryFront] = []
        self.app: server.App | None = None
        self._settings = Settings(
            data=path / "data", state=path / "state", **{**DEFAULTS, **settings}
        )
        self._places = Places(self._settings.data, self._settings.state, self._settings.socket)
        self._life = Life(self.faults)
        self._connections: list[store_connection.Connection] = []
        self._reopening: asyncio.Task[None] | None = None
        self.walker: asyncio.Task[Any] | None = None  # takes the steps: it ends with no daemon
        self._serving: set[asyncio.Task[None]] = set()
        self.broken: BaseException | None = None  # what a front could not believe
        self.for_nobody: list[
            str
        ] = []  # turns that were waiting at a start, and ran although nobody came
        self._inherited: dict[str, Author] = {}  # such turns, with who sent them
        self._processes = itertools.count(FIRST_PID << 1)  # of clients
        self.aliases: dict[str, str] = {}  # second ids of conversations, with their sessions
        self._authors: dict[str, Author] = {}  # fronts that there ever were
        self._ended: dict[int, float] = {}  # when such a process did
        self._came: list[MemoryFront] = []  # to this daemon, those too that have left it since
        self._reader: sqlite3.Connection | None = None
        self._patch(patch)

    # --- daemons

    async def start(self) -> bool:
        """A daemon, and the fronts come back to it; False if it cannot start, as its
        successor may.
        """
        assert self.app is None
        self._loop = asyncio.get_running_loop()
        self._loop.set_default_executor(InLoop(1))
        life = self._life = Life(self.faults)
        self._inherited, self._came = self._waiting(), []
        try:
            self.app = await self._within(
                server.App.start(self._settings, self._places, resident=True)
            )
        except (StartupError, sqlite3.Error):
            life.end()
            await self._end_tasks()
            await self._close_connections()
            return False
        self._reopening = self._loop.create_task(self._reopen(self.app))
        for front in self.fronts:
            self.connect(front)
        return True

    async def _reopen(self, app: server.App) -> None:
        """As the daemon does whose database must be opened anew."""
        await app.database.reopen_wanted.wait()
        if self.app is app:
            await self._leave()
            await self.start()  # or it is started later

    async def kill(self) -> None:
        """SIGKILL: nobody is told, nothing is tidied up."""
        app, self.app = self.app, None
        assert app is not None
        self._life.end()
        for front in self.fronts:
            front.cut()
        await self._end_tasks()
        await self._close_connections()
        app.identity.release()
        app.lock.release()
        assert app.sessions.locks is not None
        app.sessions.locks.close()

    async def stop(self) -> None:
        """SIGTERM."""
        await self._leave()
        await self._end_tasks()

    async def _leave(self) -> None:
        app, self.app = self.app, None
        assert app is not None
        for front in self.fronts:
            front.cut()
        serving = list(self._serving)
        if serving:
            _, pending = await self._within(asyncio.wait(serving, timeout=CALLS_GRACE))
            for one in pending:  # its calls wait for a store that is to be opened anew
                one.cancel()
        await self._within(asyncio.gather(*serving, return_exceptions=True))
        await self._within(app.detach())
        self._life.end()
        self._connections.clear()

    async def restart(self) -> None:
        """SIGTERM, and the next daemon, which must start."""
        await self.stop()
        assert await self.start()

    async def close(self) -> None:
        """The end of the world."""
        self.faults.heal()
        if self.app is not None:
            await self.kill()
        if self._reader is not None:
            self._reader.close()

    async def _end_tasks(self) -> None:
        spared = (asyncio.current_task(), self.walker)
        for _ in range(100):
            tasks = [task for task in asyncio.all_tasks() if task not in spared]
            if not tasks:
                return
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=0)
            for task in tasks:
                if task.done() and not task.cancelled():
                    task.exception()
        raise AssertionError(f"tasks of a dead daemon do not end: {tasks}")

    async def _close_connections(self) -> None:
        for connection in self._connections:
            await connection.close()
        self._connections.clear()
        self._looks.close_all()

    def give_second_id(self, session: str) -> None:
        """A row of an earlier version's, which the next daemon finds: a second id of a conversation."""
        made = str(uuid5(NAMESPACE_OID, session))
        path = self._settings.data / DATABASE
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(
                "INSERT INTO acp_sessions (acp_session_id, conversation_name, cwd, created_at, updated_at)"
                " SELECT ?, conversation_name, cwd, created_at + 1, updated_at FROM acp_sessions"
                " WHERE acp_session_id = ?",
                (made, session),
            )
        self.aliases[made] = session

    # --- fronts

    def front(self, client: str = "editor", process: int | None = None) -> MemoryFront:
        """Another client: of a process of its own, unless it is said which."""
        made = MemoryFront(client, next(self._processes) if process is None else process)
        self.fronts.append(made)
        self._authors[made.ledger.front] = Author(
            client=made.client, process=made.process, front=made.ledger.front
        )
        if self.app is not None:
            self.connect(made)
        return made

    def connect(self, front: MemoryFront) -> None:
        task = self._loop.create_task(self._serve(front))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    def leave(self, front: MemoryFront) -> None:
        """The client is gone for good, and its front with it."""
        self.fronts.remove(front)
        front.cut()
        if all(one.process != front.process for one in self.fronts):
            self._ended[front.process] = time.monotonic()

    async def _serve(self, front: MemoryFront) -> None:
        assert self.app is not None
        line = front.connect()
        self._came.append(front)
        try:
            peer = await FrontPeer.meet(line, await line.read())
            connection = ClientConnection(self.app.sessions, METHODS, peer)
            try:
                await returning.welcome(connection.client, peer.hello)
                await connection.serve()
                await connection.begun()
            finally:
                connection.leave()
        except ConnectionError:
            return
        except AcpError:  # as a daemon ends a connection of which it cannot read what was before
            front.cut()
            self._loop.call_later(1, self._dial_again, front)
        except AssertionError as error:
            self.broken = self.broken or error
            raise

    def _dial_again(self, front: MemoryFront) -> None:
        if self.app is not None and front in self.fronts:
            self.connect(front)

    # --- waiting

    async def quiet(self) -> None:
        """Return when nothing happens any more without time passing, or a front."""
        reopening = self._reopening
        if self.app is None and reopening is not None and reopening is not asyncio.current_task():
            await asyncio.wait(
                [reopening]
            )  # SQLite's threads close and open its files in their own time
        ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]  # noqa: SLF001  what is due now
        calm = 0
        for _ in range(20_000):
            await asyncio.sleep(0)
            calm = 0 if ready else calm + 1
            if calm == 3:
                return
        raise AssertionError("it never gets quiet")

    async def until(self, condition: Callable[[], T], within: float = 900.0) -> T:
        """Let time pass until the condition is true; `within` seconds of the program's time."""
        for step in self._steps(within):
            await self.quiet()
            if result := condition():
                return result
            self.clock.pass_by(step)
        raise AssertionError(f"not within {within} s of the program's time: {condition}")

    async def pass_by(self, seconds: float) -> None:
        """Time passes, and what is due happens."""
        for step in self._steps(seconds):
            await self.quiet()
            self.clock.pass_by(step)
        await self.quiet()

    async def _within(self, doing: Awaitable[T], within: float = 900.0) -> T:
        """For what threads do, too, to which only real time passes."""
        task = asyncio.ensure_future(doing)
        for step in self._steps(within):
            for _ in range(REAL_PAUSES):
                await asyncio.get_running_loop().run_in_executor(None, _SLEEP, REAL_PAUSE)
                if task.done():
                    return task.result()
            self.clock.pass_by(step)
        for _ in range(int(PATIENCE / REAL_PAUSE)):  # a busy machine's threads are late
            await asyncio.get_running_loop().run_in_executor(None, _SLEEP, REAL_PAUSE)
            if task.done():
                return task.result()
        raise AssertionError(f"not within {within} s of the program's time")

    @staticmethod
    def _steps(within: float) -> Iterator[float]:
        """Small ones first: most of what is waited for comes soon."""
        step, passed = 0.05, 0.0
        while passed < within:
            yield min(step, within - passed) or step
            passed += step
            step = min(step * 1.5, 5.0)

    # --- looking

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """What the file says to another program."""
        if self._reader is None:
            self._reader = sqlite3.connect(
                f"file:{self._settings.data / DATABASE}?mode=ro", uri=True
            )
        return self._reader.execute(query, parameters).fetchall()

    @property
    def workers(self) -> list[MemoryWorker]:
        """All that there ever were."""
        return self.launcher.workers

    def worker(self, session: str) -> MemoryWorker | None:
        """The session's newest worker that lives."""
        alive = [
            one for one in self.launcher.workers if one.spec.session_id == session and one.alive
        ]
        return alive[-1] if alive else None

    def asked(self, method: str) -> list[tuple[MemoryFront, int, Asked]]:
        return [
            (front, number, one)
            for front in self.fronts
            for number, one in front.asked.items()
            if one.method == method
        ]

    def _waiting(self) -> dict[str, Author]:
        keys = "SELECT turn_id, request_key FROM acp_turns WHERE state = 'queued'"
        try:
            found = [(turn, key.rpartition(":")[0]) for turn, key in self.rows(keys) if key]
        except sqlite3.OperationalError:
            return {}  # there is no database yet
        return {turn: self._authors[front] for turn, front in found if front in self._authors}

    def _given(self, worker: MemoryWorker, turn: str) -> None:
        """A worker is given a prompt: if an earlier daemon had accepted it, somebody must stand
        behind it.
        """
        author = self._inherited.get(turn)
        if author is None:
            return
        ids = [one for one, its in self.aliases.items() if its == worker.session]
        ids.append(worker.session)
        if not any(self._stands_behind(front, author, one) for front in self._came for one in ids):
            self.for_nobody.append(turn)

    def _stands_behind(self, front: MemoryFront, author: Author, session: str) -> bool:
        """Whether it is who has sent the prompt, the same process with the session open, or a client of
        its name that has opened the session since that process ended.
        """
        if front.ledger.front == author.front:
            return True
        if front.client != author.client or not front.wants(session):
            return False
        ended = self._ended.get(author.process)
        opened = front.opened_at.get(session, 0.0)
        since = ended is not None and (front.opens(session) or opened >= ended)
        return front.process == author.process or since

    def _lives(self, client_process: str) -> bool:
        return any(f":{front.process}:" in client_process for front in self.fronts)

    # --- in the place of the operating system

    def _patch(self, patch: pytest.MonkeyPatch) -> None:
        opened, world = store_connection.Connection.open, self

        async def open_(path: Path) -> store_connection.Connection:
            made = await opened(path)
            world._connections.append(made)
            return made

        async def run(connection: store_connection.Connection, function: Callable[[Any], T]) -> T:
            return await asyncio.shield(
                asyncio.get_running_loop().create_task(in_loop(connection, function))
            )

        async def in_loop(
            connection: store_connection.Connection, function: Callable[[Any], T]
        ) -> T:
            await asyncio.sleep(0)
            result = function(connection.raw)
            await asyncio.sleep(0)
            return result

        def post(
            connection: store_connection.Connection,
            function: Callable[[Any], T],
            done: Callable[[T], None],
        ) -> None:
            loop = asyncio.get_running_loop()
            loop.call_soon(lambda: loop.call_soon(done, function(connection.raw)))

        async def to_thread(function: Callable[..., T], *arguments: Any, **named: Any) -> T:
            await asyncio.sleep(0)
            return function(*arguments, **named)

        for module in (store_connection, history_copy):
            patch.setattr(module, "sqlite3", FaultyModule(lambda: world._life))
        patch.setattr(open_file, "os", self._looks)
        patch.setattr(client_processes, "alive", self._lives)
        patch.setattr(store_connection.Connection, "open", open_)
        patch.setattr(store_connection.Connection, "run", run)
        patch.setattr(store_connection.Connection, "post", post)
        patch.setattr(asyncio, "to_thread", to_thread)
        patch.setattr(
            server, "LocalLauncher", lambda *_, **__: world.launcher.of_daemon(world._life)
        )
        patch.setattr(server, "gc", SimpleNamespace(freeze=lambda: None, enable=lambda: None))


DEFAULTS: Final[dict[str, Any]] = {
    "stall_timeout": 1e9,  # these workers send no heartbeats
    "worker_start_timeout": 1e9,
    "idle_timeout": 1e9,
    "rejoin_window": 120.0,
}


@contextmanager
def world(path: Path, **settings: Any) -> Iterator[World]:
    """A world without a daemon yet; what it puts in the place of the operating system is taken back
    at the end.
    """
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    try:
        with pytest.MonkeyPatch.context() as patch:
            yield World(path, patch, **settings)
    finally:
        structlog.configure(**before)
