"""Transcripts of which a test says what the next looks find, on any store."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from pykoclaw_acp.model.events import Event, Text, size
from pykoclaw_acp.model.imports import Side
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.sessions.ports import Imported, LogStore, RowStanding


@dataclass(frozen=True)
class Look:
    """A call of `take_in`."""

    session: str
    followed: str | None
    row: str | None
    own: frozenset[str]


@dataclass(frozen=True)
class Finding:
    """What a look finds; `meanwhile` happens during it."""

    standing: RowStanding
    events: tuple[Event, ...]
    digest: str | None
    meanwhile: Callable[[], Awaitable[object]] | None
    title: str | None = None
    title_is_new: bool = False
    complete: bool = True
    replaced: bool = False
    resumable: bool = True
    lacks: Side = Side.THERE
    undecided: bool = False


class ScriptedTranscripts:
    """Without a finding, a look finds nothing new. `store` is the log that findings go into."""

    def __init__(self) -> None:
        self.store: LogStore
        self.held: set[str] | None = None  # entries of the transcript
        self.looks: list[Look] = []
        self.noted_for: list[str] = []  # sessions whose digests are notes
        self.watched: dict[str, Callable[[], None]] = {}
        self._findings: deque[Finding] = deque()

    def find(
        self,
        standing: RowStanding,
        *said: str | Event,
        digest: str | None = None,
        meanwhile: Callable[[], Awaitable[object]] | None = None,
        title: str | None = None,
        title_is_new: bool = False,
        complete: bool = True,
        replaced: bool = False,
        resumable: bool = True,
        lacks: Side = Side.THERE,
        undecided: bool = False,
    ) -> None:
        """Another look finds this."""
        events = tuple(Text("other", one) if isinstance(one, str) else one for one in said)
        self._findings.append(
            Finding(
                standing,
                events,
                digest,
                meanwhile,
                title,
                title_is_new,
                complete,
                replaced,
                resumable,
                lacks,
                undecided,
            )
        )

    @property
    def all_found(self) -> bool:
        return not self._findings

    async def holding(
        self, record: SessionRecord, claude_session_id: str, uuids: Collection[str]
    ) -> set[str] | None:
        return None if self.held is None else self.held.intersection(uuids)

    async def exists(self, claude_session_id: str) -> bool:
        return False

    async def take_in(
        self, record: SessionRecord, row_session_id: str | None, *, own: Collection[str]
    ) -> Imported:
        look = Look(record.session_id, record.claude_session_id, row_session_id, frozenset(own))
        self.looks.append(look)
        if not self._findings:
            return Imported(RowStanding.SAME, followed=record.claude_session_id or row_session_id)
        found = self._findings.popleft()
        if found.meanwhile is not None:
            await found.meanwhile()
        seqs = await self.store.append(record.session_id, found.events) if found.events else []
        logged = [
            Logged(seq, None, event, size(event))
            for seq, event in zip(seqs, found.events, strict=True)
        ]
        moved = found.standing is RowStanding.MOVED_ON or record.claude_session_id is None
        followed = row_session_id if moved else record.claude_session_id
        return Imported(
            found.standing, logged, found.digest, found.digest, followed,
            complete=found.complete, title=found.title, title_is_new=found.title_is_new,
            replaced=found.replaced, resumable=found.resumable,
            lacks=found.lacks, undecided=found.undecided,
        )  # fmt: skip

    async def note_told(self, session_id: str) -> None:
        self.noted_for.append(session_id)

    def watch(self, session_id: str, changed: Callable[[], None]) -> Callable[[], None]:
        self.watched[session_id] = changed
        return lambda: self.watched.pop(session_id, None) and None
