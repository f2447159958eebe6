"""A worker and its daemons over a real socket; only Claude is missing."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Final, cast
from unittest.mock import AsyncMock

import pytest
from claude_agent_sdk import ClaudeSDKClient, Message, SystemMessage

from pykoclaw_acp.channel import socket as channel_socket
from pykoclaw_acp.channel.decoding import decode_from_worker
from pykoclaw_acp.channel.files import WorkerFiles
from pykoclaw_acp.channel.frames import (
    PROTOCOL,
    Ack,
    Answer,
    EventFrame,
    FromWorker,
    Heartbeat,
    Hello,
    Interrupt,
    Lost,
    Ping,
    Place,
    Pong,
    Prompt,
    Ready,
    Stop,
    ToWorker,
    TurnEnded,
    decode_to_worker,
    encode,
)
from pykoclaw_acp.channel.home import HeldDirectory
from pykoclaw_acp.channel.socket import SocketLine, connect, read_frames
from pykoclaw_acp.channel.spec import LaunchSpec
from pykoclaw_acp.channel.steering import Steer
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.events import Text
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.pool.leftovers import read_spool
from pykoclaw_acp.pool.local_whereabouts import ask
from pykoclaw_acp.system import credentials, reaper
from pykoclaw_acp.worker import claude as worker_claude
from pykoclaw_acp.worker import (
    ending,
    main,
    orphan,
    outbox,
    raw_frames,
    reception,
    server_report,
    server_states,
)
from pykoclaw_acp.worker.claude import ClaudeSession
from pykoclaw_acp.worker.database_calls import DatabaseCalls
from pykoclaw_acp.worker.main import Worker
from pykoclaw_acp.worker.outbox import Outbox
from pykoclaw_acp.worker.permissions import PermissionCallbacks
from pykoclaw_acp.worker.server_states import ServerStates
from tests.unit.sdk_messages import result
from tests.waiting import eventually, not_within
from tests.workers import spec

STOPPED: Final = TurnFailure(
    ErrorKind.WORKER_STOPPED, "Claude's worker was stopped in the middle of this turn."
)


class Daemon:
    """The daemon's end of a connection."""

    def __init__(self, line: SocketLine) -> None:
        self.line = line
        self._frames = read_frames(line, decode_from_worker)

    async def send(self, *frames: ToWorker) -> None:
        await self.line.send(b"".join(map(encode, frames)))

    async def receive(self) -> FromWorker | None:
        """The next frame but heartbeats; None at the end."""
        while True:
            frame = await asyncio.wait_for(anext(self._frames, None), 30)
            if not isinstance(frame, Heartbeat):
                return frame

    async def ready(self, after: int = 0, data: str = "") -> Ready:
        await self.send(Hello(epoch=3, after=after, protocol=PROTOCOL, data=data))
        frame = await self.receive()
        assert isinstance(frame, Ready)
        return frame


class Claude(ClaudeSession):
    """A session without Claude, which says what the test does."""

    made: ClassVar[list[Claude]] = []

    def __init__(
        self, spec: LaunchSpec, temporary: str, outbox: Outbox, calls: DatabaseCalls
    ) -> None:
        super().__init__(spec, temporary, outbox, calls)
        self.box = outbox
        self.made.append(self)

    async def connect(self) -> None:
        pass

    async def run(self) -> None:
        await asyncio.get_running_loop().create_future()


