"""Sessions that are made of an export, in the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.sessions.ports.making import MakingStore


class RestoreStore(MakingStore, Protocol):
    """Makes a session in commits of its own, hidden until the last."""

    async def begin_restoring(self, record: SessionRecord) -> None:
        """Insert the session, hidden."""

    async def restore(
        self, session_id: str, at: int, events: Sequence[Event], data: Mapping[str, bytes]
    ) -> None:
        """Append events, the first of which is the `at`-th; `data`: bytes of their blobs by hash."""

    async def end_restoring(
        self, record: SessionRecord, said: Sequence[Event], note: Note | None
    ) -> None:
        """Show the session, with its last words and what Claude is to be told."""
