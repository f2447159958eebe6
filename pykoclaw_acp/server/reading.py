"""What a line of a client says; a long one is read in pieces, and all else goes on meanwhile."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final

from pykoclaw_acp.errors import InvalidRequest
from pykoclaw_acp.protocol import jsonrpc, long_lines
from pykoclaw_acp.protocol.jsonrpc import Message, Request
from pykoclaw_acp.protocol.messages import PromptParams
from pykoclaw_acp.protocol.prompt import MAX_BLOCKS
from pykoclaw_acp.tasks import in_pieces

PROMPT: Final = "session/prompt"


@dataclass(frozen=True, slots=True)
class Read:
    """A message; a prompt of long texts is `short`, without them, and `line` is all of it."""

    message: Message | None
    line: bytes = b""
    short: long_lines.Short | None = None

    def params(self, raw: bytes, kind: type[Any]) -> Any:
        """The message's parameters; raises InvalidParams."""
        if self.short is None:
            return jsonrpc.decode_params(raw, kind)
        params = jsonrpc.decode_params(raw, PromptParams)
        if len(params.prompt) > MAX_BLOCKS or self.short.restore(params.prompt):
            return params  # with too many blocks it is refused, whatever they are
        whole = jsonrpc.parse(self.line)  # a long text in another place: it is refused for what it is
        assert isinstance(whole, Request)
        return jsonrpc.decode_params(whole.params, PromptParams)


async def read(line: bytes) -> Read:
    """One line as a message; raises InvalidRequest for one that would take seconds to read."""
    if len(line) <= long_lines.LONG:
        return Read(jsonrpc.parse(line))
    await asyncio.sleep(0)
    try:
        short = await in_pieces(long_lines.shorten(line))
    except long_lines.TooComplex:
        raise InvalidRequest("The message has too many values; it was not read.") from None
    await asyncio.sleep(0)
    if short is not None:
        message = jsonrpc.parse(short.line)
        if isinstance(message, Request) and message.method == PROMPT:
            return Read(message, line, short)
    return Read(jsonrpc.parse(line))
