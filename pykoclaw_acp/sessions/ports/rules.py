"""Rules of Claude that last."""

from __future__ import annotations

from typing import Protocol

from pykoclaw_acp.sessions.ports.store import Store


class RuleStore(Store, Protocol):
    """What people have allowed in directories; `PermissionStore.settle` adds to it."""

    async def rules(self, path: str) -> tuple[str, ...]:
        """The rules that last in a directory, whose path has no symbolic links."""
