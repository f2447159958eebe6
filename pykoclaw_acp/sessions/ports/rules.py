"""Rules of Claude that last."""

from __future__ import annotations

from typing import Protocol

from pykoclaw_acp.sessions.ports.store import Store


class RuleStore(Store, Protocol):
    """What people have allowed in directories and sessions; `PermissionStore.settle` adds to it."""

    async def rules(self, path: str, session_id: str) -> tuple[str, ...]:
        """The rules that last in a directory, whose path has no symbolic links, and in a session
        there; in order, each once.
        """
