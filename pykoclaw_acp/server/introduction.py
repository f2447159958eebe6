"""A front's introduction: counted among the lines of all clients while it is read, and decoded in
steps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Annotated, Final

import msgspec
import structlog
from msgspec.structs import replace

from pykoclaw_acp.errors import ParseError
from pykoclaw_acp.link import lines
from pykoclaw_acp.link.framing import LineFramer, Oversized
from pykoclaw_acp.protocol import long_lines
from pykoclaw_acp.protocol.limits import Count, Id, Name
from pykoclaw_acp.protocol.long_lines import LongText, RawLine
from pykoclaw_acp.server import reading
from pykoclaw_acp.server.peer import Transport
from pykoclaw_acp.tasks import in_pieces

NOTHING: Final = msgspec.Raw(b"null")
UNSAID: Final = msgspec.Raw()
# Bytes; it names the sessions of a client, with their MCP servers
MAX_HELLO: Final = 8 * 1024 * 1024
MAX_FOLLOWED: Final = 10_000  # sessions, or permission requests, in it
MESSAGES: Final = 5  # whose values it may hold: 10,000 sessions have 80,000
_ENVIRONMENT: Final = 2  # the same of the environment, which Linux limits to 2 MiB
_STEP: Final = 100  # sessions

Rest = Callable[[], Awaitable[None]]

log: Final = structlog.get_logger()


class ReportedSession(msgspec.Struct, frozen=True):
    """A session that the front's client follows: its place, the load that set it (0: none), how it
    was opened last.

    `seq` is what the front was told, `seen` what its client has; None: a front of before does not
    say it. `earlier`: not the front's `daemon` has told it, but one before that.
    """

    seq: Count
    seen: Count | None = None
    line: Count = 0
    opened: msgspec.Raw = NOTHING
    earlier: bool = False


class FrontHello(msgspec.Struct, frozen=True):
    """What a front knows when it connects; `asked` are ids of our requests that its client has not
    answered.

    `clocks`: what its wall clock showed (ms since 1970), and how many ms the boot had been awake,
    at one moment. `deaths`: by line, how many daemons died before one had taken it. `taken`: lines of prompts
    that were in the journal. `parent` is the
    process that has started it: empty from a front that does not say it, null if it could not be
    seen. `daemon`: the process that has told it its newest places, null if it cannot say.
    `environment`: variables that are its client's, or that differ from a daemon's settings.
    """

    front: Id
    link: Count = lines.LINK
    version: Name = "unknown"
    pid: Count = 0
    parent: msgspec.Raw = UNSAID
    daemon: msgspec.Raw = NOTHING
    initialize: msgspec.Raw = NOTHING
    sessions: Annotated[dict[Name, ReportedSession], msgspec.Meta(max_length=MAX_FOLLOWED)] = {}
    asked: Annotated[list[Name], msgspec.Meta(max_length=MAX_FOLLOWED)] = []
    deaths: Annotated[dict[Name, Count], msgspec.Meta(max_length=MAX_FOLLOWED)] = {}
    taken: Annotated[list[Count], msgspec.Meta(max_length=MAX_FOLLOWED)] = []
    clocks: tuple[Count, Count] | None = None
    environment: msgspec.Raw = NOTHING
    logged_out: bool = msgspec.field(default=False, name="loggedOut")

    def settled(self) -> FrontHello:
        """What of it is needed later: raw parts keep all its bytes in memory."""
        return replace(
            self,
            parent=UNSAID,
            daemon=NOTHING,
            initialize=NOTHING,
            sessions={},
            asked=[],
            environment=NOTHING,
        )


_hello: Final = msgspec.json.Decoder(FrontHello)
_environment: Final = msgspec.json.Decoder(dict[Name, str] | None)


async def read(
    transport: Transport, begun: bytes | bytearray, framer: LineFramer
) -> tuple[RawLine, bytes]:
    """The introduction, which begins with `begun`, and what was read after it. Raises ParseError,
    and Overloaded if there is no memory for it.
    """
    data = bytes(begun)
    while True:
        end = data.find(b"\n") + 1
        found = framer.feed(data[:end] if end else data)
        if found:
            break
        data = await transport.read()
        if not data:
            raise ParseError("The front left before it had introduced itself.")
    line = found[0]
    if not isinstance(line, Oversized):
        return line, data[end:]
    if line.crowded or line.no_memory:
        raise reading.thrown_away(line)
    raise ParseError(f"The front's introduction is longer than {MAX_HELLO >> 20} MiB.")


async def decode(
    line: RawLine, rest: Rest | None = None
) -> tuple[FrontHello, dict[str, str] | None]:
    """The introduction, and the variables that it gives: None if the front is of a version that
    gives none, or they cannot be read. Raises ParseError. `rest` as in `tasks.Pace`.
    """
    try:
        short = await in_pieces(long_lines.measured(line, MESSAGES), rest)
        hello = _hello.decode(short.line[len(lines.GREETING) :])
        texts = short.texts
        if texts and any(one in texts for one in _names(hello)):
            raise msgspec.ValidationError("a name is too long")
    except (
        msgspec.MsgspecError, UnicodeError, RecursionError, long_lines.TooComplex, long_lines.NoJson,
    ) as error:  # fmt: skip
        raise ParseError("The front's introduction cannot be read.") from error
    environment = await _environment_of(hello, texts, rest)
    if texts:
        hello = await in_pieces(_restored(hello, texts), rest)
    return hello, environment


def _names(hello: FrontHello) -> list[str]:
    """Everything in it that may not be long."""
    return [hello.front, hello.version, *hello.sessions, *hello.asked, *hello.deaths]


async def _environment_of(
    hello: FrontHello, texts: Mapping[str, LongText], rest: Rest | None
) -> dict[str, str] | None:
    try:
        short = await in_pieces(long_lines.measured(bytes(hello.environment), _ENVIRONMENT), rest)
        found: dict[str, str] | None = _environment.decode(short.line)
        if texts and any(name in texts for name in found or ()):
            raise msgspec.ValidationError("a name is too long")
    except (msgspec.MsgspecError, UnicodeError, RecursionError, long_lines.TooComplex):
        log.warning("A front's environment was not understood", action="environment_ignored")
        return None
    if found and texts:
        for name, value in found.items():
            if value in texts:
                found[name] = await in_pieces(texts[value].joined(), rest)
    return found


def _restored(
    hello: FrontHello, texts: Mapping[str, LongText]
) -> Generator[None, None, FrontHello]:
    """With long texts in the place of their marks, in what is decoded later."""
    sessions = {}
    for at, (session_id, one) in enumerate(hello.sessions.items()):
        opened = yield from long_lines.restored(bytes(one.opened), texts)
        sessions[session_id] = replace(one, opened=msgspec.Raw(opened))
        if at % _STEP == 0:
            yield
    initialize = yield from long_lines.restored(bytes(hello.initialize), texts)
    return replace(hello, initialize=msgspec.Raw(initialize), sessions=sessions)