class Slow:
    """A CLI with an MCP server that connects, and connects again, for ever; its turn ends when it is
    interrupted.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
        """`directory`: where the user's tokens are kept."""
        self._tokens = directory / credentials.LOGIN
        self._states: list[ServerStates] = []
        self.asked: list[str] = []
        self.given: list[str] = []
        self._lines: asyncio.Queue[Message] = asyncio.Queue()
        monkeypatch.setattr(raw_frames, "received", self._received)
        monkeypatch.setattr(Claude, "run", ClaudeSession.run)
        monkeypatch.setattr(ending, "end", self._end)
        monkeypatch.setattr(worker_claude, "ServerStates", self._make_states)
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(directory))

    async def replace(self, claude: Claude) -> None:
        """Be the session's CLI, whose server wanted a sign-in; the user has signed in since."""
        claude.client = client = cast("ClaudeSDKClient", self)
        lacking = {"name": "slow", "status": server_states.NEEDS_SIGN_IN}
        for states in self._states:
            await states.look(SystemMessage("init", {"mcp_servers": [lacking]}), client, "earlier")
        self.asked.clear()
        self._tokens.write_text("{}")

    def _make_states(self, *given: Any) -> ServerStates:
        self._states.append(ServerStates(*given))
        return self._states[-1]

    async def get_mcp_status(self) -> dict[str, Any]:
        self.asked.append("states")
        return {"mcpServers": [{"name": "slow", "status": "pending"}]}

    async def reconnect_mcp_server(self, name: str) -> None:
        self.asked.append(f"reconnect {name}")
        await asyncio.Event().wait()

    async def query(self, prompts: AsyncIterator[dict[str, Any]]) -> None:
        self.given += [one["uuid"] async for one in prompts]

    async def interrupt(self) -> None:
        if self.given:
            aborted = result(terminal_reason="aborted_tools", user_message_uuids=self.given)
            self._lines.put_nowait(aborted)

    async def _end(self, *_: object, **__: object) -> None:
        await self.interrupt()
        await eventually(self._lines.empty)

    async def _received(self, *_: object) -> AsyncIterator[tuple[Message, raw_frames.RawFrame]]:
        while True:
            yield await self._lines.get(), raw_frames.NO_FRAME


class Rig:
    def __init__(self, directory: Path, grace: float) -> None:
        self.spec = spec(directory, epoch=3, orphan_grace=grace)
        self.files = WorkerFiles.of(directory, self.spec)
        for path in (self.files.socket, self.files.spool):
            os.makedirs(os.path.dirname(path))
        self.listener = listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.files.socket)
        listener.listen()
        self.serving = asyncio.ensure_future(Worker(self.spec, self.files).serve(listener))
        self.claude = Claude.made.pop()

    def stop(self) -> None:
        """Let the worker end, as a service manager does."""
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL, "it does not serve yet"
        signal.raise_signal(signal.SIGTERM)

    async def place(self) -> Place:
        """What the worker tells whoever asks."""
        place = await ask(self.files.socket)
        assert place is not None
        return place

    async def begin(self, cli: Slow) -> Daemon:
        """A daemon that has given a prompt, on which the CLI works."""
        self.claude.client = cast("ClaudeSDKClient", cli)
        daemon = await self.connect()
        await daemon.ready()
        await daemon.send(Prompt(epoch=3, turn_id="t", content=[{"type": "text", "text": "Hi."}]))
        await eventually(lambda: cli.given)
        return daemon

    async def left_alone(self) -> None:
        """Return when the worker has noticed that its daemon is gone."""

        async def is_alone() -> Any:
            return not (await self.place()).attached

        await eventually(is_alone)

    async def connect(self) -> Daemon:
        connection = socket.socket(socket.AF_UNIX)
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, self.files.socket)
        return Daemon(SocketLine(connection))

    def say(self, text: str) -> None:
        self.claude.box.put(EventFrame(epoch=3, turn_id="t", event=Text(text, text)))

    @property
    def on_disk(self) -> list[int]:
        frames = [
            one for batch in read_spool(Path(self.files.spool), self.spec.epoch, 0) for one in batch
        ]
        return [one.n for one in frames if isinstance(one, EventFrame)]


@asynccontextmanager
async def worker(path: Path, grace: float = 100.0) -> AsyncIterator[Rig]:
    rig = Rig(path, grace)
    await asyncio.sleep(0)  # it serves
    try:
        yield rig
    finally:
        rig.stop()
        await asyncio.wait_for(rig.serving, 30)


@pytest.fixture(autouse=True)
def without_claude(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "ClaudeSession", Claude)
    # those of this process are not the worker's
    monkeypatch.setattr(reaper, "end_descendants", lambda grace, spared: [])


