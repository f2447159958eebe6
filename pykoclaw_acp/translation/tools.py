"""How a tool call is presented before it has run: kind, content, files; pure functions."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from pykoclaw_acp.model.events import COMMANDS, Location, TextPart, ToolKind, ToolPart
from pykoclaw_acp.neutral import fenced
from pykoclaw_acp.translation import deciding, diffs, titles
from pykoclaw_acp.translation.texts import MAX_SHOWN, one_line, output_text, shorten

MAX_COMMAND: Final = 4096  # characters of a command that its title does not hold

KINDS: Final[dict[str, ToolKind]] = {
    "Read": "read",
    "NotebookRead": "read",
    "Write": "edit",
    "Edit": "edit",
    "MultiEdit": "edit",
    "NotebookEdit": "edit",
    "Bash": "execute",
    "BashOutput": "execute",
    "KillShell": "execute",
    "Monitor": "execute",
    "TaskOutput": "execute",
    "TaskStop": "execute",
    "Glob": "search",
    "Grep": "search",
    "LS": "search",
    "ToolSearch": "search",
    "ListMcpResourcesTool": "search",
    "ReadMcpResourceTool": "read",
    "ReadMcpResourceDirTool": "search",
    "WebFetch": "fetch",
    "WebSearch": "fetch",
    "Agent": "think",
    "Task": "think",
    "SendMessage": "think",
    "TodoWrite": "think",
    "TaskCreate": "think",
    "TaskUpdate": "think",
    "TaskList": "think",
    "TaskGet": "think",
    "EnterPlanMode": "switch_mode",
    "ExitPlanMode": "switch_mode",
}

ASKING: Final = {
    "Agent": "prompt",
    "Task": "prompt",
    "SendMessage": "message",
    "WebFetch": "prompt",
}
"""Parameters of tools that ask another model, with what they ask."""
_ON_FILES: Final = ("read", "edit", "search")
MAX_LEVELS: Final = 100  # of lists and objects in an input that is shown


class AskedCall(NamedTuple):
    """A call about which the user is asked: its title before, the input that is asked about, if it
    is another than the call began with, and the changes to files that the question shows.
    """

    title: str | None = None
    input: dict[str, Any] | None = None
    changes: tuple[ToolPart, ...] = ()


def kind(name: str) -> ToolKind:
    """ACP's kind of a tool."""
    return KINDS.get(name, "other")


def content(name: str, arguments: dict[str, Any], cwd: str) -> tuple[ToolPart, ...]:
    """Content before the tool has run: the change that a file tool is about to make, a command that
    its title does not hold, what another model is asked, a plan, questions.
    """
    if decided := deciding.content(name, arguments):
        return decided
    if name in ASKING and (prompt := titles.text(arguments, ASKING[name])) is not None:
        return (TextPart(shorten(output_text(prompt)), beside=True),)
    return _command(name, arguments, cwd) or diffs.intended(name, arguments, cwd)


def command(parts: tuple[ToolPart, ...]) -> tuple[TextPart, ...]:
    """What of a call's content is its command, which stays above what it puts out."""
    return tuple(one for one in parts if isinstance(one, TextPart) and one.command)


def _command(name: str, arguments: dict[str, Any], cwd: str) -> tuple[TextPart, ...]:
    """The command of a call, if its title does not hold all of it as it is."""
    if name not in COMMANDS or (given := titles.text(arguments, "command")) is None:
        return ()
    if titles.title(name, arguments, cwd).endswith(one_line(given, MAX_SHOWN)) and (
        "\n" not in given.strip()
    ):
        return ()
    return (TextPart(fenced(shorten(given, MAX_COMMAND), "sh"), command=True),)


def locations(name: str, arguments: dict[str, Any], cwd: str) -> tuple[Location, ...]:
    """The file or directory that a tool of Claude's own works on."""
    if kind(name) not in _ON_FILES or (path := titles.path_of(arguments, cwd)) is None:
        return ()
    if name != "Read":
        return (Location(path=path),)
    offset = arguments.get("offset")
    return (Location(path=path, line=offset if isinstance(offset, int) and offset > 0 else 1),)


def shown_input(arguments: dict[str, Any], most: int = MAX_SHOWN) -> dict[str, Any]:
    """The input for the log, with long texts cut."""
    return {key: _bounded(value, most) for key, value in arguments.items()}


def asked_input(arguments: dict[str, Any] | None) -> dict[str, Any] | None:
    """The input of a question, for the end of its call."""
    return None if arguments is None else shown_input(arguments)


def _bounded(value: object, most: int) -> object:
    if isinstance(value, str):
        return shorten(value, most)
    if not isinstance(value, list | dict):
        return value
    if _is_deep(value, MAX_LEVELS):
        return "(nested too deeply to show)"
    text = json.dumps(value, ensure_ascii=False)
    return shorten(text, most) if len(text) > most else value


def _is_deep(value: object, most: int) -> bool:
    """Whether lists and objects are nested more than so many levels."""
    if not isinstance(value, list | dict):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return not most or any(_is_deep(one, most - 1) for one in inner)
