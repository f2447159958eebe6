"""How a tool call is presented: kind, title, content, files; pure functions."""

from __future__ import annotations

import os.path
import re
from typing import Any, Final

from pykoclaw_acp.model.events import DiffPart, ImagePart, Location, TextPart, ToolKind, ToolPart
from pykoclaw_acp.neutral import neutral

MAX_SHOWN: Final = 256 * 1024  # characters of a tool's text that are kept in the log
MAX_IMAGE: Final = 5 * 1024 * 1024  # characters of one result, images as base64
MAX_TITLE: Final = 120  # characters

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
    "Glob": "search",
    "Grep": "search",
    "LS": "search",
    "ToolSearch": "search",
    "WebFetch": "fetch",
    "WebSearch": "fetch",
    "Agent": "think",
    "Task": "think",
    "TodoWrite": "think",
    "TaskCreate": "think",
    "TaskUpdate": "think",
    "TaskList": "think",
    "TaskGet": "think",
    "EnterPlanMode": "switch_mode",
    "ExitPlanMode": "switch_mode",
}

_LONGEST_LINE: Final = 4096  # characters in which a title is looked for
_FENCES: Final = re.compile("`{3,}")
_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]")


def kind(name: str) -> ToolKind:
    """ACP's kind of a tool."""
    return KINDS.get(name, "other")


def title(name: str, arguments: dict[str, Any], cwd: str, label: str | None = None) -> str:
    """Title of a tool call; final from the start, since some clients never update it.

    `label`: what the tool is named for people.
    """
    path = _path(arguments, cwd)
    detail: str | None = None
    if name == "Bash":
        detail = _text(arguments, "command")
    elif path is not None:
        detail = _relative(path, cwd)
    elif name in ("Agent", "Task"):
        detail = _text(arguments, "description")
    else:
        for key in ("pattern", "url", "query", "subject", "skill", "command", "description"):
            detail = detail or _text(arguments, key)
    if label is None:
        label = name.replace("mcp__", "").replace("__", ": ") if name.startswith("mcp__") else name
    if detail is None:
        return one_line(label)
    joined = (
        f"{label}: {detail}"
        if kind(name) in ("execute", "search", "fetch", "think")
        else f"{label} {detail}"
    )
    return one_line(joined)


def one_line(text: str, most: int = MAX_TITLE) -> str:
    """The text as one line without invisible characters: ⏎ for line ends, and a mark where it is
    cut.
    """
    lines = [
        " ".join(line.split()) for line in neutral(text[:_LONGEST_LINE], "command").split("\n")
    ]
    line = " ⏎ ".join(line for line in lines if line)
    if len(line) <= most and len(text) <= _LONGEST_LINE:
        return line
    note = f"… [cut: {len(text)} characters in all]"
    if (count := text.count("\n") + 1) > 1:
        note = f"… [cut: {count} lines, {len(text)} characters in all]"
    return line[: most - len(note)] + note


def content(name: str, arguments: dict[str, Any], cwd: str) -> tuple[ToolPart, ...]:
    """Content before the tool has run: the change that a file tool is about to make."""
    path = _path(arguments, cwd)
    if path is None:
        return ()
    if name == "Write" and (text := _text(arguments, "content")) is not None:
        return (DiffPart(path=path, old_text=None, new_text=shorten(text)),)
    if name == "Edit":
        old, new = _text(arguments, "old_string"), _text(arguments, "new_string")
        if old is not None and new is not None:
            return (DiffPart(path=path, old_text=shorten(old), new_text=shorten(new)),)
    return ()


def locations(arguments: dict[str, Any], cwd: str) -> tuple[Location, ...]:
    """The file that the tool works on."""
    path = _path(arguments, cwd)
    if path is None:
        return ()
    offset = arguments.get("offset")
    return (Location(path=path, line=offset if isinstance(offset, int) and offset > 0 else None),)


def shown_input(arguments: dict[str, Any]) -> dict[str, Any]:
    """The input for the log, with long texts cut."""
    return {key: _bounded(value) for key, value in arguments.items()}


def result(name: str, blocks: object, failed: bool) -> tuple[ToolPart, ...]:
    """The result of a tool; a successful change has nothing beyond its diff."""
    if name in ("Write", "Edit", "NotebookEdit") and not failed:
        return ()
    if isinstance(blocks, str):
        return _shown_text(name, blocks)
    parts: list[ToolPart] = []
    room = MAX_IMAGE
    for block in blocks if isinstance(blocks, list) else ():
        if not isinstance(block, dict):
            continue
        if block.get("type") == "text" and isinstance(block.get("text"), str):
            shown = _shown_text(name, shorten(block["text"], min(room, MAX_SHOWN)))
            room -= sum(len(part.text) for part in shown)
            parts.extend(shown)
        elif block.get("type") == "image":
            part = _image(block, room)
            room -= len(part.data) if isinstance(part, ImagePart) else 0
            parts.append(part)
        if room <= 0:
            parts.append(TextPart("(more was left out)"))
            break
    return tuple(parts)


def shorten(text: str, limit: int = MAX_SHOWN) -> str:
    """The text, or its beginning and its end with a mark between them."""
    if len(text) <= limit:
        return text
    cut = len(text) - limit
    return f"{text[: limit // 2]}\n… {cut} characters left out …\n{text[-(limit // 2) :]}"


def plain(text: str) -> str:
    """The text without terminal control sequences."""
    return _ANSI.sub("", text)


def _shown_text(name: str, text: str) -> tuple[TextPart, ...]:
    text = shorten(plain(text).rstrip())
    if not text:
        return ()
    if name.startswith("mcp__") or name in (
        "Agent",
        "Task",
        "WebSearch",
        "WebFetch",
        "ExitPlanMode",
    ):
        return (TextPart(text),)
    fence = "`" * max((len(found) + 1 for found in _FENCES.findall(text)), default=3)
    return (TextPart(f"{fence}\n{text}\n{fence}"),)


def _image(block: dict[str, Any], room: int) -> ToolPart:
    source = block.get("source")
    if isinstance(source, dict) and source.get("type") == "base64":
        data, mime = source.get("data"), source.get("media_type")
        if isinstance(data, str) and isinstance(mime, str) and len(data) <= room:
            return ImagePart(data=data, mime_type=mime)
    return TextPart("(an image that is too large to show)")


def _path(arguments: dict[str, Any], cwd: str) -> str | None:
    for key in ("file_path", "notebook_path", "path"):
        if value := _text(arguments, key):
            return os.path.normpath(os.path.join(cwd, value))  # ACP wants absolute paths
    return None


def _text(arguments: dict[str, Any], key: str) -> str | None:
    value = arguments.get(key)
    return (
        value
        if isinstance(value, str) and (value or key in ("content", "old_string", "new_string"))
        else None
    )


def _relative(path: str, cwd: str) -> str:
    relative = os.path.relpath(path, cwd)
    return path if relative.startswith("..") else relative


def _bounded(value: object) -> object:
    if isinstance(value, str):
        return shorten(value)
    if isinstance(value, list | dict) and len(str(value)) > MAX_SHOWN:
        return "(too large to show)"
    return value
