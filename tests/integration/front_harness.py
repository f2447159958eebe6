"""A front as a client sees it, and a daemon's end of the link that a test plays by hand."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

from pykoclaw_acp.link.places import LOCK_NAME, Places, secure_directory
from tests.e2e.harness import frames

WAIT = 30  # s that anything may take
FAKE_START = Path(__file__).with_name("front_with_fake_daemon.py")


class Client:
    """A front, and the client that has started it. Use in a `with` statement."""

    def __init__(self, places: Places, *program: str, **variables: str) -> None:
        self.started = time.monotonic()
        self.process = subprocess.Popen(
            [sys.executable, *(program or ("-m", "pykoclaw_acp"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={
                **os.environ,
                "PYKOCLAW_DATA": places.data,
                "PYKOCLAW_STATE": places.state,
                "PYKOCLAW_SOCKET": places.socket,
                **variables,
            },
            start_new_session=True,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.stdin, self.stdout, self.stderr = (
            self.process.stdin,
            self.process.stdout,
            self.process.stderr,
        )
        self._rest = b""
        self._ids = 0
        self._introductions: set[int] = set()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.stdout, self.stderr):
            stream.close()
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()

    def write(self, line: bytes) -> None:
        self.stdin.write(line + b"\n")
        self.stdin.flush()

    def request(self, method: str, params: Any = None) -> int:
        """Send a request; returns its id."""
        self._ids += 1
        if method == "initialize":
            self._introductions.add(self._ids)
        self.write(
            encode({"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params or {}})
        )
        return self._ids

    def notify(self, method: str, **params: Any) -> None:
        self.write(encode({"jsonrpc": "2.0", "method": method, "params": params}))

    def line(self) -> bytes:
        """The next line of standard output; b"" at its end."""
        parts = [self._rest]
        while b"\n" not in parts[-1]:
            if not select.select([self.stdout], [], [], WAIT)[0]:
                raise TimeoutError("the front wrote nothing")
            parts.append(os.read(self.stdout.fileno(), 1 << 20))
            if not parts[-1]:
                return b""
        line, _, self._rest = b"".join(parts).partition(b"\n")
        self._check(line)
        return line

    def _check(self, line: bytes) -> None:
        """That what a front says by itself is ACP: errors, and who it is. All else is a test's."""
        try:
            frame = json.loads(line)
        except ValueError:
            return
        if "error" in frame:
            frames.validate_answer(frame, None)
        elif frame.get("id") in self._introductions:
            said = frame["result"]
            if isinstance(said, dict) and said:
                frames.validate_answer(frame, "initialize")

    def message(self) -> Any:
        return json.loads(self.line())

    def is_silent(self) -> bool:
        """Whether nothing has come that was not read."""
        return not self._rest and not select.select([self.stdout], [], [], 0)[0]

    def end(self) -> int:
        """Close standard input; the exit status."""
        self.stdin.close()
        return self.process.wait(WAIT)

    def said(self) -> list[str]:
        """Standard error, once the process has ended."""
        self.process.wait(WAIT)
        return self.stderr.read().decode().splitlines()


class Connection:
    """A connection of a front's, at the daemon's end."""

    def __init__(self, accepted: socket.socket) -> None:
        accepted.settimeout(WAIT)
        self.socket = accepted
        self._rest = b""

    def line(self) -> bytes:
        """The next line; b"" at the end."""
        parts = [self._rest]
        while b"\n" not in parts[-1]:
            parts.append(self.socket.recv(1 << 20))
            if not parts[-1]:
                return b""
        line, _, self._rest = b"".join(parts).partition(b"\n")
        return line

    def client_line(self) -> bytes:
        """The next line that is no confirmation."""
        while (line := self.line()).startswith(b"seen "):
            pass
        return line

    def hello(self, **more: Any) -> dict[str, Any]:
        """Read the introduction, and welcome the front; `more` is said in the welcome."""
        kind, _, known = self.line().partition(b" ")
        assert kind == b"front"
        self.send(b"welcome " + encode({"version": "0", "link": 1, **more}))
        value = json.loads(known)
        assert isinstance(value, dict)
        return value

    def send(self, *lines: bytes) -> None:
        self.socket.sendall(b"".join(line + b"\n" for line in lines))

    def is_silent(self) -> bool:
        """Whether nothing has come that was not read."""
        return not self._rest and not select.select([self.socket], [], [], 0)[0]

    def close(self) -> None:
        self.socket.close()


class Daemon:
    """Has the data directory locked and listens; the test plays the rest. Use in a `with`
    statement.
    """

    def __init__(self, places: Places, *, listens: bool = True, patience: float = WAIT) -> None:
        """`patience`: seconds that `accept` waits."""
        self._places = places
        self._patience = patience
        os.makedirs(places.data, exist_ok=True)
        secure_directory(os.path.dirname(places.socket))
        self._lock = os.open(os.path.join(places.data, LOCK_NAME), os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n{places.socket}\n".encode(), 0)
        self._connections: list[Connection] = []
        self._listener: socket.socket | None = None
        if listens:
            self.listen()

    def listen(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self._places.socket)
        self._listener.listen(64)
        self._listener.settimeout(self._patience)

    def accept(self) -> Connection:
        """The next front that connects; raises TimeoutError."""
        assert self._listener is not None
        connection = Connection(self._listener.accept()[0])
        self._connections.append(connection)
        return connection

    def stop(self) -> None:
        """The process is gone, and its lock stays, as if the next one had it already: no front
        starts a daemon.
        """
        for connection in self._connections:
            connection.close()
        self._connections.clear()
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            os.unlink(self._places.socket)

    def restart(self) -> None:
        self.stop()
        self.listen()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        os.close(self._lock)


def encode(message: object) -> bytes:
    return json.dumps(message).encode()


def update(number: int) -> bytes:
    """An update as the daemon makes it."""
    return encode({"jsonrpc": "2.0", "method": "session/update", "params": {"n": number}})


def result(request_id: int, value: object = None) -> bytes:
    return encode({"jsonrpc": "2.0", "id": request_id, "result": {} if value is None else value})
