"""The twin of `sessions.ports.RuleStore`."""

from __future__ import annotations

from tests.twins.base import MemoryStore


class MemoryRuleStore(MemoryStore):
    async def rules(self, path: str, session_id: str) -> tuple[str, ...]:
        known = self.database.read().rules
        return tuple(sorted({rule for where, rule in known if where in (path, session_id)}))
