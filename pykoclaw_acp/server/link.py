"""The line between a front and the daemon: a client's lines with numbers, updates with their place in the log.

Both sides may be of different versions: fields and kinds of lines that are not known are ignored.
docs/link.md has the whole vocabulary.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Final

import msgspec
import structlog

from pykoclaw_acp import __version__, clock
from pykoclaw_acp.errors import ParseError
from pykoclaw_acp.protocol.framing import MAX_LINE_IN, LineFramer, Oversized
from pykoclaw_acp.protocol.long_lines import LONG
from pykoclaw_acp.server import instances
from pykoclaw_acp.server.peer import Line, Listener, Transport

LINK: Final = 1  # version of this vocabulary
GREETING: Final = b"front "
NOTHING: Final = msgspec.Raw(b"null")
UNSAID: Final = msgspec.Raw()
_HEAD: Final = 64  # bytes that stand before a client's line, at most

log: Final = structlog.get_logger()


class Followed(msgspec.Struct, frozen=True):
    """A session that the front's client follows: its place, the load that set it (0: none), how it was opened last.

    `seq` is what the front was told, `seen` what its client has; None: a front of before does not say it.
    """

    seq: int
    seen: int | None = None
    line: int = 0
    opened: msgspec.Raw = NOTHING


class FrontHello(msgspec.Struct, frozen=True):
    """What a front knows when it connects; `asked` are ids of our requests that its client has not answered.

    `clocks`: what its wall clock showed (ms since 1970), and how many ms the boot had been awake, at one moment.
    `parent` is the process that has started it: empty from a front that does not say it, null if it could not be seen.
    """

    front: str
    link: int = LINK
    version: str = "unknown"
    pid: int = 0
    parent: msgspec.Raw = UNSAID
    initialize: msgspec.Raw = NOTHING
    sessions: dict[str, Followed] = {}
    asked: list[str] = []
    clocks: tuple[int, int] | None = None


_hello: Final = msgspec.json.Decoder(FrontHello)


class FrontPeer:
    """A client behind a front, which keeps what was not confirmed, and comes back with it."""

    listener: Listener

    def __init__(self, transport: Transport, hello: FrontHello, rest: bytes, pid: int) -> None:
        """Use `meet`; `rest` was read after the hello."""
        self.hello = hello
        self.key: str | None = hello.front
        self.front = hello.front
        parent = instances.parent_of(pid) if hello.parent == UNSAID else instances.told(hello.parent)
        self.instance = parent or f"front:{hello.front}"  # its own, where nobody can say whose it is
        self._transport = transport
        self._rest = rest
        self._framer = LineFramer(MAX_LINE_IN + _HEAD)
        self._tokens: dict[str, int] = {}
        self._sessions: dict[int, str] = {}

    @classmethod
    async def meet(cls, transport: Transport, begun: bytes, pid: int = 0) -> FrontPeer:
        """Take the hello, whose beginning was read already; raises ParseError if it is none.

        `pid`: the front's, as the kernel says; 0 if it cannot be seen.
        """
        framer = LineFramer()
        data = begun
        lines = framer.feed(data)
        while not lines:
            data = await transport.read()
            if not data:
                raise ParseError("The front left before it had introduced itself.")
            begun += data
            lines = framer.feed(data)
        try:
            hello = _hello.decode(bytes(lines[0])[len(GREETING) :] if isinstance(lines[0], bytes) else b"")
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise ParseError("The front's introduction cannot be read.") from error
        peer = cls(transport, hello, begun.partition(b"\n")[2], pid)
        await transport.write(b"welcome %b\n" % msgspec.json.encode({"version": __version__, "link": LINK}))
        return peer

    async def incoming(self) -> AsyncIterator[list[Line]]:
        """The client's lines; confirmations go to the listener."""
        data = self._rest or await self._transport.read()
        while data:
            lines: list[Line] = []
            for raw in self._framer.feed(data):
                if isinstance(raw, bytes) and len(raw) > LONG:
                    await asyncio.sleep(0)  # it was joined just now, and is copied next
                if (line := self._take(raw)) is not None:
                    lines.append(line)
            yield lines
            data = await self._transport.read()

    async def update(self, session_id: str, seq: int, line: bytes) -> None:
        """Show an update."""
        await self._transport.write(b"update %d %d %b" % (self._tokens[session_id], seq, line))

    async def passed(self, session_id: str, seq: int) -> None:
        """The client's place moves on."""
        await self._transport.write(b"cursor %d %d\n" % (self._tokens[session_id], seq))

    async def attached(self, session_id: str, seq: int, number: int) -> None:
        """Give the session a token."""
        token = self._tokens.setdefault(session_id, len(self._tokens) + 1)
        self._sessions[token] = session_id
        name = msgspec.json.encode(session_id)
        await self._transport.write(b"attached %d %d %d %b\n" % (token, seq, number, name))

    async def detached(self, session_id: str) -> None:
        """The session was closed; its token stays its own."""
        if (token := self._tokens.get(session_id)) is not None:
            await self._transport.write(b"detached %d\n" % token)

    async def answer(self, number: int, line: bytes) -> None:
        """The response to a line."""
        await self._transport.write(b"answer %d %b" % (number, line))

    async def acknowledge(self, number: int) -> None:
        """The line need not be sent again."""
        await self._transport.write(b"ack %d\n" % number)

    async def request(self, key: bytes, line: bytes) -> None:
        """A request of ours; the front drops it if its client has it already."""
        await self._transport.write(b"request %b %b" % (key, line))

    async def notify(self, line: bytes) -> None:
        """Anything else."""
        await self._transport.write(b"notify %b" % line)

    def _uptime(self, at: int) -> int:
        """How old the boot was when the front's wall clock showed `at`, be that clock set meanwhile."""
        if self.hello.clocks is not None:
            wall, uptime = self.hello.clocks
            return at - wall + uptime
        return at - time.time_ns() // 1_000_000 + clock.uptime()

    def _take(self, raw: bytes | Oversized) -> Line | None:
        if isinstance(raw, Oversized):
            return None  # a front does not send one
        kind = raw[:_HEAD].partition(b" ")[0]
        try:
            if kind == b">":
                _, number, content = _split(raw, 2)
                return Line(int(number), content)
            if kind == b">>":
                _, number, at, content = _split(raw, 3)
                return Line(int(number), content, sent_at=int(at), uptime=self._uptime(int(at)))
            if kind == b"seen":
                _, token, seq = raw.split()
                if (session_id := self._sessions.get(int(token))) is not None:
                    self.listener.seen(session_id, int(seq))
            elif kind == b"done":
                self.listener.done(int(raw[len(kind) :]))
        except ValueError:
            log.warning("A front's line was not understood", action="front_line_ignored")
        return None


def _split(raw: bytes, words: int) -> list[bytes]:
    """The first words of a line and what follows them, of which there may be much: it is copied once."""
    head = raw[:_HEAD].split(b" ", words)[:words]
    return [*head, raw[sum(map(len, head)) + len(head) :]]
