"""The transcripts of all projects: which folders have changed, and what a transcript says of itself.

Of a transcript only the beginning and the end are read; more of the end if a session is made of it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

import msgspec

from pykoclaw_acp.model import prompt_text
from pykoclaw_acp.system.regular_files import ABSENT, opened
from pykoclaw_acp.system.transcript_files import FileStamp, look_closely
from pykoclaw_acp.transcripts import entries, lines
from pykoclaw_acp.transcripts.left_modes import left_mode
from pykoclaw_acp.transcripts.wire import Compare, Examined, FolderChanges, Folders, Survey

HEAD: Final = 64 * 1024 * 1024  # bytes in which the first prompt is looked for: it may hold images
MOST_LINES: Final = 400  # of the beginning
TAIL: Final = 128 * 1024  # bytes in which the newest message and the title are looked for
MOST_WORDS: Final = 2000  # characters of a block of the first prompt
MOST_BLOCKS: Final = 8
MOST_TITLE: Final = 1000  # characters
BATCH: Final = 100  # transcripts in an answer
_MISSING: Final = (FileNotFoundError, NotADirectoryError)
_NAME: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\.jsonl")


class _Line(msgspec.Struct, rename="camel"):
    """What is looked for at the end."""

    type: str = ""
    timestamp: str | None = None
    custom_title: str | None = None
    ai_title: str | None = None


_line: Final = msgspec.json.Decoder(_Line)


def survey(request: Survey) -> Folders:
    """Folders that are not as they were, or are gone; and all of them. Raises OSError if they cannot
    be seen.
    """
    every: list[str] = []
    with contextlib.suppress(*_MISSING), os.scandir(request.projects) as places:
        every = sorted(place.path for place in places if _is_folder(place))
    changed = [one for one in every if _has_changed(one, request.folders.get(one, ""))]
    return Folders(every, changed, sorted(request.folders.keys() - set(every)))


def compare(request: Compare) -> Iterator[FolderChanges]:
    """What the folder's transcripts say that are not as they are known. One that cannot be read stays as
    it is known, and the folder counts as changed. Raises OSError if the folder cannot be seen.
    """
    there = _files(request.folder)
    gone = sorted(request.known.keys() - there.keys())
    found, unread = list[Examined](), ""
    for name, seen in list(there.items()):
        if request.known.get(name) == mark(seen.size, seen.mtime):
            continue
        path = os.path.join(request.folder, name)
        try:
            one = examine(path, request.helpers)
        except OSError as error:
            unread = f"{path}: {error}"
            del there[name]
            continue
        if one is not None:
            found.append(one)
        if len(found) == BATCH:
            yield FolderChanges(found)
            found = []
    yield FolderChanges(found, gone, digest(there), done=True, unread=unread)


def mark(size: int, mtime: int) -> str:
    """How a transcript looks from outside."""
    return f"{size} {mtime}"


def digest(there: dict[str, FileStamp]) -> str:
    """A folder's transcripts in few characters; empty if it has none."""
    if not there:
        return ""
    found = hashlib.blake2b(digest_size=16)
    for name, seen in there.items():
        found.update(f"{name} {mark(seen.size, seen.mtime)}\n".encode())
    return found.hexdigest()


def examine(path: str, helpers: tuple[str, ...] = (), *, opens: bool = False) -> Examined | None:
    """What the transcript says of itself; None if there is none. `helpers`: as in Compare. `opens`:
    also what a session that is made of it has to know. Raises OSError if it cannot be read.
    """
    try:
        with opened(path) as descriptor:
            stat = os.fstat(descriptor)
            found = Examined(path, os.path.basename(path)[:-6], stat.st_size, stat.st_mtime_ns)
            found.updated_at = stat.st_mtime_ns // 1_000_000
            _read_head(descriptor, found, helpers)
            _read_tail(descriptor, found)
            found.mode = left_mode(descriptor, found.size) if opens else None
            return found
    except _MISSING:
        return None


def _is_folder(place: os.DirEntry[str]) -> bool:
    """Whether transcripts are looked for there. A name that is not UTF-8 is none of Claude's."""
    try:
        place.path.encode()
        return place.is_dir()
    except UnicodeEncodeError:
        return False
    except OSError as error:
        return error.errno not in ABSENT  # what cannot be looked at is there


def _has_changed(folder: str, known: str) -> bool:
    """Whether the folder is not as its digest says; also if it cannot be seen, as `compare` says."""
    try:
        return digest(_files(folder)) != known
    except OSError:
        return True


def _files(folder: str) -> dict[str, FileStamp]:
    """The folder's transcripts by name, in order; raises OSError if they cannot be seen."""
    found: dict[str, FileStamp] = {}
    with contextlib.suppress(*_MISSING), os.scandir(folder) as files:
        for file in files:
            if _NAME.fullmatch(file.name) and (seen := look_closely(file.path)) is not None:
                found[file.name] = seen
    return dict(sorted(found.items()))


def _read_head(descriptor: int, found: Examined, helpers: tuple[str, ...]) -> None:
    for count, line in enumerate(lines.read(descriptor, 0, min(found.size, HEAD))):
        entry = entries.decode(line.text)
        if entry is not None and entry.uuid is not None:
            found.cwd = found.cwd or (entry.cwd and entry.cwd[:4096])
            if entry.is_sidechain and not found.prompted:
                return  # of a subagent
            if entry.type == "assistant":
                answer = entries.message(entry)
                found.prompted |= answer is not None and answer.model != "<synthetic>"
            elif entries.is_prompt(entry) and not entries.by_claude_itself(entry):
                message = entries.message(entry) or entries.Message()
                words = _words(message)
                if words:
                    found.words = words
                    found.prompted = not _by_client_itself(message.text, helpers)
                    return
        if count >= MOST_LINES:
            return


def _by_client_itself(text: str, helpers: tuple[str, ...]) -> bool:
    return prompt_text.by_client_itself([{"type": "text", "text": text}], None, helpers)


def _words(message: entries.Message) -> list[str]:
    """Texts of a prompt; none for a slash command, whose answer shows whether it was one for Claude."""
    if entries.command(message.text) is not None:
        return []
    return [one[:MOST_WORDS] for one in entries.users_words(message)[:MOST_BLOCKS]]


def _read_tail(descriptor: int, found: Examined) -> None:
    begin = max(0, found.size - TAIL)
    custom = made = None
    at: int | None = None
    for text in reversed(os.pread(descriptor, TAIL, begin).split(b"\n")):
        try:
            line = _line.decode(text)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            continue
        if at is None and line.type in ("user", "assistant"):
            at = _time(line.timestamp)
        custom = custom or line.custom_title
        made = made or line.ai_title
    found.updated_at = at or found.updated_at
    found.title = (custom or made or "")[:MOST_TITLE] or None


def _time(written: str | None) -> int | None:
    try:
        at = datetime.fromisoformat(written or "")
    except ValueError:
        return None
    return round((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
