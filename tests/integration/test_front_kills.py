"""A daemon that dies at any byte: what the client sees is the log, once, and each request has one
answer.
"""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.link.places import Places
from tests.integration.front_harness import WAIT, Client, Connection, Daemon, encode, result

KILLS = 25  # of the daemon, in one test


class Killed(Exception):
    """The daemon's process is gone."""


class World:
    """What a real daemon has in its database: the session's log, and what came of each of the
    client's lines.
    """

    def __init__(self) -> None:
        self.log: list[
            bytes | None
        ] = []  # None: the client's own message, which is not shown to it
        self.ends: dict[
            int, int
        ] = {}  # line number: how long the log is when its answer may go out
        self.answers: dict[int, bytes] = {}
        self.asked: dict[str, int | None] = {}  # question: number of the line that answered it
        self.prompts: list[str] = []
        self.notes: set[int] = set()


class Life:
    """One life of a daemon, which ends after some bytes were written, or some lines were read."""

    def __init__(self, world: World, connection: Connection, chance: random.Random | None) -> None:
        self._world = world
        self._connection = connection
        self._random = chance or random.Random(0)
        self._bytes = self._random.randrange(1, 6000) if chance else -1
        self._lines = self._random.randrange(1, 8) if chance else -1
        self._place: int | None = None  # of the client in the log
        self._load = 0
        self._open: list[int] = []
        self._number = 0
        self._notes: list[int] = []

    def run(self) -> None:
        """Until it is killed, or the client is gone."""
        hello = self._hello()
        if "s" in hello["sessions"]:
            followed = hello["sessions"]["s"]
            self._attach(followed["seq"], followed["line"])
        for ask_id in hello["asked"]:
            assert self._world.asked[ask_id] is None
        self._pump()
        while line := self._connection.line():
            self._lines -= 1
            if self._lines == 0:
                raise Killed
            self._take(line)
            self._pump()

    def _hello(self) -> dict[str, Any]:
        kind, _, known = self._connection.line().partition(b" ")
        if kind != b"front":
            raise Killed
        self._send(b'welcome {"version":"0","link":1}')
        value = json.loads(known)
        assert isinstance(value, dict)
        return value

    def _take(self, line: bytes) -> None:
        kind, _, rest = line.partition(b" ")
        if kind not in (b">", b">>"):
            return
        number, rest = int(rest.split(b" ", 1)[0]), rest.split(b" ", 1)[1]
        message = json.loads(rest.split(b" ", 1)[1] if kind == b">>" else rest)
        assert number > self._number  # in order, each once in a life
        self._number = number
        if "method" not in message:
            self._world.asked[message["id"]] = number
            self._notes.append(number)
        elif "id" not in message:
            self._world.notes.add(number)
            self._notes.append(number)
        else:
            self._request(number, message)

    def _request(self, number: int, message: Any) -> None:
        world, method = self._world, message["method"]
        if number not in world.answers:
            value: dict[str, Any] = {}
            if method == "session/new":
                value = {"sessionId": "s"}
            elif method == "session/prompt":
                world.prompts.append(message["params"]["text"])
                world.log.append(None)
                for _ in range(message["params"]["updates"]):
                    world.log.append(
                        encode({"seq": len(world.log) + 1, "pad": "x" * self._random.randrange(60)})
                    )
                world.asked[f"ask-{number}"] = None
            world.ends[number] = len(world.log)
            world.answers[number] = result(message["id"], value)
        if method == "session/new" and self._place is None:
            self._attach(0, 0)
        elif method == "session/load" and self._load != number:
            self._attach(0, number)
        self._open.append(number)

    def _attach(self, seq: int, line: int) -> None:
        self._place, self._load = seq, line
        self._send(b'attached 1 %d %d "s"' % (seq, line))

    def _pump(self) -> None:
        world = self._world
        for number in self._notes:
            self._send(b"ack %d" % number)
        self._notes.clear()
        for number in list(self._open):
            while self._place is not None and self._place < world.ends[number]:
                self._place += 1
                update = world.log[self._place - 1]
                head = (
                    b"cursor 1 %d" % self._place
                    if update is None
                    else b"update 1 %d %b" % (self._place, update)
                )
                self._send(head)
            ask_id = f"ask-{number}"
            if world.asked.get(ask_id, 0) is None:
                self._send(
                    b'request "%b" %b' % (ask_id.encode(), encode({"id": ask_id, "method": "ask"}))
                )
                continue
            self._send(b"answer %d %b" % (number, world.answers[number]))
            self._open.remove(number)

    def _send(self, line: bytes) -> None:
        data = line + b"\n"
        if 0 < self._bytes <= len(data):
            self._connection.socket.sendall(data[: self._bytes - 1])
            raise Killed
        self._bytes -= len(data) if self._bytes > 0 else 0
        try:
            self._connection.socket.sendall(data)
        except OSError:
            raise Killed from None


