"""Who is at the other end of a connection: an ACP client itself, or a front that stands between it and us."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from pykoclaw_acp.link.framing import MAX_LINE_EARLY, MAX_LINE_IN, LineFramer, Oversized
from pykoclaw_acp.protocol import jsonrpc

if TYPE_CHECKING:
    from pykoclaw_acp.errors import AcpError
    from pykoclaw_acp.link.framing import Room


class Transport(Protocol):
    """Where the connection's bytes come from and go to."""

    async def read(self) -> bytes:
        """Some bytes; none at the end."""

    async def write(self, line: bytes) -> None:
        """Write, and wait while the client is slow; raises ConnectionError when it is gone."""


@dataclass(frozen=True, slots=True)
class ClientLine:
    """A line of the client's, under a number of its own.

    If a front sends it once more, `sent_at` is when its client did (ms since 1970, for people), and `uptime` how long
    this boot had been awake then (ms). `deaths`: of daemons before one had taken it.
    """

    number: int
    content: bytes | bytearray | Oversized
    sent_at: int | None = None
    uptime: int | None = None
    deaths: int = 0


class Listener(Protocol):
    """Who wants to know what has arrived at the client."""

    def confirm_updates(self, session_id: str, seq: int) -> None:
        """The client was shown the session's updates up to `seq`."""

    def confirm_answer(self, number: int) -> None:
        """The client has the answer to this line."""


class Peer(Protocol):
    """Takes what is for the client. `key` names the client beyond this connection; None where nothing does.

    `instance` is the process that the client is, `front` what it is connected through: a UUID.
    """

    key: str | None
    instance: str
    front: str
    listener: Listener

    def incoming(self) -> AsyncIterator[Iterable[ClientLine | None]]:
        """The client's lines, in order, until the end; none of what is a part of a long one."""

    def widen(self) -> None:
        """The client has introduced itself: from now on its lines may be long."""

    def stop_reading(self) -> None:
        """Nothing comes from the client any more."""

    async def update(self, session_id: str, seq: int, line: bytes) -> None:
        """Show an update."""

    async def move_cursor(self, session_id: str, seq: int) -> None:
        """The client's place moves on to `seq`, and there is nothing to show."""

    async def follow_session(self, session_id: str, seq: int, number: int) -> None:
        """The session's updates after `seq` follow; `number` is the line that asked for all of them, or 0."""

    async def drop_session(self, session_id: str) -> None:
        """The session was closed: the client follows it no longer."""

    async def answer(self, number: int, line: bytes) -> None:
        """The response to a line."""

    async def acknowledge(self, number: int) -> None:
        """The line has no response, and was dealt with."""

    async def taken(self, number: int) -> None:
        """The request outlives this daemon."""

    async def refuse(self, number: int, error: AcpError) -> None:
        """The request is refused without a look at it."""

    async def farewell(self) -> None:
        """The daemon ends, and it is not over anything that the client has said."""

    async def request(self, key: bytes, line: bytes) -> None:
        """A request of ours, whose id is `key` (JSON)."""

    async def notify(self, line: bytes) -> None:
        """Anything else."""


class DirectPeer:
    """An ACP client that speaks JSON-RPC with us: what was written to it counts as seen."""

    key: str | None = None
    listener: Listener

    def __init__(
        self, transport: Transport, begun: bytes = b"", instance: str | None = None, room: Room | None = None
    ) -> None:
        """`begun`: what was read already. `instance`: None if it cannot be seen which process the client is.

        `room` is for its lines that are not complete.
        """
        self.front = str(uuid4())
        self.instance = instance or f"connection:{self.front}"
        self._transport = transport
        self._begun = begun
        self._framer = LineFramer(MAX_LINE_EARLY, room)
        self._count = 0

    async def incoming(self) -> AsyncIterator[Iterable[ClientLine]]:
        """Lines as they come, each made when it is its turn: a chunk may hold very many."""
        data = self._begun or await self._transport.read()
        while data:
            contents = self._framer.feed(data)
            yield self._numbered(contents) if contents else ()
            data = await self._transport.read()
        yield self._numbered(self._framer.end())

    def widen(self) -> None:
        """The client has introduced itself: from now on its lines may be long."""
        self._framer.limit = MAX_LINE_IN

    def stop_reading(self) -> None:
        """Nothing comes any more."""
        self._framer.close()

    async def update(self, session_id: str, seq: int, line: bytes) -> None:
        """Show an update."""
        await self._transport.write(line)
        self.listener.confirm_updates(session_id, seq)

    async def move_cursor(self, session_id: str, seq: int) -> None:
        """Nothing to write."""
        self.listener.confirm_updates(session_id, seq)

    async def follow_session(self, session_id: str, seq: int, number: int) -> None:
        """Nothing to write."""

    async def drop_session(self, session_id: str) -> None:
        """Nothing to write."""

    async def answer(self, number: int, line: bytes) -> None:
        """The response to a line."""
        await self._transport.write(line)
        self.listener.confirm_answer(number)

    async def acknowledge(self, number: int) -> None:
        """Nothing to write."""

    async def taken(self, number: int) -> None:
        """Nothing to write."""

    async def refuse(self, number: int, error: AcpError) -> None:  # noqa: ARG002  only a front counts lines
        """Of such a client no line comes again."""
        await self._transport.write(jsonrpc.encode_error(jsonrpc.NULL_ID, error))

    async def farewell(self) -> None:
        """Nothing to write."""

    async def request(self, key: bytes, line: bytes) -> None:  # noqa: ARG002  the line holds it
        """A request of ours."""
        await self._transport.write(line)

    async def notify(self, line: bytes) -> None:
        """Anything else."""
        await self._transport.write(line)

    def _numbered(self, contents: list[bytes | bytearray | Oversized]) -> Iterator[ClientLine]:
        for content in contents:
            self._count += 1
            yield ClientLine(self._count, content)
