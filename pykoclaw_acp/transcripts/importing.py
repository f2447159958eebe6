"""One transcript, imported from where the look before ended: each piece is one commit."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import AsyncGenerator, Collection
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import msgspec
import structlog

from pykoclaw_acp.errors import RowRefused, StoreClosed
from pykoclaw_acp.model.events import Event, UserMessage
from pykoclaw_acp.model.imports import ImportedPiece, TranscriptRow, TranscriptTurn, rewound
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.system import disks
from pykoclaw_acp.system import transcript_files as files
from pykoclaw_acp.transcripts.origins import origin
from pykoclaw_acp.transcripts.ports import ImportStore
from pykoclaw_acp.transcripts.process import OtherVersion, ReaderDied, ReaderProcesses
from pykoclaw_acp.transcripts.wire import Piece, Scan, UnreadableTranscript

ALL: Final = 1_000_000  # turns of a session that are asked for
RECENT: Final = 256  # turns that may go on
MOST_DEATHS: Final = 9  # of readers in one look
CAREFUL: Final = 500  # lines after a death that are read one by one
# Characters of events that are returned; older ones are in the log
MOST_LOGGED: Final = 1024 * 1024

log: Final = structlog.get_logger()


class NotImported(Exception):
    """The transcript could not be read to its end; what was read is in the log."""


@dataclass(slots=True)
class AddedEvents:
    """What looks at a session's transcripts have added to the log since one of them returned: its
    newest events.
    """

    logged: deque[Logged] = field(default_factory=deque)
    size: int = 0
    changed: bool = False
    title: str | None = None
    first_look: bool = False
    replaced: bool = False  # as in `Imported`

    def add(self, logged: Collection[Logged]) -> None:
        """The next events."""
        for one in logged:
            self.logged.append(one)
            self.size += one.size
        while self.size > MOST_LOGGED and len(self.logged) > 1:
            self.size -= self.logged.popleft().size


@dataclass(slots=True)
class Import:
    """Transcripts of one session, in one look."""

    store: ImportStore
    readers: ReaderProcesses
    record: SessionRecord
    running: Collection[str]
    found: AddedEvents
    continued: Collection[str | None] = ()
    """Claude sessions that the session may continue."""

    async def take_in(
        self,
        claude_session_id: str,
        row: TranscriptRow | None,
        projects: str,
        *,
        told: bool,
        left: bool = False,
    ) -> TranscriptRow | None:
        """Import what is new in the transcript of a Claude session; returns its row, None if there
        is no transcript. `told`: of these turns Claude need not be told. `left`: the session goes on
        elsewhere, so nothing of it is missed, and turns of ours in it were left with it.

        Raises NotImported, and OSError, also if the disk does not answer.
        """
        path = None if row is None else row.path
        look = None if path is None else await _look(path)
        if look is None and not left:
            path = await disks.call(projects, partial(files.find, projects, claude_session_id))
            look = None if path is None else await _look(path)
        if path is None or look is None:
            self.found.replaced |= row is not None and not left
            return None
        if row is not None and stamp(row) == look:
            return row
        self.found.changed = True
        # A copy that was made before the first look is what it was made for.
        only = None if row is None else claude_session_id
        replaced = row is not None and not await disks.quick_call(
            path, partial(files.begins_line, path, row.read_upto)
        )
        if replaced:
            only = ""  # written over in place: nothing of it is certainly of this conversation
        if row is not None and not left:
            self.found.replaced |= replaced or row.inode != look.inode or row.size > look.size
        if row is None or row.inode != look.inode or replaced:
            related = row is not None and row.related
            row = TranscriptRow(claude_session_id, path, 0, 0, 0, 0, "", None, related)
        hidden = self.record.pruned_upto > 0 and row.read_upto == 0
        row = replace(row, path=path, inode=look.inode)
        self.found.first_look |= row.read_upto == 0
        rewinds = claude_session_id in self.continued and self.record.branch is None
        scan = msgspec.structs.replace(await self._scan(row, look), only=only, rewinds=rewinds)
        prompts = await self.store.scheduled_prompts(self.record.conversation_name)
        async with contextlib.aclosing(self._pieces(scan)) as pieces:
            async for piece in pieces:
                row = replace(
                    row,
                    read_upto=piece.offset,
                    state=piece.state,
                    head=piece.head,
                    related=row.related
                    or any(one.own or one.uuid in scan.known for one in piece.turns),
                )
                if piece.done:
                    row = replace(row, size=look.size, mtime=look.mtime)
                self.found.title = piece.title or self.found.title
                at = look.mtime // 1_000_000
                told = told or hidden
                await self._commit(
                    row, piece, prompts, at=at, told=told, own_told=told or left, hidden=hidden
                )
        return row

    async def _scan(self, row: TranscriptRow, look: files.FileStamp) -> Scan:
        """Whose turns are whose is read after the size of the file: a prompt of ours is in the
        database before it can be in the file.
        """
        session, again = self.record.session_id, row.read_upto > 0
        turns = await self.store.transcript_turns(session, RECENT if again else ALL)
        messages, running = await self.store.background_messages(session, RECENT if again else ALL)
        own = await self.store.own_turns(session, new=again)
        return Scan(
            row.path,
            self.record.cwd or "/",
            row.read_upto,
            row.state,
            own=[*own, *self.running, *(one.uuid for one in turns if one.own)],
            own_messages=messages,
            known={one.uuid: one.last_uuid or "" for one in turns if not one.own},
            hold=running,
            upto=look.size,
            anew=not again,
            plans=files.plans(row.path),
        )

    async def _pieces(self, scan: Scan) -> AsyncGenerator[Piece, None]:
        """The pieces; a reader that dies is replaced, and a line that kills readers is left out.
        Raises NotImported, and StoreClosed if the server has ended the readers.
        """
        deaths: list[int] = []
        while len(deaths) < MOST_DEATHS:
            try:
                async with contextlib.aclosing(self.readers.ask(scan)) as answers:
                    for left in itertools.count(CAREFUL, -1):
                        answer = await anext(answers)
                        if isinstance(answer, UnreadableTranscript):
                            raise NotImported(answer.error)
                        assert isinstance(answer, Piece)
                        yield answer
                        if answer.done:
                            return
                        scan.known.update(answer.last)  # for another reader
                        scan = msgspec.structs.replace(
                            scan, offset=answer.offset, state=answer.state, skip_first=False
                        )
                        if scan.careful and not left:
                            scan.careful = False
                            break
            except OtherVersion as error:  # no line is to blame
                raise NotImported("its reader is of another version") from error
            except ReaderDied as error:
                if self.readers.closed:
                    raise StoreClosed("the server stops") from error
                log.warning(
                    "The reader of a transcript died",
                    action="reader_died",
                    session=self.record.session_id,
                    offset=scan.offset,
                )
                again = scan.careful and deaths[-1] == scan.offset
                deaths.append(scan.offset)
                scan = msgspec.structs.replace(scan, careful=True, skip_first=again)
        raise NotImported("its readers die")

    async def _commit(
        self,
        row: TranscriptRow,
        piece: Piece,
        prompts: list[str],
        *,
        at: int,
        told: bool,
        own_told: bool,
        hidden: bool,
    ) -> None:
        seen = {one.uuid: one for one in piece.turns}
        events = [
            (source, self._attributed(event, prompts))
            for _, source, event in ([] if hidden else piece.events)
        ]
        turns = [
            TranscriptTurn(
                one.uuid,
                row.claude_session_id,
                one.parent,
                one.own or hidden,
                None if one.own else piece.last.get(one.uuid),
                own_told if one.own else told,
            )
            for one in piece.turns
        ]
        earlier = {} if hidden else {k: last for k, last in piece.last.items() if k not in seen}
        gone: set[str] = set()
        if piece.rewinds:
            known = await self.store.transcript_turns(self.record.session_id, ALL)
            parents = {one.uuid: one.parent for one in (*known, *turns)} | piece.parents
            gone = rewound(parents, piece.rewinds)
        logged = await self._log(
            ImportedPiece(
                row, events, turns, earlier, piece.parents, told=told, rewound=gone, written_at=at
            )
        )
        self.record.prompted = self.record.prompted or bool(events)
        self.found.add(logged)

    async def _log(self, piece: ImportedPiece) -> list[Logged]:
        """Commit a piece without what the log has: a transcript may repeat what lies far back."""
        session = self.record.session_id
        try:
            return await self.store.commit_piece(session, piece)
        except RowRefused:
            new: dict[str, Event] = {}
            for source, event in piece.events:
                new.setdefault(source, event)
            for source in await self.store.imported(session, new):
                del new[source]
            if len(new) == len(piece.events):
                raise
            return await self.store.commit_piece(session, replace(piece, events=[*new.items()]))

    def _attributed(self, event: Event, prompts: list[str]) -> Event:
        """A user's message says who sent it."""
        if not isinstance(event, UserMessage):
            return event
        text, name = event.content.get("text"), self.record.conversation_name
        by = origin(event.origin, name, text if isinstance(text, str) else "", prompts)
        return msgspec.structs.replace(event, origin=by)


def stamp(row: TranscriptRow) -> files.FileStamp:
    """The transcript as it was when it was read to its end."""
    return files.FileStamp(row.size, row.mtime, row.inode)


async def _look(path: str) -> files.FileStamp | None:
    return await disks.quick_call(path, partial(files.look, path))
