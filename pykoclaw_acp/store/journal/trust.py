"""Trust in directories, over `store/trust.py`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pykoclaw_acp.model.permissions import PermissionRequest, StoredRequest, Workspace
from pykoclaw_acp.model.trust import Trusted
from pykoclaw_acp.store import permissions, trust
from pykoclaw_acp.store.journal.base import SqlStore
from pykoclaw_acp.store.units import Unit


class SqlTrustStore(SqlStore):
    """Implements `sessions.ports.TrustStore`."""

    async def trusted(self, paths: Collection[str]) -> list[Trusted]:
        """What the user has said of these directories and of those above them."""
        return await trust.of(self._database, paths)

    async def trust_first_use(self, path: str, workspaces: Sequence[Workspace]) -> None:
        """Trust these directories in place of the first use of `path`."""
        granted = [trust.grant(one, "upgrade") for one in workspaces if one.content]
        rows = [row for rows in granted for row in rows]
        await self._commit(Unit(statements=(trust.used(path), *rows)), patient=True)

    async def note_digests(self, workspaces: Sequence[Workspace]) -> None:
        """Keep the digests of trusted directories that have none."""
        rows = tuple(map(trust.note_digests, workspaces))
        await self._commit(Unit(statements=rows), patient=True)

    async def insert_request(self, session_id: str, request: PermissionRequest) -> None:
        """Insert a trust request."""
        await self._commit(
            Unit(statements=permissions.insert_workspace(session_id, request, self.clock.now())),
            patient=True,
        )

    async def trust_requests(self, turn_id: str) -> list[StoredRequest]:
        """Trust requests of a turn, settled or not, the newest first."""
        return await permissions.about_trust(self._database, turn_id)
