"""Sessions that are being made, piece by piece."""

from __future__ import annotations

from typing import Protocol

from pykoclaw_acp.sessions.ports.store import Store


class MakingStore(Store, Protocol):
    """A session is hidden until it is whole; a start after a crash gives up those that are not."""

    async def give_up(self, session_id: str) -> None:
        """Delete what was inserted of a session that is not shown. Waits until the database can be
        read and written.
        """
