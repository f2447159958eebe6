"""Lasting rules, over `store/rules.py`."""

from __future__ import annotations

from pykoclaw_acp.store import rules
from pykoclaw_acp.store.journal.base import SqlStore


class SqlRuleStore(SqlStore):
    """Implements `sessions.ports.RuleStore`."""

    async def rules(self, path: str, session_id: str) -> tuple[str, ...]:
        """The rules that last in a directory, and in a session there."""
        return await rules.of(self._database, path, session_id)
