"""The handlers of `_pykoclaw.dev/import/…`: an exported session becomes a session here."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast
from uuid import uuid4

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import InvalidParams, Overloaded, StoreUnavailable
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.neutral import neutral
from pykoclaw_acp.protocol.control.exports import MAX_LINE
from pykoclaw_acp.protocol.control.importing import (
    AbandonParams,
    ImportedSession,
    ImportParams,
    PieceParams,
    Uploaded,
)
from pykoclaw_acp.protocol.messages import Empty
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.dispatch import Method
from pykoclaw_acp.server.lifecycle import absolute
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.restoring import EventBatch, Restorer
from pykoclaw_acp.system import shortage
from pykoclaw_acp.tasks import in_pieces

if TYPE_CHECKING:
    from pykoclaw_acp.server.imported_lines import Head

MOST_UPLOADS: Final = 4  # at a time
MAX_SIZE: Final = 2 * 1024**3  # bytes of an export
ABANDONED: Final = 600.0  # s without a piece
GIVES_WAY: Final = 60.0  # s without a piece, if another one is to begin
BATCH: Final = 512 * 1024  # bytes of lines that are committed together
MOST_EVENTS: Final = 200  # in a commit
CLIENT: Final = "pykoclaw-acp import"


@dataclass(slots=True)
class _Upload:
    file: BinaryIO
    forget: Callable[[], None]
    size: int = 0
    at: float = field(default_factory=time.monotonic)
    timer: asyncio.TimerHandle | None = None

    def touch(self) -> None:
        """A piece has come: the upload is forgotten only after another `ABANDONED` s."""
        self.rest()
        self.at = time.monotonic()
        self.timer = asyncio.get_running_loop().call_later(ABANDONED, self.forget)

    def rest(self) -> None:
        """Stop the timer that forgets the upload."""
        if self.timer is not None:
            self.timer.cancel()


@dataclass(slots=True)
class _Count:
    events: int = 0
    left_out: int = 0
    summary: bool = False


class ImportControl:
    """Takes exports in pieces, into files that no other process sees, and makes sessions of them. What
    that needs is imported when the first one comes.
    """

    def __init__(self, sessions: Sessions, restorer: Restorer, directory: str) -> None:
        """`directory`: of the files."""
        self._sessions = sessions
        self._restorer = restorer
        self._directory = directory
        self._uploads: dict[str, _Upload] = {}
        self._made = 0  # sessions that are being made, or wait for that
        # One at a time, and of its own: an import takes minutes, and nothing else may wait for it.
        self._making = asyncio.Lock()

    @property
    def methods(self) -> dict[str, Method[Call, Any]]:
        """The dispatch table of these methods."""
        return {
            "_pykoclaw.dev/import/piece": Method(
                PieceParams, self.take_piece, before_initialize=True, slow=True
            ),
            "_pykoclaw.dev/import/abandon": Method(
                AbandonParams, self.abandon, before_initialize=True
            ),
            "_pykoclaw.dev/import/finish": Method(
                ImportParams, self.finish, before_initialize=True
            ),
        }

    async def take_piece(self, call: Call, params: PieceParams) -> Uploaded:  # noqa: ARG002
        """The next piece of an upload."""
        try:
            data = base64.b64decode(params.data, validate=True)
        except ValueError:
            raise InvalidParams("`data`: is not base64.") from None
        name = params.upload
        if name is None:
            name = self._begin()
        upload = self._find(name)
        if upload.size + len(data) > MAX_SIZE:
            self._close(name)
            raise InvalidParams(f"The export is larger than {MAX_SIZE >> 30} GiB.")
        upload.size += len(data)
        upload.touch()
        try:
            with _taking_files(self._directory):
                await asyncio.to_thread(_append, upload.file, data)
        except StoreUnavailable:
            self._close(name)
            raise
        return Uploaded(upload=name)

    async def abandon(self, call: Call, params: AbandonParams) -> Empty:  # noqa: ARG002
        """Forget an upload, if it is there."""
        self._close(params.upload)
        return Empty()

    async def finish(self, call: Call, params: ImportParams) -> ImportedSession:  # noqa: ARG002
        """Make a session of an upload, which is gone afterwards."""
        upload = self._find(params.upload)
        del self._uploads[params.upload]
        upload.rest()
        self._made += 1
        try:
            with upload.file as file:
                cwd = absolute("cwd", params.cwd)
                async with self._making:
                    return await self._make(file, cwd)
        finally:
            self._made -= 1

    async def _make(self, file: BinaryIO, cwd: str) -> ImportedSession:
        from pykoclaw_acp.server import imported_lines

        await asyncio.to_thread(file.seek, 0)
        first = await asyncio.to_thread(file.readline, MAX_LINE)
        head = await in_pieces(imported_lines.head(first))
        count = _Count()
        begun = await self._sessions.beginnings.begin(None)
        session = await self._restorer.restore(
            begun.record(cwd, (), None, CLIENT),
            head.session.summary.title,
            _batches(file, count),
            lambda summary: _words(head, count, summary=summary),
        )
        return ImportedSession(
            session=session.id,
            title=session.record.title,
            events=count.events,
            left_out=count.left_out,
            summary=count.summary,
        )

    def _begin(self) -> str:
        before = time.monotonic() - GIVES_WAY
        if self._crowded:
            for name, upload in list(self._uploads.items()):
                if upload.at < before:
                    self._close(name)
        if self._crowded:
            raise Overloaded(
                f"{MOST_UPLOADS} other sessions are being imported; nothing was imported. Try again"
                f" when one is done. One that broke off gives way after {GIVES_WAY:.0f} s.",
                ErrorKind.TOO_MANY_CALLS,
            )
        import tempfile

        name = str(uuid4())
        with _taking_files(self._directory):
            file = cast("BinaryIO", tempfile.TemporaryFile(dir=self._directory))  # noqa: SIM115  closed with the upload
        self._uploads[name] = _Upload(file, partial(self._close, name))
        return name

    @property
    def _crowded(self) -> bool:
        return len(self._uploads) + self._made >= MOST_UPLOADS

    def _close(self, name: str) -> None:
        if (upload := self._uploads.pop(name, None)) is not None:
            upload.rest()
            with contextlib.suppress(OSError):  # of what could not be written
                upload.file.close()

    def _find(self, name: str) -> _Upload:
        upload = self._uploads.get(name)
        if upload is None:
            raise InvalidParams(
                "`upload`: no such upload; the daemon may have been restarted. Begin again."
            )
        return upload


@contextlib.contextmanager
def _taking_files(directory: str) -> Iterator[None]:
    """In which files are written there. Raises StoreUnavailable if they cannot be; a shortage that passes
    stays OSError.
    """
    try:
        yield
    except OSError as error:
        if shortage.of(error) is not None:
            raise
        raise StoreUnavailable(
            DatabaseState.BLOCKED,
            f"The export cannot be kept in {directory} while it is imported: {error.strerror}.",
        ) from error


def _append(file: BinaryIO, data: bytes) -> None:
    file.write(data)
    file.flush()  # so that a full disk is met here


async def _batches(file: BinaryIO, count: _Count) -> AsyncIterator[EventBatch]:
    from pykoclaw_acp.server import imported_lines

    lines = 0
    while found := await asyncio.to_thread(_read, file):
        lines += len(found)
        batch = await in_pieces(_taken(found, count))
        if lines > imported_lines.MOST_LINES:
            raise InvalidParams(f"The export has more than {imported_lines.MOST_LINES:,} entries.")
        count.events += len(batch.events)
        if batch.events:
            yield batch


def _taken(lines: list[bytes], count: _Count) -> Generator[None, None, EventBatch]:
    from pykoclaw_acp.server import imported_lines

    events: list[Event] = []
    data: dict[str, bytes] = {}
    for line in lines:
        taken = yield from imported_lines.taken(line)
        count.left_out += not taken.whole
        events += taken.events
        data |= taken.blobs
        yield
    return EventBatch(events, data)


def _read(file: BinaryIO) -> list[bytes]:
    """The next lines; one that is too long is cut, so that it cannot be read as an event."""
    lines: list[bytes] = []
    size = 0
    while size < BATCH and len(lines) < MOST_EVENTS and (line := file.readline(MAX_LINE)):
        lines.append(line)
        size += len(line)
    return lines


def _words(head: Head, count: _Count, *, summary: bool) -> str:
    """What the user is told of the import; values of the export are short and in one line."""

    def named(value: str | None, otherwise: str) -> str:
        short = neutral((value or "").strip())[:200].replace("`", "'")
        return f"`{short}`" if short else otherwise

    count.summary = summary
    entries = "1 entry" if count.left_out == 1 else f"{count.left_out} entries"
    left = f" {entries} could not be imported." if count.left_out else ""
    if summary:
        told = (
            "Claude does not remember it: with your next prompt it gets a summary of what was said"
            " last."
        )
    else:
        told = "It has nothing that could be summarized for Claude."
    return (
        "**This conversation was imported.** It was exported by pykoclaw-acp"
        f" {named(head.program, 'of an unknown version')}, where it ran in"
        f" {named(head.session.summary.cwd, 'an unknown directory')}.{left} {told}"
    )
