"""The twin of `sessions.ports.Transcripts`: what other programs have added is said by the test."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence

from pykoclaw_acp.model.events import Event, size
from pykoclaw_acp.model.imports import Imported, RowStanding
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.turns import SessionRecord
from tests.twins.base import MemoryStore
from tests.twins.database import MemoryDatabase


class MemoryTranscripts(MemoryStore):
    """Each look finds what `add` has prepared, once; then the session stands as it stood."""

    def __init__(self, database: MemoryDatabase) -> None:
        super().__init__(database)
        self.looks: list[tuple[str, str | None, tuple[str, ...]]] = []
        """Session, Claude session of its row, running turns."""
        self._prepared: dict[str, list[tuple[RowStanding, Sequence[Event], str | None]]] = {}
        self._standing: dict[str, RowStanding] = {}
        self._callbacks: dict[str, list[Callable[[], None]]] = {}

    def add(
        self,
        session_id: str,
        events: Sequence[Event] = (),
        standing: RowStanding = RowStanding.MOVED_ON,
        digest: str | None = None,
    ) -> None:
        """Another program has added this; whoever watches is called."""
        self._prepared.setdefault(session_id, []).append((standing, events, digest))
        for changed in list(self._callbacks.get(session_id, ())):
            changed()

    async def take_in(
        self, record: SessionRecord, row_session_id: str | None, *, own: Collection[str]
    ) -> Imported:
        session = record.session_id
        self.looks.append((session, row_session_id, tuple(own)))
        logged: list[Logged] = []
        digests: list[str] = []
        for standing, events, digest in self._prepared.pop(session, []):
            seqs = await self.database.write(
                functools.partial(self.database.log, session, None, events), patient=True
            )
            logged += [
                Logged(seq, None, one, size(one)) for seq, one in zip(seqs, events, strict=True)
            ]
            self._standing[session] = standing
            digests += [] if digest is None else [digest]
        text = "\n\n".join(digests) or None
        standing = self._standing.get(session, RowStanding.SAME)
        digest_id = None if text is None else f"{session} {len(self.looks)}"
        return Imported(standing, logged, text, digest_id, row_session_id)

    async def note_told(self, session_id: str) -> None:
        """A look's digest is found once, noted or not."""

    def watch(self, session_id: str, changed: Callable[[], None]) -> Callable[[], None]:
        callbacks = self._callbacks.setdefault(session_id, [])
        callbacks.append(changed)
        return lambda: callbacks.remove(changed)

    def watched(self, session_id: str) -> bool:
        """Whether anybody watches the session."""
        return bool(self._callbacks.get(session_id))
