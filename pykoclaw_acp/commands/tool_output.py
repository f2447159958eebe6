"""What a tool call has shown, in lines of a terminal: the output of a command, the diffs of an edit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pykoclaw_acp.commands import changes
from pykoclaw_acp.commands.document import EDIT, ShownCall
from pykoclaw_acp.commands.markdown import SHORT, output, short_output
from pykoclaw_acp.commands.permission_request import coloured, quoted_line
from pykoclaw_acp.terminal import Shown, shown

ENDS: Final = 30  # lines that are shown of each end of a longer output or diff
WIDEST: Final = 1000  # characters of a line
_COMMAND: Final = "execute"  # ACP's kind of tool
_ALL: Final = "`pykoclaw-acp sessions export` shows all"


def lines(tool: ShownCall) -> Iterator[tuple[Shown, ...]]:
    """The lines, of a command and of a change of files alone; none of output that is one short line,
    which stands beside the title.
    """
    if tool.kind == _COMMAND:
        found = _output(tool)
        if len(found) > 1 or len(found[0]) > SHORT:
            yield from map(quoted_line, _bounded(found))
    elif tool.status == "completed" or (tool.kind == EDIT and len(tool.content) > 1):
        changed = [part for part in tool.content if part.get("type") == "diff"]
        for part in changed:
            yield from _change(part)
        if tool.kind == EDIT and not changed and short_output(tool) is None:
            yield from map(quoted_line, _bounded(_output(tool)))


def texts(tool: ShownCall) -> list[str]:
    """Texts that a call has shown."""
    return [output(block).strip("\n") for block in tool.blocks if block.get("type") == "text"]


def _output(tool: ShownCall) -> list[str]:
    found = texts(tool)
    if tool.status == "failed" and len(found) > 1:
        found = found[:-1]  # the last one is why, which stands beside the title
    return "\n".join(found).strip("\n").split("\n")


def _change(part: dict[str, Any]) -> Iterator[tuple[Shown, ...]]:
    yield (shown(f"  {part.get('path', '')}", bold=True),)
    yield from map(coloured, _bounded(list(changes.lines(part))))


def _bounded(found: list[str]) -> Iterator[str]:
    """The first and the last lines of more, with what is left out in words."""
    left_out = len(found) - 2 * ENDS
    for line in found if left_out <= 1 else found[:ENDS]:
        yield _cut(line)
    if left_out > 1:
        yield f"… ({left_out:,} lines are left out here; {_ALL})"
        yield from map(_cut, found[-ENDS:])


def _cut(line: str) -> str:
    if len(line) <= WIDEST:
        return line
    return f"{line[:WIDEST]}… ({len(line) - WIDEST:,} characters are left out here; {_ALL})"
