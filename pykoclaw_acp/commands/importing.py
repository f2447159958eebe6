"""`pykoclaw-acp import`: make a session of a JSON export."""

from __future__ import annotations

import base64
import contextlib
import json
import os
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from pykoclaw_acp import terminal
from pykoclaw_acp.commands.daemon import ask
from pykoclaw_acp.commands.show import count, one_line
from pykoclaw_acp.errors import CommandFailed, DaemonNotRunning
from pykoclaw_acp.protocol.control.exports import FORMAT, MAX_LINE, MAX_PIECE

MAX_WHOLE: Final = 256 * 1024 * 1024  # bytes of a file that is not in the lines of an export
IMPORT_WAIT: Final = 3600.0  # s; a long history is taken over in many commits
MAY_BE_THERE: Final = (
    "The daemon ended before it had said whether the session was imported. It may be there: look at"
    " `pykoclaw-acp sessions list` before you import it again."
)
_EVENTS: Final = b'"events": ['
_END: Final = b"]}"


def main(file: BinaryIO, directory: str) -> None:
    """Import the file as a session in `directory`."""
    cwd = os.path.abspath(directory)
    upload = _upload(file)
    try:
        made = ask("import/finish", timeout=IMPORT_WAIT, upload=upload, cwd=cwd)
    except DaemonNotRunning as error:
        if error.stood is None:
            raise
        raise DaemonNotRunning(MAY_BE_THERE) from error
    title = one_line(made["title"])
    name = f"“{title}”" if title else "a session without a title"
    taken = _entries(made["events"], "entry")
    terminal.line(f"Imported {name} as session {made['session']}: {taken} of its history.")
    if made["leftOut"]:
        terminal.line(f"{_entries(made['leftOut'], 'further entry')} could not be imported.")
    if made.get("summary", True):
        terminal.line("Claude gets a summary of what was said last, with the next prompt.")
    else:
        terminal.line(
            "It has nothing that could be summarized, so Claude starts without a summary."
        )


def _entries(number: int, noun: str) -> str:
    return count(number, noun).replace("entrys", "entries")


def _upload(file: BinaryIO) -> str | None:
    """Send the file; the daemon forgets what was sent if that breaks off."""
    upload: str | None = None
    waiting = bytearray()
    try:
        for line in _lines(file):
            waiting += line + b"\n"
            while len(waiting) >= MAX_PIECE:
                upload = _send(upload, waiting)
        while waiting:
            upload = _send(upload, waiting)
    except BaseException:
        if upload is not None:
            with contextlib.suppress(CommandFailed, DaemonNotRunning):
                ask("import/abandon", start=False, upload=upload)
        raise
    return upload


def _send(upload: str | None, waiting: bytearray) -> str:
    """Send the beginning of what waits, which is taken from it."""
    data = base64.b64encode(waiting[:MAX_PIECE]).decode()
    del waiting[:MAX_PIECE]
    return str(ask("import/piece", data=data, upload=upload)["upload"])


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """The head of the export, then its events, each in a line. Raises CommandFailed for what is no
    whole export.
    """
    first = file.readline(MAX_LINE)
    if first.rstrip().endswith(_EVENTS) and (head := _decoded(first.rstrip() + _END)) is not None:
        yield from _streamed(_require_ours(head), file)
        return
    whole = first + file.read(MAX_WHOLE)
    if len(whole) > MAX_WHOLE:
        raise CommandFailed(
            f"The file is larger than {MAX_WHOLE >> 20} MiB, and does not have one event per line. Import it as"
            " `pykoclaw-acp sessions export --format json` has written it."
        )
    value = _require_ours(_decoded(whole))
    events = value.pop("events", None)
    if not isinstance(events, list):
        raise CommandFailed("The export has no events.")
    yield _encoded(value)
    yield from map(_encoded, events)


def _streamed(head: dict[str, Any], file: BinaryIO) -> Iterator[bytes]:
    head.pop("events", None)
    yield _encoded(head)
    while line := file.readline(MAX_LINE):
        line = line.strip()
        if line == _END:
            return
        if line:
            yield line.removesuffix(b",")
    raise CommandFailed("The file ends in the middle of an export. Export the session again.")


def _require_ours(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise CommandFailed(
            "This is not a session that was exported as JSON. `pykoclaw-acp sessions export --format json`"
            " makes such a file; one of an earlier version has not all that is needed."
        )
    return value


def _decoded(text: bytes) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _encoded(value: Any) -> bytes:
    return json.dumps(value).encode()
