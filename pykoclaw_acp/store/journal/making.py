"""Sessions that are being made, over `store/deletion.py`."""

from __future__ import annotations

from pykoclaw_acp.store import deletion
from pykoclaw_acp.store.journal.base import SqlStore


class SqlMakingStore(SqlStore):
    """Implements `sessions.ports.making.MakingStore`."""

    async def give_up(self, session_id: str) -> None:
        """Delete what was inserted of a session that is not shown."""
        await deletion.give_up(self._database, session_id)
