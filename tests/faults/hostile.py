"""Frames that no client should send, beside some that one does, all from a seed; and a client that
sends them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from tests import methods
from tests.schema import validation

WINDOW: Final = 200  # requests without an answer, above which no more are sent
RENEWED: Final = 1500  # frames that one connection takes
ANSWER: Final = 60.0  # s; on a busy machine
SESSIONS: Final = 20
HELLO: Final = (
    "link", "version", "pid", "parent", "initialize", "sessions", "asked", "deaths", "taken", "clocks",
    "environment", "loggedOut", "unknown",
)  # fmt: skip
HELLOS: Final = 5  # before each connection of a front

ACP: Final = (*methods.ACP, "session/nothing")
OWN: Final = (*methods.OWN, "_pykoclaw.dev/nothing")
COSTLY: Final = frozenset((
    "session/new", "session/load", "session/resume", "session/prompt", "_pykoclaw.dev/status",
    "_pykoclaw.dev/sessions/show", "_pykoclaw.dev/workers/stop",
))  # fmt: skip
# of the calls of those, whose work takes longer than all that is done at a door
SPARED: Final = 0.9
# After these, little is left to attack, or very much.
RARE: Final = frozenset(
    ("logout", "session/fork", "session/delete", "_pykoclaw.dev/sessions/delete")
)
SPARED_RARE: Final = 0.9
NUMBERS: Final = (
    0,
    1,
    -1,
    2**31,
    2**53,
    2**53 + 1,
    2**63,
    -(2**63) - 1,
    2**64,
    10**400,
    1.5,
    1e308,
    -0.0,
)
TEXTS: Final = (
    "",
    "x",
    "\x00",
    "\x1b]0;t\x07",
    "\u202e",
    "😀" * 50,
    "a" * 3000,
    "../..",
    "%s%n",
    '"',
    "\n",
    "' OR 1=1 --",
)


@dataclass(slots=True)
class Frame:
    """A line; `expects` is the id under which exactly one answer must come, None if any or none
    may.
    """

    line: bytes
    expects: str | None = None


@dataclass(slots=True)
class Generator:
    """Frames from a seed. `sessions` are ids that exist, and may be used; those that are made join
    them.
    """

    seed: str
    methods: tuple[str, ...] = ACP
    sessions: list[str] = field(default_factory=list)
    cwd: str = "/"
    _count: int = 0
    _random: random.Random = field(default_factory=random.Random)
    _cheap: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._cheap = tuple(one for one in self.methods if one not in COSTLY | RARE)

    def take(self, session: str) -> None:
        """A session was made; with many there are, it takes the place of one, which may be gone."""
        if len(self.sessions) < SESSIONS:
            self.sessions.append(session)
        elif session not in self.sessions:
            self.sessions[self._random.randrange(SESSIONS)] = session

    def frame(self) -> Frame:
        """The next one."""
        kind = self._random.random()
        if kind < 0.55:
            return self._request(self._params())
        if kind < 0.65:
            return self._request(self._value(3))
        if kind < 0.72:
            return Frame(self._mutated(self._request(self._params(), "m").line))
        if kind < 0.78:
            return Frame(self._random.randbytes(self._random.randrange(200)).replace(b"\n", b" "))
        if kind < 0.84:
            return Frame(
                self._json({"jsonrpc": "2.0", "method": self._method(), "params": self._params()})
            )
        if kind < 0.90:
            return Frame(
                self._json({"jsonrpc": "2.0", "id": self._text(), "result": self._value(3)})
            )
        if kind < 0.94:
            return Frame(self._json(self._value(4)))
        if kind < 0.942:
            return self._costly()
        return Frame(
            self._json(
                {
                    "jsonrpc": "2.0",
                    "method": "$/cancel_request",
                    "params": {"requestId": self._known()},
                }
            )
        )

    def hello(self) -> bytes:
        """The introduction of a front that means no good: refused, or as good as any."""
        fields: dict[str, Any] = {"front": self._text()}
        for _ in range(self._random.randrange(6)):
            fields[self._random.choice(HELLO)] = self._value(3)
        if self._random.random() < 0.2:
            many = self._random.choice((30_000, 150_000))
            fields[self._random.choice(HELLO)] = self._random.choice(
                ({str(n): 1 for n in range(many)}, [0] * many, {"A": "\n" * many * 6})
            )
        line = self._json(fields)
        return b"front " + (self._mutated(line) if self._random.random() < 0.2 else line) + b"\n"

    def _request(self, params: Any, mark: str = "") -> Frame:
        self._count += 1
        message_id = f"{mark}{self.seed}-{self._count}"
        method = self._method()
        if isinstance(params, dict) and self._random.random() < 0.9:
            for name in methods.required(method):
                params.setdefault(name, self._text())
        if method == "_pykoclaw.dev/follow" and isinstance(params, dict):
            params["live"] = False
        if method == "_pykoclaw.dev/prompt" and isinstance(params, dict):
            params["text"] = "say 1"  # workers in memory work on other words forever
        line = self._json({"jsonrpc": "2.0", "id": message_id, "method": method, "params": params})
        return Frame(line, message_id)

    def _costly(self) -> Frame:
        """What would cost much if it was made."""
        self._count += 1
        message_id = f"{self.seed}-{self._count}"
        size = self._random.choice((30_000, 60_000))
        costly = self._random.choice(
            (
                b"[" + b"0," * size + b"0]",
                b"[" * 600 + b"]" * 600,
                b'["' + b"x" * size * 6 + b'"]',
                b"[" + b'"",' * size + b"0]",
            )
        )
        head = b'{"jsonrpc":"2.0","id":%b,"method":"session/prompt","params":' % self._json(
            message_id
        )
        return Frame(head + b'{"sessionId":"s","prompt":[],"_meta":{"a":%b}}}' % costly, message_id)

    def _params(self) -> dict[str, Any]:
        params: dict[str, Any] = {
            "sessionId": self._session(), "session": self._session(), "cwd": self.cwd, "mcpServers": [],
            "protocolVersion": 1,
            "prompt": [{"type": "text", "text": "say 1"}], "modeId": "plan", "modelId": "opus", "configId": "mode",
            "value": "plan", "title": "t", "question": "q", "decision": "deny", "limit": 5, "now": False,
            "path": self.cwd,
        }  # fmt: skip
        for _ in range(self._random.choice((0, 0, 1, 1, 3))):
            name = self._random.choice(
                (*params, "_meta", "after", "turns", "clientInfo", "additionalDirectories")
            )
            params[name] = self._value(2)
        if self._random.random() < 0.1:
            params["_meta"] = {
                "pykoclaw.dev/after": self._value(0),
                "pykoclaw.dev/idempotencyKey": self._value(0),
            }
        if params.get("session") is None:
            params["session"] = "s"
        return params

    def _value(self, depth: int) -> Any:
        kind = self._random.randrange(9 if depth else 6)
        if kind < 2:
            return self._random.choice(NUMBERS)
        if kind < 4:
            return self._text()
        if kind < 6:
            return self._random.choice((None, True, False))
        if kind == 6:
            return [self._value(depth - 1) for _ in range(self._random.randrange(4))]
        return {self._text(): self._value(depth - 1) for _ in range(self._random.randrange(4))}

    def _mutated(self, line: bytes) -> bytes:
        changed = bytearray(line)
        for _ in range(self._random.randrange(1, 6)):
            at = self._random.randrange(len(changed))
            match self._random.randrange(3):
                case 0:
                    changed[at] = self._random.randrange(256)
                case 1:
                    del changed[at : at + self._random.randrange(1, 20)]
                case _:
                    changed[at:at] = changed[: self._random.randrange(40)]
            if not changed:
                break
        return bytes(changed).replace(b"\n", b" ").replace(b'"live":true', b"")

    def _method(self) -> str:
        method = self._random.choice(self.methods)
        spared = SPARED if method in COSTLY else SPARED_RARE if method in RARE else 0
        if spared and self._cheap and self._random.random() < spared:
            return self._random.choice(self._cheap)
        return method

    def _session(self) -> str:
        return (
            self._random.choice(self.sessions)
            if self.sessions and self._random.random() < 0.9
            else self._text()
        )

    def _known(self) -> Any:
        return (
            f"{self.seed}-{self._random.randrange(self._count + 1)}"
            if self._random.random() < 0.8
            else self._value(1)
        )

    def _text(self) -> str:
        return self._random.choice(TEXTS)

    def _json(self, value: Any) -> bytes:
        return json.dumps(value, ensure_ascii=self._random.random() < 0.5).encode(errors="replace")


class Attacker:
    """Sends what a generator makes over connections that it opens anew, and counts what is
    answered.
    """

    def __init__(
        self,
        generator: Generator,
        connect: Callable[[], Any],
        *,
        front: bool = False,
        renewed: int = RENEWED,
    ) -> None:
        """`connect`: a coroutine function that gives a reader and a writer. `front`: speak as one
        does.
        """
        self.generator = generator
        self.sent = 0
        self.answered = 0
        self.faults: list[str] = []
        self._connect = connect
        self._front = front
        self._renewed = renewed
        self._open: dict[str, bytes] = {}  # what was asked, by its id
        self._done: set[str] = set()  # of this connection
        self._there = asyncio.Event()
        self._numbers = 0
        self._random = random.Random(generator.seed + "cuts")

    async def send(self, count: int) -> None:
        """So many frames, on as many connections as it takes."""
        while self.sent < count:
            if self._front:
                for _ in range(HELLOS):
                    await self._intrude()
            reader, writer = await self._connect()
            reading = asyncio.ensure_future(self._read(reader))
            try:
                await self._converse(writer, min(self._renewed, count - self.sent))
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
                await reading

    async def _intrude(self) -> None:
        """Introduce itself as no front does, on a connection of its own, and leave."""
        _, writer = await self._connect()
        said = self.generator.hello()
        with contextlib.suppress(ConnectionError):
            writer.write(said[: self._random.randrange(len(said))] if len(said) % 3 == 0 else said)
            await writer.drain()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    async def _converse(self, writer: asyncio.StreamWriter, count: int) -> None:
        if self._front:
            hello = {
                "front": f"front-{self.generator.seed}-{self.sent}",
                "initialize": {"protocolVersion": 1},
            }
            writer.write(b"front %b\n" % json.dumps(hello).encode())
        else:
            writer.write(
                b'{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":1}}\n'
            )
            self._open["hello"] = b""
        self._done.clear()
        for _ in range(count):
            frame = self.generator.frame()
            self.sent += 1
            if frame.expects is not None:
                self._open[frame.expects] = frame.line[:300]
            line = self._link(frame) if self._front else frame.line + b"\n"
            cut = self._random.randrange(len(line) + 1)
            writer.write(line[:cut])
            if self._random.random() < 0.01:
                await asyncio.sleep(0)
            writer.write(line[cut:])
            if len(self._open) >= WINDOW or self._random.random() < 0.02:
                await writer.drain()
                await self._until(WINDOW // 2)
        await writer.drain()
        await self._until(0)

    async def _until(self, most: int) -> None:
        """Wait until at most so many requests have no answer."""
        try:
            async with asyncio.timeout(ANSWER):
                while len(self._open) > most:
                    self._there.clear()
                    await self._there.wait()
        except TimeoutError:
            raise AssertionError(
                f"no answers to {list(self._open.values())[:5]}; faults: {self.faults[:5]}"
            ) from None

    def _link(self, frame: Frame) -> bytes:
        self._numbers += 1
        kind = self._random.random()
        if frame.expects is not None or kind < 0.5:
            at = (
                b"> %d " % self._numbers
                if kind < 0.8
                else b">> %d %d " % (self._numbers, self._random.randrange(2**40))
            )
            return at + frame.line + b"\n"
        number = str(self._random.choice(NUMBERS)).encode()
        return (
            self._random.choice(
                (b"seen 1 %b\n", b"done %b\n", b"> %b {}\n", b">> 1 %b {}\n", b"x %b\n")
            )
            % number
        )

    async def _read(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                self._take(line)

    def _validate(self, message: dict[str, Any]) -> None:
        """Note what is not ACP. Which method a result is of is not known here."""
        problem = None
        if "method" in message:
            problem = validation.call_problem(message["method"], message.get("params", {}))
        elif "error" in message:
            problem = validation.error_problem(message["error"])
        if problem is not None:
            self.faults.append(f"not ACP: {problem}: {str(message)[:200]}")

    def _take(self, line: bytes) -> None:
        if self._front:
            kind, _, line = line.partition(b" ")
            if kind != b"answer":
                return
            line = line.partition(b" ")[2]
        message = json.loads(line)
        self._validate(message)
        if "method" in message or not isinstance(message.get("id"), str):
            return
        made = message.get("result")
        if isinstance(made, dict) and isinstance(made.get("sessionId"), str):
            self.generator.take(made["sessionId"])
        if message["id"] in self._open:
            del self._open[message["id"]]
            self._done.add(message["id"])
            self.answered += 1
            self._there.set()
        elif message["id"] in self._done:
            self.faults.append(f"answered twice: {line[:200]!r}")
