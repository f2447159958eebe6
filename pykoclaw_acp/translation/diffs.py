"""Changes to files: as a tool is about to make them, and the hunks that it has made."""

from __future__ import annotations

import os.path
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from pykoclaw_acp.model.events import DiffPart, Location, TextPart, ToolPart, ToolStarted
from pykoclaw_acp.translation.texts import MAX_SHOWN, fenced, first_text, shorten

MAX_HUNKS: Final = 200  # of one change
UNCHANGED: Final = "(The file had this content already.)"
_CREATED: Final = "File created successfully at:"


class Change(NamedTuple):
    """A change that was made; `locations` has the first line of each hunk that was changed."""

    parts: tuple[ToolPart, ...]
    locations: tuple[Location, ...]


def intended(name: str, arguments: dict[str, Any], cwd: str) -> tuple[ToolPart, ...]:
    """The change that a call of a file tool is about to make, as far as its input says."""
    given = arguments.get("notebook_path" if name == "NotebookEdit" else "file_path")
    if not isinstance(given, str) or not given:
        return ()
    path = os.path.normpath(os.path.join(cwd, given))
    if name == "Write" and isinstance(content := arguments.get("content"), str):
        return _text(content)  # a diff would say whether the file is new
    if name == "Edit":
        return _replaced(path, [arguments])
    if name == "MultiEdit" and isinstance(edits := arguments.get("edits"), list):
        return _replaced(path, edits)
    if name == "NotebookEdit" and isinstance(source := arguments.get("new_source"), str):
        return _text(source)
    return ()


def asked_about(parts: Iterable[ToolPart]) -> tuple[DiffPart, ...]:
    """The changes that a question shows, as the log keeps them after it: cut where they are long."""
    return tuple(
        replace(
            one,
            old_text=None if one.old_text is None else shorten(one.old_text),
            new_text=shorten(one.new_text),
        )
        for one in parts
        if isinstance(one, DiffPart)
    )


def made(details: dict[str, Any], path: str) -> Change | None:
    """The change of a file as the CLI tells it; None if it does not tell it."""
    patch = details.get("structuredPatch")
    if not isinstance(patch, list):
        return None
    if not patch:  # also where the CLI did not compare, as with a file that is too large
        before, now = (details.get(key) for key in ("originalFile", "content"))
        if details.get("type") == "create" and isinstance(now, str):
            return Change((DiffPart(path, None, shorten(now)),), ())
        same = details.get("type") == "update" and isinstance(before, str) and before == now
        return Change((TextPart(UNCHANGED, beside=True),), ()) if same else None
    parts: list[ToolPart] = []
    lines: list[int] = []
    room = MAX_SHOWN
    files = _files(details)
    for at, hunk in enumerate(patch):
        found = _hunk(hunk, path, room, files)
        if found is None:
            return None
        parts.append(found)
        lines.append((found.line or 0) + _unchanged_before(hunk["lines"]))
        room -= len(found.old_text or "") + len(found.new_text)
        if (room <= 0 or at + 1 == MAX_HUNKS) and (left := len(patch) - at - 1):
            note = f"({left} more changes of this file are not shown)"
            parts.append(TextPart(note, beside=True))
            break
    return Change(tuple(parts), tuple(Location(path, line) for line in lines))


def of_new_file(call: ToolStarted | None, blocks: object) -> dict[str, Any] | None:
    """What the CLI tells of a file that was created, for a call of which it tells that to the model
    alone, as of a subagent's; None for other results.
    """
    if call is None or call.name != "Write" or not first_text(blocks).startswith(_CREATED):
        return None
    given = call.input or {}
    told = {"filePath": given.get("file_path"), "content": given.get("content")}
    return {"type": "create", "structuredPatch": [], **told}


def in_notebook(details: dict[str, Any]) -> Change | None:
    """The change of a cell as the CLI tells it; None if it does not tell it."""
    path, mode = details.get("notebook_path"), details.get("edit_mode")
    old, new = details.get("old_source") or "", details.get("new_source") or ""
    if not (isinstance(path, str) and isinstance(old, str) and isinstance(new, str)):
        return None
    old, new = ("" if mode == "insert" else old), ("" if mode == "delete" else new)
    part = DiffPart(path=path, old_text=shorten(old), new_text=shorten(new))
    return Change((part,), (Location(path),))


def _text(content: str) -> tuple[ToolPart, ...]:
    return (TextPart(fenced(content), beside=True),) if content.strip() else ()


def _replaced(path: str, edits: list[Any]) -> tuple[ToolPart, ...]:
    parts: list[ToolPart] = []
    for one in edits[:MAX_HUNKS]:
        old, new = (
            one.get(key) if isinstance(one, dict) else None for key in ("old_string", "new_string")
        )
        if isinstance(old, str) and isinstance(new, str):
            most = MAX_SHOWN // len(edits[:MAX_HUNKS])
            parts.append(
                DiffPart(path=path, old_text=shorten(old, most), new_text=shorten(new, most))
            )
    return tuple(parts)


def _unchanged_before(lines: list[Any]) -> int:
    """Number of lines of a hunk before the first one that was changed."""
    return sum(1 for _ in takewhile(lambda line: str(line).startswith(" "), lines))


def _files(details: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The lines of the file before the change and after it, as far as they are told."""
    before, after = details.get("originalFile"), details.get("content")
    if not isinstance(before, str):
        return [], []
    old, new = details.get("oldString"), details.get("newString")
    if isinstance(old, str) and isinstance(new, str):
        # The CLI takes the end of a line along that it takes out
        whole_line = new == "" and not old.endswith("\n") and f"{old}\n" in before
        count = -1 if details.get("replaceAll") else 1
        after = before.replace(f"{old}\n" if whole_line else old, new, count)
    return before.split("\n"), after.split("\n") if isinstance(after, str) else []


@dataclass(slots=True)
class _Side:
    """One side of a hunk that begins at line `start` of the file with the lines `file`."""

    file: list[str]
    start: int
    lines: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Add a line of the hunk, in which the CLI has put two spaces in place of each tab that it
        begins with.
        """
        at = self.start - 1 + len(self.lines)
        line = self.file[at] if 0 <= at < len(self.file) else text
        rest = line.lstrip("\t")
        same = text == "  " * (len(line) - len(rest)) + rest
        self.lines.append(f"{line if same else text}\n")


def _hunk(
    hunk: object, path: str, room: int, files: tuple[list[str], list[str]]
) -> DiffPart | None:
    if not isinstance(hunk, dict):
        return None
    lines, line, old_line = (hunk.get(key) for key in ("lines", "newStart", "oldStart"))
    if not (isinstance(lines, list) and isinstance(line, int) and isinstance(old_line, int)):
        return None
    old, new = _Side(files[0], old_line), _Side(files[1], line)
    sides = {" ": (old, new), "-": (old,), "+": (new,)}
    last: tuple[_Side, ...] = ()
    for one in lines:
        sign, text = str(one)[:1], str(one)[1:]
        if sign == "\\":  # No newline at end of file
            for side in last:
                side.lines[-1] = side.lines[-1].removesuffix("\n")
            continue
        last = sides.get(sign, ())
        for side in last:
            side.add(text)
    most = max(room // 2, 1000)
    return DiffPart(
        path=path,
        old_text=shorten("".join(old.lines), most),
        new_text=shorten("".join(new.lines), most),
        line=line,
        old_line=old_line,
    )