async def test_each_daemon_receives_the_frames_it_lacks(tmp_path: Path) -> None:
    async with worker(tmp_path) as rig:
        first = await rig.connect()
        assert (await first.ready()).protocol == PROTOCOL
        rig.say("one")
        rig.say("two")
        got = [await first.receive(), await first.receive()]
        assert [frame.n for frame in got if isinstance(frame, EventFrame)] == [1, 2]
        await first.send(Ack(epoch=3, upto=1))
        await first.line.close()
        rig.say("three")
        second = await rig.connect()
        await second.ready(after=1)
        again = [await second.receive(), await second.receive()]
        assert [frame.n for frame in again if isinstance(frame, EventFrame)] == [2, 3]
        await second.send(Ack(epoch=3, upto=3), Stop(epoch=3))
        assert await second.receive() is None
        await asyncio.wait_for(rig.serving, 30)
        assert rig.on_disk == []
        await second.line.close()


async def test_whoever_asks_where_it_belongs_disturbs_nobody(tmp_path: Path) -> None:
    async with worker(tmp_path) as rig:
        assert (await ask(rig.files.socket)) == Place(
            epoch=3,
            instance=tmp_path.name,
            session_id="session",
            pid=os.getpid(),
            last=0,
            acked=0,
            attached=False,
        )
        data = tmp_path / "data"
        data.mkdir()
        first = await rig.connect()
        await first.ready(data=str(data))
        rig.say("one")
        assert await first.receive() is not None
        moved = data.rename(tmp_path / "moved")
        waiting = await rig.connect()  # the next daemon, which waits until this one is gone
        await waiting.send(Hello(epoch=3, after=0, protocol=PROTOCOL))
        place = await rig.place()
        assert (place.path, place.inode, place.deleted) == (str(moved), moved.stat().st_ino, False)
        assert (place.last, place.acked, place.attached) == (1, 0, True)
        moved.rmdir()
        await first.send(Ack(epoch=3, upto=1))
        rig.say("two")

        async def told() -> Any:
            place = await rig.place()
            return (place.last, place.acked) == (2, 1)

        await eventually(told)
        assert (await rig.place()).deleted
        assert isinstance(await first.receive(), EventFrame)
        await first.line.close()
        assert isinstance(await waiting.receive(), Ready)
        await waiting.line.close()


async def test_worker_follows_daemon_only_when_directory_is_gone(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    held = HeldDirectory(str(one))
    held.reopen_if_deleted(str(other))
    assert held.where().path == str(one)
    one.rmdir()
    held.reopen_if_deleted(str(tmp_path / "nowhere"))
    assert (held.where().path, held.where().deleted) == (str(one), True)
    held.reopen_if_deleted(str(other))
    assert (held.where().path, held.where().deleted) == (str(other), False)
    held.close()
    assert held.where().inode == 0


async def test_dead_daemons_messages_count_before_next_daemons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []
    monkeypatch.setattr(
        PermissionCallbacks, "resolve", lambda self, answer: heard.append(answer.ask_id)
    )
    async with worker(tmp_path) as rig:
        first = await rig.connect()
        await first.ready()
        rig.say("that nobody reads")
        await first.send(
            *(Answer(epoch=3, ask_id=str(at), decision="reject") for at in range(1000))
        )
        await first.line.close()
        second = await rig.connect()
        await second.ready()
        assert heard == [str(at) for at in range(1000)]
        await second.line.close()


@pytest.mark.parametrize(
    "frame",
    [Hello(epoch=2, after=0, protocol=PROTOCOL), Stop(epoch=3)],
    ids=["another epoch", "no hello"],
)
async def test_whoever_is_not_our_daemon_is_turned_away(tmp_path: Path, frame: ToWorker) -> None:
    async with worker(tmp_path) as rig:
        stranger = await rig.connect()
        await stranger.send(frame)
        assert await stranger.receive() is None
        await stranger.line.close()
        ours = await rig.connect()
        await ours.ready()
        await ours.line.close()


async def test_another_user_is_turned_away_unheard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with worker(tmp_path) as rig:
        with monkeypatch.context() as patch:
            patch.setattr(reception, "peer_is_ours", lambda _: False)
            stranger = await rig.connect()
            await stranger.send(Hello(epoch=3, after=0, protocol=PROTOCOL))
            assert await stranger.receive() is None
            await stranger.line.close()
        ours = await rig.connect()
        await ours.ready()
        await ours.line.close()


async def test_idle_orphan_ends_soon_and_leaves_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphan, "IDLE", 0.05)
    monkeypatch.setattr(orphan, "LOOK", 0.01)
    async with worker(tmp_path) as rig:
        daemon = await rig.connect()
        await daemon.ready()
        rig.say("unacknowledged")
        await daemon.receive()
        await daemon.line.close()
        await asyncio.wait_for(rig.serving, 30)
        assert rig.on_disk == [1]


