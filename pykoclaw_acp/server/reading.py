"""Parse a client's lines; a long one is parsed in steps, so that it does not block the
event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import structlog

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import AcpError, InvalidParams, InvalidRequest, Overloaded, ParseError
from pykoclaw_acp.link import line_id
from pykoclaw_acp.link.framing import MAX_LINE_EARLY, Oversized
from pykoclaw_acp.protocol import jsonrpc, long_lines, prompt
from pykoclaw_acp.protocol.jsonrpc import AnyMessage, Invalid, Request, Response
from pykoclaw_acp.protocol.long_lines import RawLine, Short
from pykoclaw_acp.protocol.messages import PromptParams
from pykoclaw_acp.system import shortage
from pykoclaw_acp.tasks import in_pieces

PROMPT: Final = "session/prompt"
MAX_OTHER: Final = MAX_LINE_EARLY  # bytes of a message that is no prompt; it is decoded in one call
REFUSED_REST: Final = 30e-9  # s for each byte, left to others: such lines may come without end

log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ReadMessage:
    """A message. For a prompt with long texts, `long` is its parameters, or the error in them;
    `heavy`: the line's bytes if it was so long that a client gets one such prompt at a time accepted,
    or else 0.
    """

    message: AnyMessage | None
    long: PromptParams | AcpError | None = None
    heavy: int = 0

    def params(self, raw: bytes, kind: type[Any]) -> Any:
        """The message's parameters; raises InvalidParams."""
        if isinstance(self.long, AcpError):
            raise self.long
        return jsonrpc.decode_params(raw, kind) if self.long is None else self.long


async def read(
    line: RawLine | Oversized, rest: Callable[[], Awaitable[None]] | None = None
) -> ReadMessage:
    """Parse a line. One that is too expensive is refused, under its id if that can be found; so is
    one that there is no memory for.

    `rest` is awaited between the pieces of a long one, which is empty afterwards if it is a
    bytearray.
    """
    try:
        found = await _read(line, rest)
    except MemoryError:
        if isinstance(line, Oversized):
            raise
        found = ReadMessage(Invalid(_id_of(line), _no_memory()))
    if not isinstance(line, Oversized) and len(line) > MAX_OTHER:
        await in_pieces(long_lines.released(line), rest)
    return found


async def _read(
    line: RawLine | Oversized, rest: Callable[[], Awaitable[None]] | None
) -> ReadMessage:
    if isinstance(line, Oversized):
        return ReadMessage(Invalid(line_id.find(line.head), thrown_away(line)))
    if long_lines.is_simple(line):
        return ReadMessage(jsonrpc.parse(line))
    await asyncio.sleep(0)
    try:
        short = await in_pieces(long_lines.shorten(line), rest)
    except long_lines.TooComplex:
        if len(line) > long_lines.LONG:
            await asyncio.sleep(REFUSED_REST * len(line))
        return ReadMessage(Invalid(_id_of(line), InvalidRequest(_TOO_COMPLEX)))
    except long_lines.NoJson:
        return ReadMessage(Invalid(jsonrpc.NULL_ID, ParseError("The line is not valid JSON.")))
    await asyncio.sleep(0)
    message = jsonrpc.parse(short.line)
    if _is_long(message, short):
        return ReadMessage(Invalid(jsonrpc.NULL_ID, InvalidRequest(jsonrpc.BAD_ID)))
    if getattr(message, "method", "") == PROMPT:
        await asyncio.sleep(0)
        return ReadMessage(
            message,
            await _prompt(message, short, rest),
            heavy=len(line) if len(line) > MAX_OTHER else 0,
        )
    if len(line) <= MAX_OTHER:
        return ReadMessage(jsonrpc.parse(line) if short.texts else message)
    return ReadMessage(_too_long(message))


async def _prompt(
    message: Any, short: Short, rest: Callable[[], Awaitable[None]] | None
) -> PromptParams | AcpError:
    try:
        params = jsonrpc.decode_params(message.params, PromptParams)
        return await in_pieces(prompt.restored(params, short.texts), rest)
    except InvalidParams as error:
        return error


def _is_long(message: AnyMessage | None, short: Short) -> bool:
    """Whether the message's id is one of the long texts."""
    return (
        isinstance(message, Request | Response | Invalid)
        and message.id.strip(b'"').decode() in short.texts
    )


def _too_long(message: AnyMessage | None) -> AnyMessage | None:
    """The refusal of a message that is too long for anything but a prompt."""
    if isinstance(message, Request):
        return Invalid(
            message.id,
            InvalidRequest(
                f"Only a prompt may have more than {MAX_OTHER >> 20} MiB; this message was not read. "
                "Put long material in files."
            ),
        )
    if isinstance(message, Response):
        return Response(message.id, None, b"{}")
    return message if isinstance(message, Invalid) else None


def _id_of(line: RawLine) -> bytes:
    """The id of a line that is not parsed."""
    return line_id.find(line[: line_id.TAIL], line[-line_id.TAIL :])


def _no_memory() -> AcpError:
    log.error("A message is refused for lack of memory", action="line_refused", reason="no memory")
    kind, why = shortage.MEMORY
    return Overloaded(f"The message was not read: {why} Then send it again.", kind)


def thrown_away(line: Oversized) -> AcpError:
    """The refusal of a line that was not kept."""
    if line.no_memory:
        return _no_memory()
    if line.crowded:
        return Overloaded(
            "Too many long messages are on their way; this one was not read. Send it again in a moment.",
            ErrorKind.TOO_MANY_LINES,
        )
    before = " before `initialize`" if line.limit <= MAX_LINE_EARLY else ""
    limit = f"{line.limit >> 20} MiB{before}"
    return InvalidRequest(
        f"The line is longer than {limit}; it was not read. Put long material in files."
    )


_TOO_COMPLEX: Final = (
    f"The message has more than {long_lines.MOST_VALUES:,} values, more than {long_lines.MOST_DEPTH} of them inside of "
    "each other, or too much outside of its long texts; it was not read. Put long material in files."
)
