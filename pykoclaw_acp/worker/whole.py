"""A complete tool call, for the person who decides about it: nothing is cut, nothing is
invisible.
"""

from __future__ import annotations

import json
import os.path
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from pykoclaw_acp.model.events import DiffPart, TextPart, ToolPart
from pykoclaw_acp.neutral import fenced, neutral
from pykoclaw_acp.system import disks
from pykoclaw_acp.worker import existing
from pykoclaw_acp.worker.failures import in_one_line

MOST: Final = 2 * 1024 * 1024
"""Bytes (JSON) of the arguments of a call that a person can be asked about; clients take lines of 8 MiB."""

TOO_LARGE: Final = (
    "The user was not asked: the arguments of this call have more than 2 MiB, and nobody can look through that before "
    "allowing it. Make the call in smaller pieces."
)
Before = Callable[[str, str], tuple[str | None, str | None]]
_LAID_OUT: Final = 4096  # characters of a structure that is written over several lines
_LONGEST_REASON: Final = 1000  # characters
_PATHS: Final = ("file_path", "notebook_path", "path")


def too_large(arguments: dict[str, Any]) -> bool:
    """Whether the call is too large to ask anybody about it."""
    return len(json.dumps(arguments, ensure_ascii=False).encode(errors="surrogatepass")) > MOST


async def shown(
    name: str,
    arguments: dict[str, Any],
    cwd: str,
    always: str | None,
    added: tuple[str, ...] = (),
) -> tuple[ToolPart, ...]:
    """Make the `parts`; a disk that does not answer holds up nothing else, and this not for ever.

    `added`: directories that belong to the session besides `cwd`.
    """
    if name != "Write":
        return parts(name, arguments, cwd, always)
    path = os.path.join(cwd, str(arguments.get("file_path")))
    try:
        before = partial(existing.before, added=added)
        return await disks.call(path, partial(parts, name, arguments, cwd, always, before))
    except TimeoutError:
        return parts(name, arguments, cwd, always, existing.unseen)


def parts(
    name: str,
    arguments: dict[str, Any],
    cwd: str,
    always: str | None,
    before: Before = existing.before,
) -> tuple[ToolPart, ...]:
    """What clients show with the permission request: the change as a diff, all other arguments as
    text.

    `always`: what an "always" would allow besides; `before` looks at the file that would be
    replaced.
    """
    diffs, told = _diffs(name, arguments, cwd, before)
    # The command comes before what is said of it.
    ordered = sorted(arguments.items(), key=lambda one: one[0] != "command")
    words = [_argument(key, value) for key, value in ordered if key not in told]
    if always is not None:
        words.append(f"“Always” would allow: {neutral(always)}")
    return (*diffs, TextPart("\n\n".join(words))) if words else diffs


def reason(given: str | None) -> tuple[ToolPart, ...]:
    """Why there is a question, as a hook or the CLI says it; nothing if neither does."""
    said = in_one_line(given or "", _LONGEST_REASON)
    return (TextPart(f"Why this is asked:\n{fenced(said)}"),) if said else ()


def _diffs(
    name: str, arguments: dict[str, Any], cwd: str, before: Before
) -> tuple[tuple[ToolPart, ...], frozenset[str]]:
    """The changes to a file, and which arguments they show."""
    path = arguments.get("file_path")
    if not isinstance(path, str) or not path:
        return (), frozenset()
    path = os.path.normpath(os.path.join(cwd, path))
    content, old, new = (arguments.get(key) for key in ("content", "old_string", "new_string"))
    if name == "Write" and isinstance(content, str):
        was, note = before(path, cwd)
        both = frozenset({"file_path", "content"})
        if note is not None:  # a diff without the old text would say that the file is new
            return (TextPart(note), TextPart(fenced(content))), both
        return (DiffPart(path=path, old_text=was, new_text=content),), both
    if name == "Edit" and isinstance(old, str) and isinstance(new, str):
        told = {"file_path", "old_string", "new_string"}
        if arguments.get("replace_all") is False:
            told.add("replace_all")
        return (DiffPart(path=path, old_text=old, new_text=new),), frozenset(told)
    return (), frozenset()


def _argument(key: str, value: object) -> str:
    name = neutral(key)
    if isinstance(value, str):
        if key in _PATHS or (
            key != "command" and "\n" not in value and len(value) <= 200 and "`" not in value
        ):
            return f"{name}: {neutral(value)}"
        return f"{name}:\n{fenced(value, 'sh' if key == 'command' else '')}"
    shown = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, list | dict):
        return f"{name}: {shown}"
    if len(shown) <= _LAID_OUT:
        shown = json.dumps(value, ensure_ascii=False, indent=2)
    return f"{name}:\n{fenced(shown, 'json')}"