async def test_frames_wait_on_disk_while_unacknowledged(tmp_path: Path) -> None:
    async with worker(tmp_path) as rig:
        daemon = await rig.connect()
        await daemon.ready()
        for said in ("one", "two"):
            rig.say(said)
            assert isinstance(await daemon.receive(), EventFrame)
        await eventually(lambda: rig.on_disk == [1, 2])
        rig.say("three")
        assert isinstance(await daemon.receive(), EventFrame)
        await eventually(lambda: rig.on_disk == [1, 2, 3])
        await daemon.send(Ack(epoch=3, upto=3))
        await eventually(lambda: rig.on_disk == [])
        rig.say("four")
        last = await daemon.receive()
        assert isinstance(last, EventFrame)
        assert last.n == 4
        await daemon.send(Ack(epoch=3, upto=4))
        await daemon.line.close()


async def test_a_worker_without_grace_ends_with_its_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "LATE", 60.0)
    async with worker(tmp_path, grace=0) as rig:
        daemon = await rig.connect()
        await daemon.ready()
        rig.say("unacknowledged")
        await daemon.receive()
        await daemon.line.close()
        await asyncio.wait_for(rig.serving, 30)
        assert rig.on_disk == []


def pair() -> tuple[SocketLine, socket.socket]:
    ours, theirs = socket.socketpair()
    theirs.setblocking(False)
    return SocketLine(ours), theirs


async def test_dead_peers_messages_are_read_though_sending_fails() -> None:
    line, peer = pair()
    peer.send(b"last words\n")
    peer.close()
    with pytest.raises(ConnectionError):
        await line.send(b"x" * 10)
    assert await line.receive() == b"last words\n"
    assert await line.receive() == b""
    await line.close()


async def test_cancelled_sender_leaves_no_partial_frame() -> None:
    line, peer = pair()
    reader = SocketLine(peer)
    big = encode(Interrupt(epoch=1, turn_id="x" * 4_000_000))
    sending = asyncio.ensure_future(line.send(big))
    await asyncio.sleep(0)
    sending.cancel()
    other = asyncio.ensure_future(line.send(encode(Interrupt(epoch=1, turn_id="after it"))))
    frames = read_frames(reader, decode_to_worker)
    got = [await anext(frames), await anext(frames)]
    assert [len(frame.turn_id) for frame in got if isinstance(frame, Interrupt)] == [4_000_000, 8]
    await other
    await line.close()
    await reader.close()


async def test_closing_ends_those_that_wait() -> None:
    line, peer = pair()
    reading = asyncio.ensure_future(line.receive())
    sending = asyncio.ensure_future(line.send(b"x" * 10_000_000))
    await asyncio.sleep(0)
    await line.close()
    assert await reading == b""
    with pytest.raises(ConnectionError):
        await sending
    peer.close()


async def test_daemon_connecting_too_late_is_turned_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closing, closed = asyncio.Event(), asyncio.Event()

    async def close(self: ClaudeSession, *, hooks: bool) -> None:
        closing.set()
        await closed.wait()

    monkeypatch.setattr(ClaudeSession, "close", close)
    async with worker(tmp_path) as rig:
        first = await rig.connect()
        await first.ready()
        await first.line.close()
        rig.stop()
        await closing.wait()
        late = await rig.connect()
        await late.send(Hello(epoch=3, after=0, protocol=PROTOCOL))
        assert await late.receive() is None
        await late.line.close()
        closed.set()


