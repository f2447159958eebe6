"""Clients' cursors in the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pykoclaw_acp.model.cursors import Cursor, CursorChange
from pykoclaw_acp.sessions.ports.store import Store


class CursorStore(Store, Protocol):
    """How far each process of a client was shown a session."""

    async def change_cursors(self, changes: Sequence[CursorChange]) -> None:
        """Apply changes of cursors in one transaction. Waits while the database cannot be written."""

    async def cursors(self, session_id: str, client: str) -> list[Cursor]:
        """Cursors of all processes of a client in a session."""

    async def client_processes(self) -> list[str]:
        """Client processes that have cursors."""

    async def age_cursors(self, ended: Sequence[str], living: Sequence[str], before: int) -> None:
        """Record which processes have ended and which live; delete what was left by `before` (ms,
        own clock).
        """
