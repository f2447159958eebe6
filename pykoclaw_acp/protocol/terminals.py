"""Output of commands for clients that show it in terminals: `terminal_info`, `terminal_output` and
`terminal_exit` in `_meta`, as Zed has introduced them.

A client appends what it gets. What of a command it was shown is known for as long as it is
connected; where that is not known, its terminal is cleared and written anew. Of the whole output of
an ended command, which has its colours but no other sequences, only the rest is appended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from pykoclaw_acp.model.code_blocks import unfenced
from pykoclaw_acp.model.events import (
    COMMANDS,
    Event,
    Output,
    TextPart,
    ToolEnded,
    ToolPart,
    ToolProgressed,
    ToolStarted,
)
from pykoclaw_acp.model.plain import COLOUR, plain
from pykoclaw_acp.protocol.content import Terminal
from pykoclaw_acp.protocol.projection import parts
from pykoclaw_acp.protocol.updates import ToolCall, ToolCallUpdate, Update

CLEAR: Final = "\x1b[H\x1b[2J\x1b[3J"
LEFT_OUT: Final = "\r\n… {} bytes left out …\r\n"
MOST: Final = 1000  # commands of which a client may be shown more


class _Whole(NamedTuple):
    """The output of a command that has ended, plain and with its colours."""

    text: str
    coloured: str


@dataclass(frozen=True, slots=True)
class Capability:
    """What a client does with output: `deltas`: it appends what comes under a key of its own."""

    deltas: bool = False

    @classmethod
    def of(cls, meta: dict[str, Any] | None) -> Capability | None:
        """From `_meta` of a client's capabilities; None if it shows no terminals."""
        given = meta or {}
        deltas = given.get("terminal_output_delta") is True
        return cls(deltas) if deltas or given.get("terminal_output") is True else None


class Terminals:
    """Terminals of one connected client."""

    def __init__(self, capability: Capability) -> None:
        self._capability = capability
        self._shown: dict[tuple[str, str], Output] = {}

    def dress(self, session_id: str, event: Event | None, update: Update) -> Update:
        """The update of an event as this client takes it."""
        if isinstance(event, ToolStarted) and isinstance(update, ToolCall):
            return self._started(session_id, event, update)
        if isinstance(update, ToolCallUpdate):
            if isinstance(event, ToolProgressed) and event.output is not None:
                return self._progressed(session_id, event, event.output, update)
            if isinstance(event, ToolEnded):
                return self._ended(session_id, event, update)
        return update

    def _started(self, session_id: str, event: ToolStarted, update: ToolCall) -> Update:
        if event.name not in COMMANDS:
            return update
        call = event.tool_call_id
        self._keep(session_id, call, Output(""))
        meta = {**(update.meta or {}), "terminal_info": {"terminal_id": call}}
        content = [*(update.content or ()), Terminal(terminal_id=call)]
        return replace(update, content=content, meta=meta)

    def _progressed(
        self, session_id: str, event: ToolProgressed, output: Output, update: ToolCallUpdate
    ) -> Update:
        call = event.tool_call_id
        added = _added(self._shown.get((session_id, call)), output)
        self._keep(session_id, call, output)
        before, _, after = _split(event.content)
        content = (
            [*(parts(before) or ()), Terminal(terminal_id=call), *(parts(after) or ())]
            if after or event.allowed
            else None
        )
        meta = update.meta if added == "" else self._meta(update, call, added, output.text)
        return replace(update, content=content, meta=meta)

    def _ended(self, session_id: str, event: ToolEnded, update: ToolCallUpdate) -> Update:
        call = event.tool_call_id
        known = self._shown.pop((session_id, call), None)
        if known is None and event.exit_code is None:
            return update  # no command, as far as is known
        before, whole, after = _split(event.content)
        reason = () if event.reason is None else (TextPart(event.reason),)
        content = [
            *(parts(before) or ()),
            Terminal(terminal_id=call),
            *(parts((*after, *reason)) or ()),
        ]
        added = None if whole is None else _rest(known, whole)
        meta = update.meta or {}
        if whole is not None and added != "":
            meta = self._meta(update, call, added, whole.coloured)
        exit_code = {"terminal_id": call, "exit_code": event.exit_code, "signal": None}
        return replace(update, content=content, meta={**meta, "terminal_exit": exit_code})

    def _meta(
        self, update: ToolCallUpdate, call: str, added: str | None, whole: str
    ) -> dict[str, Any]:
        """`added`: what is new; None: the terminal is written anew with the `whole`."""
        key = "terminal_output"
        data = added
        if self._capability.deltas and added is not None:
            key = "terminal_output_delta"
        elif data is None:
            data = whole if self._capability.deltas else CLEAR + whole
        return {**(update.meta or {}), key: {"terminal_id": call, "data": data}}

    def _keep(self, session_id: str, call: str, shown: Output) -> None:
        self._shown[session_id, call] = shown
        if len(self._shown) > MOST:
            del self._shown[next(iter(self._shown))]


def _added(known: Output | None, output: Output) -> str | None:
    """What of the output a client was not shown; None if that is not known."""
    if known is None:
        return None
    end = known.start + len(known.text.encode())
    data = output.text.encode()
    if output.start > end:
        return LEFT_OUT.format(output.start - end) + output.text
    if end > output.start + len(data):
        return None
    return data[end - output.start :].decode(errors="replace")


def _rest(known: Output | None, whole: _Whole) -> str | None:
    """What of the whole output a client was not shown; None if that cannot be told.

    The whole is without white space at its end.
    """
    if known is None:
        return None
    if not known.text:
        return whole.coloured
    text = whole.text
    for was in _as_in_the_end(known):
        if known.start == 0 and text.startswith(was):
            return _from(whole, len(was))
        if known.start == 0 and text == was.rstrip():
            return ""
        if known.start > 0 and was and (at := text.rfind(was)) >= 0:
            return _from(whole, at + len(was))
        if known.start > 0 and was.rstrip() and text.endswith(was.rstrip()):
            return ""
    return None


def _from(whole: _Whole, at: int) -> str:
    """The output from this character on, with the colours that begin there."""
    if at >= len(whole.text):
        return ""
    passed = end = 0  # characters before a colour; where the colour before it ends
    for found in COLOUR.finditer(whole.coloured):
        if passed + found.start() - end >= at:
            break
        passed += found.start() - end
        end = found.end()
    return whole.coloured[end + at - passed :]


def _as_in_the_end(known: Output) -> tuple[str, ...]:
    """What was shown as the whole output has it: a carriage return ends a line, or was obeyed."""
    text = known.text
    if text.endswith("\x1b"):
        return ()  # the terminal waits for the rest of a sequence
    if known.start > 0 and "\x1b" in text:
        text = text.partition("\n")[2]  # a sequence may have begun before
    lines = [one.rpartition("\r")[2] for one in text.replace("\r\n", "\n").split("\n")]
    ended = text.replace("\r\n", "\n").replace("\r", "\n")
    return plain(ended), plain("\n".join(lines))


def _split(
    content: tuple[ToolPart, ...],
) -> tuple[tuple[ToolPart, ...], _Whole | None, tuple[ToolPart, ...]]:
    """What stands before the output of a command, the output, and what stands after it."""
    for at, part in enumerate(content):
        if isinstance(part, TextPart) and not part.command:
            text = unfenced(part.text)
            if text != part.text:
                whole = _Whole(text, part.coloured or text)
                return content[:at], whole, content[at + 1 :]
            return content[:at], None, content[at:]
    return content, None, ()
