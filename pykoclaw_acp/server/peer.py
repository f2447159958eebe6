"""The peer of a connection: an ACP client itself, or a front that relays for it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from uuid import uuid4

from pykoclaw_acp.link.framing import MAX_LINE_EARLY, MAX_LINE_IN, LineFramer, Oversized
from pykoclaw_acp.protocol import jsonrpc

if TYPE_CHECKING:
    from pykoclaw_acp.errors import AcpError
    from pykoclaw_acp.link.framing import Room


class Transport(Protocol):
    """A byte stream in both directions."""

    async def read(self) -> bytes:
        """Read some bytes; none at the end."""

    def gather(self) -> None:
        """Let what is written in this round of the event loop leave together."""

    async def write(self, line: bytes) -> None:
        """Write with back-pressure; raises ConnectionError when the client is gone."""


@dataclass(frozen=True, slots=True)
class ClientLine:
    """A line of the client's, with its number.

    For a line that a front re-sends, `sent_at` is when its client sent it (ms since 1970, for
    people), and `uptime` the time since boot at that moment (ms). `deaths`: the number of daemons
    that died before they had taken it. `taken`: it is a prompt that was in the journal.
    """

    number: int
    content: bytes | bytearray | Oversized
    sent_at: int | None = None
    uptime: int | None = None
    deaths: int = 0
    taken: bool = False


class Listener(Protocol):
    """Is told what has arrived at the client."""

    def confirm_updates(self, session_id: str, seq: int) -> None:
        """The client was shown the session's updates up to `seq`."""

    def confirm_answer(self, number: int) -> None:
        """The client has the answer to this line."""


class Peer(Protocol):
    """Sends to the client and reads from it. `key` identifies the client across connections; None
    if nothing does.

    `client_process` identifies the client's process, `front` (UUID) what it is connected through.
    `environment`: variables that the client gives; None: it has none of its own.
    """

    key: str | None
    client_process: str
    front: str
    environment: dict[str, str] | None
    listener: Listener

    def incoming(self) -> AsyncIterator[Iterable[ClientLine | None]]:
        """The client's lines in order, in batches; a batch is empty for a part of a long line."""

    def widen(self) -> None:
        """Accept long lines, from a client that has introduced itself."""

    def keep(self, size: int) -> Callable[[], object]:
        """Count the line of `size` bytes that was read last, as one that is in memory, until the
        returned function is called.
        """

    def stop_reading(self) -> None:
        """Release the input buffer."""

    def gather(self) -> None:
        """Let what is sent in this round of the event loop leave together."""

    async def update(self, session_id: str, seq: int, line: bytes) -> None:
        """Send an update."""

    async def move_cursor(self, session_id: str, seq: int) -> None:
        """Move the client's cursor to `seq`, without an update."""

    async def follow_session(self, session_id: str, seq: int, number: int) -> None:
        """Announce the session's updates after `seq`; `number` is the line of the `session/load`,
        or 0.
        """

    async def drop_session(self, session_id: str) -> None:
        """Announce that the session was closed."""

    async def answer(self, number: int, line: bytes) -> None:
        """Send the response to a line."""

    async def acknowledge(self, number: int) -> None:
        """Acknowledge a processed line that has no response."""

    async def taken(self, number: int) -> None:
        """The request outlives this daemon."""

    async def refuse(self, number: int, error: AcpError) -> None:
        """The request is refused without a look at it."""

    async def farewell(self) -> None:
        """The daemon ends, and it is not over anything that the client has said."""

    async def request(self, key: bytes, line: bytes) -> None:
        """Send a request with the id `key` (JSON)."""

    async def notify(self, line: bytes) -> None:
        """Send a notification."""


class DirectPeer:
    """An ACP client that is connected directly: what was written counts as seen."""

    key: str | None = None
    environment: dict[str, str] | None = None
    listener: Listener

    def __init__(
        self,
        transport: Transport,
        begun: bytes = b"",
        client_process: str | None = None,
        room: Room | None = None,
    ) -> None:
        """`begun`: what was read already. `client_process`: None if it cannot be seen which the
        client is.

        `room` is for its lines that are not complete.
        """
        self.front = str(uuid4())
        self.client_process = client_process or f"connection:{self.front}"
        self._transport = transport
        self._begun = begun
        self._framer = LineFramer(MAX_LINE_EARLY, room)
        self._count = 0
        """Number of lines that were given so far."""

    async def incoming(self) -> AsyncIterator[Iterable[ClientLine]]:
        """Lines as they arrive, created lazily: a chunk may contain very many."""
        data = self._begun or await self._transport.read()
        while data:
            contents = self._framer.feed(data)
            yield self._numbered(contents) if contents else ()
            self._framer.settle()
            data = await self._transport.read()
        yield self._numbered(self._framer.end())

    def widen(self) -> None:
        """Accept long lines, from a client that has introduced itself."""
        self._framer.limit = MAX_LINE_IN

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
        """Send the response to a line."""
        await self._transport.write(line)
        self.listener.confirm_answer(number)

    async def acknowledge(self, number: int) -> None:
        """Nothing to write."""

    async def taken(self, number: int) -> None:
        """Nothing to write."""

    async def refuse(self, number: int, error: AcpError) -> None:  # noqa: ARG002  only a front counts lines
        """Nothing to refuse: a line of such a client never comes again."""
        await self._transport.write(jsonrpc.encode_error(jsonrpc.NULL_ID, error))

    async def farewell(self) -> None:
        """Nothing to write."""

    async def request(self, key: bytes, line: bytes) -> None:  # noqa: ARG002  the line holds it
        """Send a request."""
        await self._transport.write(line)

    async def notify(self, line: bytes) -> None:
        """Send a notification."""
        await self._transport.write(line)

    def _numbered(self, contents: list[bytes | bytearray | Oversized]) -> Iterator[ClientLine]:
        for content in contents:
            self._count += 1
            yield ClientLine(self._count, content)
