"""Transcripts as sessions see them: what a look finds, which Claude session is followed, and what
Claude has to be told.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final
from uuid import NAMESPACE_OID, uuid5
from weakref import WeakValueDictionary

import structlog

from pykoclaw_acp.errors import Conflict
from pykoclaw_acp.model.imports import (
    Imported,
    KnownTranscripts,
    RowStanding,
    Side,
    TranscriptRow,
    TranscriptTurn,
)
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.system import transcript_files as files
from pykoclaw_acp.transcripts import holding
from pykoclaw_acp.transcripts.branches import lacking
from pykoclaw_acp.transcripts.importing import ALL, AddedEvents, Import, NotImported, stamp
from pykoclaw_acp.transcripts.ports import ImportStore
from pykoclaw_acp.transcripts.process import ReaderDied, ReaderProcesses
from pykoclaw_acp.transcripts.roots import Roots
from pykoclaw_acp.transcripts.state import restored
from pykoclaw_acp.transcripts.watching import Watcher
from pykoclaw_acp.transcripts.wire import Digest, DigestText

_HEADING: Final = (
    "These turns belong to this conversation too. Another program, or another branch of it, ran them,"
    " and you have no record of them:"
)

MOST_SEEN: Final = 1000  # sessions whose standing is remembered
MOST_LEFT: Final = 16  # transcripts that a session has left and that are still looked at

log: Final = structlog.get_logger()


class ImportedTranscripts:
    """Implements `sessions.ports.Transcripts` on a store, for the transcripts in `projects`."""

    def __init__(
        self,
        store: ImportStore,
        projects: str | None = None,
        accounts: Callable[[str], str | None] = lambda _: None,
        roots: Roots | None = None,
    ) -> None:
        """`accounts`: the configuration directory of an account; None: Claude's own, which has
        `projects`. `roots`: those of all accounts.
        """
        self.readers = ReaderProcesses()
        self._store = store
        self._projects = files.folder() if projects is None else projects
        self._accounts = accounts
        self.roots = Roots(self._projects) if roots is None else roots
        self._watcher = Watcher()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        # By session: the Claude session that it follows, that of the row, and whether this exists.
        self._seen: dict[str, tuple[tuple[str | None, str | None, bool], RowStanding]] = {}
        # By session, of looks that have failed: the next one that succeeds returns it.
        self._added: dict[str, AddedEvents] = {}
        # Turns of digests by session, with the digest's id, until it is a note.
        self._returned: dict[str, tuple[list[tuple[str, str | None]], str]] = {}

    async def exists(self, claude_session_id: str) -> bool:
        """Whether there is a transcript of this Claude session, of whatever project and account."""
        return await self.roots.call(partial(self.roots.find, claude_session_id)) is not None

    async def holding(
        self, record: SessionRecord, claude_session_id: str, uuids: Collection[str]
    ) -> set[str] | None:
        """Which of these entries the transcript of a Claude session holds; None if there is none."""
        directory = self._accounts(record.environment.account)
        projects = self._projects if directory is None else files.projects(directory)
        path = await self.roots.call(partial(files.find, projects, claude_session_id))
        if path is None:
            return None
        return await self.roots.call(partial(holding.holding, path, uuids))

    async def take_in(
        self, record: SessionRecord, row_session_id: str | None, *, own: Collection[str]
    ) -> Imported:
        """Import what the transcripts hold and the log lacks."""
        async with self._locks.setdefault(record.session_id, asyncio.Lock()):
            try:
                return await self._take_in(record, row_session_id, own)
            except Conflict:  # the session was deleted
                self._added.pop(record.session_id, None)
                raise

    async def note_told(self, session_id: str) -> None:
        """Write down that the digest of the newest look is a note; later ones leave its turns out."""
        if told := self._returned.get(session_id):
            await self._store.mark_told(session_id, *told)
            self._returned.pop(session_id, None)

    def watch(self, session_id: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` whenever a transcript of the session changes."""
        return self._watcher.watch(session_id, changed)

    def close(self) -> None:
        """End the processes and the watching."""
        self.readers.close()
        self._watcher.close()

    async def _take_in(
        self, record: SessionRecord, target: str | None, own: Collection[str]
    ) -> Imported:
        session = record.session_id
        # Put back at the end: a look that fails may have committed what changes it.
        before = self._seen.pop(session, None)
        added = self._added.setdefault(session, AddedEvents())
        known = await self._store.known_transcripts(session, {session, target or ""}, MOST_LEFT + 2)
        look = Import(self._store, self.readers, record, own, added, (known.followed, target))
        rows, complete = dict(known.rows), True
        try:
            followed = await self._import(look, known, rows, target)
        except (NotImported, OSError) as error:
            log.warning(
                "A transcript could not be imported to its end",
                action="import_failed",
                session=session,
                error=str(error),
            )
            followed, complete = known.followed, False
            added.changed = True
        self._watcher.set_transcripts(
            session,
            {
                rows[one].path: stamp(rows[one])
                for one in (followed, target, *_left(rows, followed, target))
                if one and one in rows
            },
        )
        logged, digest, undecided = list(added.logged), None, False
        which = (followed, target, target in rows)
        unchanged = not added.changed and session not in self._returned
        if before is not None and before[0] == which and unchanged:
            standing = before[1]
            self._remember(session, which, standing)
        else:
            turns = await self._store.transcript_turns(session, ALL)
            branching = record.branch is not None
            standing, followed = await self._standing(
                session, followed, target, rows, turns, branching=branching
            )
            if standing is RowStanding.MISSING and not complete:
                standing = RowStanding.SAME  # it is there, as far as is known
            try:
                digest = await self._digest(
                    session, followed, rows, turns, own, branching=branching
                )
            except (ReaderDied, OSError):
                pass  # not remembered: the next look tells it
            else:
                if complete:
                    self._remember(session, (followed, target, target in rows), standing)
            ours = {one.uuid for one in turns if one.own}
            undecided = _is_undecided(rows.get(followed or ""), ours)
            seen = {one.uuid for one in turns}
            if standing is RowStanding.MOVED_ON and not logged and not seen.issuperset(own):
                standing = RowStanding.SAME  # our prompt is on its way into the transcript
        text, digest_id, lacks = digest or (None, None, Side.THERE)
        renamed = (added.title, not added.first_look)
        resumable = followed is None or followed in rows
        del self._added[session]
        return Imported(
            standing, logged, text, digest_id, followed, complete, *renamed,
            added.replaced, resumable, lacks, undecided,
        )  # fmt: skip

    def _remember(
        self, session: str, which: tuple[str | None, str | None, bool], standing: RowStanding
    ) -> None:
        self._seen.pop(session, None)
        self._seen[session] = (which, standing)
        if len(self._seen) > MOST_SEEN:
            del self._seen[next(iter(self._seen))]

    async def _import(
        self,
        look: Import,
        known: KnownTranscripts,
        rows: dict[str, TranscriptRow],
        target: str | None,
    ) -> str | None:
        """Import the followed transcript, then that of the conversation's row, then those that the
        session has left, where a terminal may go on; returns which one is followed.
        """
        followed, session = known.followed, look.record.session_id
        branching = look.record.branch is not None
        directory = self._accounts(look.record.environment.account)
        projects = self._projects if directory is None else files.projects(directory)

        async def take(
            claude_session: str, *, told: bool, left: bool = False
        ) -> TranscriptRow | None:
            row = await look.take_in(
                claude_session, known.rows.get(claude_session), projects, told=told, left=left
            )
            if row is None:
                rows.pop(claude_session, None)
            else:
                rows[claude_session] = row
            return row

        if followed is None and target is not None and not branching:
            found = await take(target, told=True)
            if known.has_turns and (found is None or not found.related) and session != target:
                # Ours, of a version that did not write down what it followed.
                ours = await take(session, told=True)
                followed = session if ours is not None and ours.related else None
            if followed is None and found is not None:
                followed = target
            if followed is not None:
                await self._store.follow_transcript(session, followed, told=True)
        elif followed is not None:
            await take(followed, told=False)
        if target not in (followed, None) and (branching or known.followed is not None):
            await take(target, told=False)
        for one in _left(rows, followed, target):
            await take(one, told=False, left=True)
        return followed

    async def _standing(
        self,
        session: str,
        followed: str | None,
        target: str | None,
        rows: dict[str, TranscriptRow],
        turns: list[TranscriptTurn],
        *,
        branching: bool,
    ) -> tuple[RowStanding, str | None]:
        """How the Claude session of the row stands, and which one is followed from now on: none but
        ours, if that is yet to branch off.
        """
        target = target or followed
        if target is None:
            return RowStanding.SAME, None
        if target not in rows:
            return RowStanding.MISSING, followed
        if target == followed:
            own = {one.uuid for one in turns if one.own}
            head = rows[target].head
            ours = (head is None or head in own) and not restored(rows[target].state).continued
            return RowStanding.SAME if ours else RowStanding.MOVED_ON, followed
        if branching or not rows[target].related:
            return RowStanding.SIDE, followed
        await self._store.follow_transcript(session, target, told=False)
        return RowStanding.MOVED_ON, target

    async def _digest(
        self,
        session: str,
        followed: str | None,
        rows: dict[str, TranscriptRow],
        turns: list[TranscriptTurn],
        own: Collection[str],
        *,
        branching: bool,
    ) -> tuple[str, str, Side] | None:
        """What the followed Claude session lacks, as text, the id of that, and whose it is. Raises
        ReaderDied, and OSError.
        """
        self._returned.pop(session, None)
        row = rows.get(followed or "")
        if row is None and not branching:
            return (
                None  # not there yet, or gone, which `sessions.context` tells: it may hold them all
            )
        if row is not None and row.head is None:
            return None  # written over in place: nothing of it was taken, and it may hold them all
        head = None if row is None else row.head
        missing = lacking(turns, head, own, branching=branching)
        if not missing:
            return None
        paths = {one: row.path for one, row in rows.items()}
        if not paths.keys() >= {one.claude_session_id for one in missing}:
            paths = await self._store.transcript_paths(session)
        by_path: dict[str, list[str]] = {}
        for one in missing:
            if one.claude_session_id in paths:
                by_path.setdefault(paths[one.claude_session_id], []).append(one.uuid)
        text = ""
        async for answer in self.readers.ask(Digest(list(by_path.items()))):
            text = answer.text if isinstance(answer, DigestText) else ""
        if not text:
            return None
        told = [(one.uuid, one.last_uuid) for one in missing]
        # One that it was told before, in a turn that it lacks, is told by another note.
        which = sorted(f"{(one.uuid, one.last_uuid)} {one.told_in or ''}" for one in missing)
        digest_id = str(uuid5(NAMESPACE_OID, f"{session} {which}"))
        self._returned[session] = told, digest_id
        sides = {Side.HERE if one.own else Side.THERE for one in missing}
        return f"{_HEADING}\n\n{text}", digest_id, sides.pop() if len(sides) == 1 else Side.BOTH


def _is_undecided(row: TranscriptRow | None, own: Collection[str]) -> bool:
    """Whether a CLI that resumes goes on from a turn of another program, while the newest entry is
    ours: our CLI notes that as it ends.
    """
    return row is not None and row.head not in own and restored(row.state).head in own


def _left(rows: Mapping[str, TranscriptRow], followed: str | None, target: str | None) -> list[str]:
    """The Claude sessions that the session has left, as by a rewind, or that its conversation's row has
    named for a while: those written last.
    """
    left = [row for one, row in rows.items() if one not in (followed, target)]
    left.sort(key=lambda row: row.mtime)
    return [row.claude_session_id for row in left[-MOST_LEFT:]]
