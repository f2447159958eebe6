"""The daemon's end of the connection to a front, in the lines of `link/lines.py`."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec
import structlog

from pykoclaw_acp import __version__
from pykoclaw_acp.errors import AcpError
from pykoclaw_acp.link import client_process, lines
from pykoclaw_acp.link.framing import MAX_LINE_EARLY, MAX_LINE_IN, LineFramer, Oversized
from pykoclaw_acp.protocol import jsonrpc
from pykoclaw_acp.server import client_processes, introduction
from pykoclaw_acp.server.introduction import MAX_HELLO, UNSAID, FrontHello, Rest
from pykoclaw_acp.server.peer import ClientLine, Listener, Transport
from pykoclaw_acp.system import clock

if TYPE_CHECKING:
    from pykoclaw_acp.link.framing import Room

log: Final = structlog.get_logger()


SettingsComparison = Callable[[Mapping[str, str]], list[str]]


class FrontPeer:
    """A client behind a front, which re-sends what was not confirmed."""

    listener: Listener
    other_settings: list[str]

    def __init__(
        self,
        transport: Transport,
        hello: FrontHello,
        environment: dict[str, str] | None,
        pid: int,
        *,
        framer: LineFramer,
        rest: bytes,
    ) -> None:
        """Use `meet`; `framer` has read the hello, and `rest` came after it."""
        self.hello = hello
        self.key: str | None = hello.front
        self.front = hello.front
        parent = (
            client_processes.parent_of(pid)
            if hello.parent == UNSAID
            else client_processes.told(hello.parent)
        )
        # Its own, where nobody can say whose it is
        self.client_process = parent or f"front:{hello.front}"
        self.environment = environment
        self._transport = transport
        self._rest = rest
        self._framer = framer
        self._framer.limit = MAX_LINE_EARLY + lines.HEAD
        self._tokens: dict[str, int] = {}
        self._sessions: dict[int, str] = {}
        self._told: dict[str, int] = {}  # by session: up to where the front has its updates

    @classmethod
    async def meet(
        cls,
        transport: Transport,
        begun: bytes | bytearray,
        pid: int = 0,
        room: Room | None = None,
        compare: SettingsComparison = lambda _: [],
        *,
        rest: Rest | None = None,
    ) -> FrontPeer:
        """Read the introduction, which begins with `begun`; raises ParseError, and Overloaded if there
        is no memory for it.

        `pid`: the front's, as the kernel says; 0 if it cannot be seen. `room` is for what is not
        complete: of the introduction, until it has taken effect. `compare`: names of the variables
        that set another value than the daemon's. `rest` is awaited between the pieces of a long one.
        """
        framer = LineFramer(MAX_HELLO, room)
        try:
            line, after = await introduction.read(transport, begun, framer)
            hello, environment = await introduction.decode(line, rest)
            peer = cls(transport, hello, environment, pid, framer=framer, rest=after)
            peer.other_settings = compare(environment or {})
            known: dict[str, Any] = {"version": __version__, "link": lines.LINK}
            known["daemon"] = client_process.own()
            known["otherSettings"] = peer.other_settings
            await transport.write(lines.WELCOME.build(text=msgspec.json.encode(known)))
        except BaseException:
            framer.close()
            raise
        return peer

    async def incoming(self) -> AsyncIterator[Iterable[ClientLine | None]]:
        """The client's lines; None for a confirmation, which goes to the listener."""
        self.hello = self.hello.settled()
        self._framer.close()
        data, self._rest = self._rest or await self._transport.read(), b""
        while data:
            contents = self._framer.feed(data)
            yield map(self._take, contents) if contents else ()
            self._framer.settle()
            data = await self._transport.read()

    def widen(self) -> None:
        """Accept long lines, from a client that has introduced itself."""
        self._framer.limit = MAX_LINE_IN + lines.HEAD

    def keep(self, size: int) -> Callable[[], object]:
        """Count the line that was read last until the returned function is called."""
        return self._framer.keep(size)

    def stop_reading(self) -> None:
        """Release the input buffer."""
        self._framer.close()

    def gather(self) -> None:
        """Let what is sent in this round of the event loop leave together."""
        self._transport.gather()

    async def update(self, session_id: str, seq: int, line: bytes) -> None:
        """Send an update."""
        self._told[session_id] = seq
        await self._transport.write(lines.UPDATE.prefix(self._tokens[session_id], seq, line=line))

    async def move_cursor(self, session_id: str, seq: int) -> None:
        """Move the client's cursor, without an update."""
        self._told[session_id] = seq
        await self._transport.write(lines.CURSOR.build(self._tokens[session_id], seq))

    async def follow_session(self, session_id: str, seq: int, number: int) -> None:
        """Assign a token to the session, and announce it."""
        token = self._tokens.setdefault(session_id, len(self._tokens) + 1)
        self._sessions[token] = session_id
        self._told[session_id] = seq
        name = msgspec.json.encode(session_id)
        await self._transport.write(lines.ATTACHED.build(token, seq, number, text=name))

    async def drop_session(self, session_id: str) -> None:
        """Announce that the session was closed; its token is not reused."""
        if (token := self._tokens.get(session_id)) is not None:
            await self._transport.write(lines.DETACHED.build(token))

    async def answer(self, number: int, line: bytes) -> None:
        """Send the response to a line."""
        await self._transport.write(lines.ANSWER.prefix(number, line=line))

    async def acknowledge(self, number: int) -> None:
        """Acknowledge a processed line that has no response."""
        await self._transport.write(lines.ACK.build(number))

    async def taken(self, number: int) -> None:
        """Whatever becomes of this daemon, it is not over this request."""
        await self._transport.write(lines.TAKEN.build(number))

    async def refuse(self, number: int, error: AcpError) -> None:
        """The front knows the request's id."""
        await self._transport.write(lines.REFUSE.build(number, text=jsonrpc.error_object(error)))

    async def farewell(self) -> None:
        """The front does not hold this end against its lines."""
        await self._transport.write(lines.BYE.build())

    async def request(self, key: bytes, line: bytes) -> None:
        """Send a request; the front drops it if its client has it already."""
        await self._transport.write(lines.REQUEST.prefix(line=key + b" " + line))

    async def notify(self, line: bytes) -> None:
        """Send a notification."""
        await self._transport.write(lines.NOTIFY.prefix(line=line))

    def _uptime(self, at: int) -> int:
        """Time since boot when the front's wall clock showed `at`, even if that clock was set in
        the meantime.
        """
        if self.hello.clocks is not None:
            wall, uptime = self.hello.clocks
            return at - wall + uptime
        return at - time.time_ns() // 1_000_000 + clock.uptime()

    def _take(self, raw: bytes | bytearray | Oversized) -> ClientLine | None:
        kind = lines.find(raw.head if isinstance(raw, Oversized) else raw, lines.FROM_FRONT)
        handler = None if kind is None else HANDLERS.get(kind)
        if kind is None or handler is None:
            return None
        try:
            if isinstance(raw, Oversized):
                # It has nothing to answer unless it is the client's.
                return handler(self, *_parse_head(kind, raw)) if kind.text else None
            return handler(self, *kind.parse(raw))
        except ValueError:
            log.warning("A front's line was not understood", action="front_line_ignored")
        return None

    def _take_sent(self, numbers: list[int], content: bytes | bytearray | Oversized) -> ClientLine:
        return ClientLine(numbers[0], content)

    def _take_resent(
        self, numbers: list[int], content: bytes | bytearray | Oversized
    ) -> ClientLine:
        number, sent = numbers
        deaths = self.hello.deaths.get(str(number), 0)
        return ClientLine(
            number,
            content,
            sent_at=sent,
            uptime=self._uptime(sent),
            deaths=deaths,
            taken=sent is not None and number in self.hello.taken,
        )

    def _note_seen(self, numbers: list[int], _: object) -> None:
        token, seq = numbers
        session_id = self._sessions.get(token)
        if session_id is not None and seq <= self._told.get(session_id, 0):
            self.listener.confirm_updates(session_id, seq)

    def _note_done(self, numbers: list[int], _: object) -> None:
        self.listener.confirm_answer(numbers[0])


Handler = Callable[[FrontPeer, list[int], Any], ClientLine | None]
HANDLERS: Final[dict[lines.Kind, Handler]] = {
    lines.SENT: FrontPeer._take_sent,
    lines.RESENT: FrontPeer._take_resent,
    lines.SEEN: FrontPeer._note_seen,
    lines.DONE: FrontPeer._note_done,
}


def _parse_head(kind: lines.Kind, line: Oversized) -> tuple[list[int], Oversized]:
    """Numbers of a discarded line, and what is left of its text."""
    numbers, text = kind.parse(line.head)
    limit = line.limit - lines.HEAD
    return numbers, Oversized(bytes(text), limit, crowded=line.crowded, no_memory=line.no_memory)