async def test_connected_daemon_may_say_hello_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so when the worker's row is written, for which it may have to wait."""
    monkeypatch.setattr(main, "ACCEPT_WAIT", 1.0)
    async with worker(tmp_path) as rig:
        daemon = await rig.connect()
        await not_within(rig.serving.done, 1.2)
        await daemon.ready()
        await daemon.line.close()


async def test_worker_ends_when_silent_daemon_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "ACCEPT_WAIT", 0.05)
    rig = Rig(tmp_path, 100.0)
    daemon = await rig.connect()
    await daemon.line.close()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(rig.serving), 30)
    assert rig.serving.done()
    rig.listener.close()


async def test_worker_reports_mode_model_and_last_frame(tmp_path: Path) -> None:
    async with worker(tmp_path) as rig:
        first = await rig.connect()
        ready = await first.ready()
        assert (ready.mode, ready.model, ready.upto) == ("default", "default", 0)
        await first.line.close()
        await rig.left_alone()
        rig.say("a")
        rig.say("b")
        second = await rig.connect()
        assert (await second.ready()).upto == 2
        await second.line.close()
        await rig.left_alone()
        third = await rig.connect()
        assert (await third.ready(after=2)).upto == 0
        await third.line.close()


async def test_worker_answers_ping_while_claude_accepts_prompts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alive = iter([False, True])
    monkeypatch.setattr(ClaudeSession, "alive", property(lambda _: next(alive)))
    async with worker(tmp_path) as rig:
        daemon = await rig.connect()
        await daemon.ready()
        await daemon.send(Ping(epoch=3), Ping(epoch=3))
        assert await daemon.receive() == Pong(epoch=3)
        assert next(alive, None) is None
        await daemon.line.close()


async def test_giving_up_without_turn_spoils_no_later_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def received(*_: object) -> AsyncIterator[tuple[Message, raw_frames.RawFrame]]:
        yield result(user_message_uuids=["t"]), raw_frames.NO_FRAME

    monkeypatch.setattr(raw_frames, "received", received)
    async with worker(tmp_path) as rig:
        daemon = await rig.connect()
        await daemon.ready()
        claude = rig.claude
        await claude.give_up(TurnFailure(ErrorKind.SPOOL_FULL, "No room."))
        claude.turns.expect("t")
        claude.client = cast("ClaudeSDKClient", object())
        await ClaudeSession.run(claude)
        claude.client = None
        ended = await daemon.receive()
        assert isinstance(ended, TurnEnded)
        assert ended.error is None
        await daemon.line.close()


@pytest.mark.parametrize(
    "by", [Interrupt(epoch=3, turn_id="t"), Stop(epoch=3)], ids=lambda one: type(one).__name__
)
@pytest.mark.parametrize(("words", "waits"), [("/mcp", "states"), ("Hi.", "reconnect slow")])
async def test_stop_ends_what_prompt_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: ToWorker, words: str, waits: str
) -> None:
    cli = Slow(monkeypatch, tmp_path)
    monkeypatch.setattr(server_report, "SETTLE", 60.0)
    monkeypatch.setattr(server_states, "RETRY_WAIT", 60.0 if words == "Hi." else 0.01)
    async with worker(tmp_path) as rig:
        await cli.replace(rig.claude)
        daemon = await rig.connect()
        await daemon.ready()
        await daemon.send(Prompt(epoch=3, turn_id="t", content=[{"type": "text", "text": words}]))
        await eventually(lambda: waits in cli.asked)
        await daemon.send(by)
        ended = await daemon.receive()
        assert isinstance(ended, TurnEnded)
        assert (ended.turn_id, ended.stop_reason, cli.given) == ("t", "cancelled", ["t"])
        await daemon.line.close()