class Lives(threading.Thread):
    """One daemon after the other."""

    def __init__(self, daemon: Daemon, world: World, seed: int) -> None:
        super().__init__()
        self._daemon = daemon
        self._world = world
        self._random = random.Random(seed)
        self.over = False
        self.kills = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.over:
                try:
                    connection = self._daemon.accept()
                except TimeoutError:
                    continue
                self._live(connection)
        except BaseException as error:
            self.error = error
            self._daemon.stop()

    def _live(self, connection: Connection) -> None:
        chance = self._random if self.kills < KILLS else None
        try:
            Life(self._world, connection, chance).run()
        except (Killed, ConnectionError):
            self.kills += 1
            self._daemon.restart()


class Story:
    """What a client does, one thing after the other, and all that it must see."""

    def __init__(self, client: Client, seed: int) -> None:
        self._client = client
        self._random = random.Random(seed)
        self._length = 0  # of the log
        self._own: set[int] = set()  # places of the client's messages in it
        self.texts: list[str] = []
        self.notes = 0

    def tell(self) -> None:
        assert self._until(self._client.request("initialize", {"protocolVersion": 1})) == []
        assert (
            self._until(self._client.request("session/new", {"cwd": "/", "mcpServers": []})) == []
        )
        for _ in range(12):
            if self._random.random() < 0.25:
                self._load()
            else:
                self._prompt()

    def _prompt(self) -> None:
        text, count = f"prompt {len(self.texts)}", self._random.randrange(1, 40)
        self.texts.append(text)
        request_id = self._client.request(
            "session/prompt", {"sessionId": "s", "text": text, "updates": count}
        )
        if self._random.random() < 0.5:
            self._client.notify("note")
            self.notes += 1
        seen = self._until(request_id)
        assert seen == list(range(self._length + 2, self._length + 2 + count))
        self._own.add(self._length + 1)
        self._length += 1 + count

    def _load(self) -> None:
        parameters = {"sessionId": "s", "cwd": "/", "mcpServers": []}
        seen = self._until(self._client.request("session/load", parameters))
        assert seen == [seq for seq in range(1, self._length + 1) if seq not in self._own]

    def _until(self, request_id: int) -> list[int]:
        """The updates before the answer; questions are answered, once."""
        seen, asked = [], []
        while "result" not in (message := self._client.message()):
            if message.get("method") == "ask":
                asked.append(message["id"])
                self._client.write(encode({"jsonrpc": "2.0", "id": message["id"], "result": {}}))
            else:
                seen.append(message["seq"])
        assert message["id"] == request_id
        assert len(set(asked)) == len(asked)
        return seen


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(
        str(tmp_path / "data"), str(tmp_path / "state"), str(tmp_path / "run" / "acp.sock")
    )


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 8))]
)
def test_client_sees_log_once_whenever_daemon_dies(places: Places, seed: int) -> None:
    world = World()
    with Daemon(places, patience=0.05) as daemon, Client(places) as client:
        lives = Lives(daemon, world, seed)
        lives.start()
        story = Story(client, seed)
        try:
            story.tell()
            assert client.end() == 0
            assert client.line() == b""
        finally:
            client.process.kill()
            lives.over = True
            lives.join(WAIT)
    assert lives.error is None
    assert lives.kills > KILLS / 2
    assert world.prompts == story.texts
    assert len(world.notes) == story.notes
