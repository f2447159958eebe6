"""The twin of `sessions.ports.RuleStore`."""

from __future__ import annotations

from tests.twins.base import MemoryStore


class MemoryRuleStore(MemoryStore):
    async def rules(self, path: str) -> tuple[str, ...]:
        return tuple(sorted(rule for known, rule in self.database.read().rules if known == path))