@pytest.mark.parametrize("grace", [100.0, 0.0], ids=["resident", "one client"])
async def test_signal_cancels_no_turn_under_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grace: float
) -> None:
    """Nobody has cancelled it: it fails, as it does without a daemon."""
    cli = Slow(monkeypatch, tmp_path)
    async with worker(tmp_path, grace) as rig:
        daemon = await rig.begin(cli)
        rig.stop()
        ended = await daemon.receive()
        assert isinstance(ended, TurnEnded)
        assert (ended.stop_reason, ended.error) == (None, STOPPED)
        await daemon.send(Ack(epoch=3, upto=ended.n))
        assert await daemon.receive() is None
        await asyncio.wait_for(rig.serving, 30)
        await daemon.line.close()


async def test_signal_is_told_where_turn_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(main, "END_WAIT", 0.05)
    cli = Slow(monkeypatch, tmp_path)
    monkeypatch.setattr(cli, "interrupt", AsyncMock())
    async with worker(tmp_path) as rig:
        daemon = await rig.begin(cli)
        rig.stop()
        assert await daemon.receive() == Lost(epoch=3, kind=STOPPED.kind, message=STOPPED.message)
        await asyncio.wait_for(rig.serving, 30)
        await daemon.line.close()


async def test_next_daemon_knows_prompt_that_waited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is heard at once, however long the prompt waits."""
    cli = Slow(monkeypatch, tmp_path)
    monkeypatch.setattr(server_states, "RETRY_WAIT", 600)
    async with worker(tmp_path) as rig:
        await cli.replace(rig.claude)
        first = await rig.connect()
        await first.ready()
        text = [{"type": "text", "text": "Hi."}]
        await first.send(Prompt(epoch=3, turn_id="t", content=text))
        await first.send(Steer(epoch=3, turn_id="s", content=text, said=[]))
        await eventually(lambda: cli.asked)
        await first.line.close()
        second = await rig.connect()
        ready = await second.ready()
        assert (ready.turn_id, ready.running, ready.steered) == ("t", ["t"], ["s"])
        assert cli.given == []
        assert rig.claude.busy, "without a daemon it has something to do"
        await second.send(Interrupt(epoch=3, turn_id="t"))
        assert isinstance(await second.receive(), TurnEnded)
        await second.line.close()


async def test_tools_get_time_unless_a_daemon_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[float] = []

    def end(grace: float, spared: int | None) -> list[reaper.Stray]:
        given.append(grace)
        return []

    monkeypatch.setattr(reaper, "end_descendants", end)
    for alone in (True, False):
        async with worker(tmp_path / str(alone)) as rig:
            daemon = await rig.connect()
            await daemon.ready()
            if alone:
                await daemon.line.close()
                await rig.left_alone()
        await daemon.line.close()
    assert given == [main.STRAYS_GRACE, 0]


class ShortOfMemory(socket.socket):
    """A socket for whose larger pieces there is no room."""

    def recv(self, size: int, flags: int = 0, /) -> bytes:
        if size > 4096:
            raise MemoryError
        return super().recv(size, flags)


async def test_little_memory_cuts_no_connection() -> None:
    near, far = socket.socketpair()
    line = SocketLine(ShortOfMemory(fileno=near.detach()))
    far.sendall(b"x" * 10_000)
    far.close()
    received = b""
    while piece := await line.receive():
        received += piece
    assert received == b"x" * 10_000
    await line.close()


async def test_worker_that_is_busy_is_connected_to_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that hangs is not taken for another user's."""
    path, waiting = str(tmp_path / "w.sock"), []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen(1)
        error = 0
        while error != errno.EAGAIN:
            waiting.append(socket.socket(socket.AF_UNIX))
            waiting[-1].setblocking(False)
            error = waiting[-1].connect_ex(path)
        with monkeypatch.context() as impatient:
            impatient.setattr(channel_socket, "BUSY_WAIT", 0.0)
            with pytest.raises(ConnectionError, match="may hang"):
                await connect(path)
        monkeypatch.setattr(channel_socket, "BUSY_WAIT", 60.0)
        connecting = asyncio.create_task(connect(path))
        await not_within(connecting.done)
        waiting.append(listener.accept()[0])
        waiting.append(await connecting)
    for one in waiting:
        one.close()
