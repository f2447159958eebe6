"""The twin of `sessions.ports.TrustStore`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from pykoclaw_acp.model.permissions import PermissionRequest, StoredRequest, Workspace
from pykoclaw_acp.model.trust import FIRST_USE, Trusted
from pykoclaw_acp.system.paths import upwards
from tests.twins.base import MemoryStore


class MemoryTrustStore(MemoryStore):
    async def trusted(self, paths: Collection[str]) -> list[Trusted]:
        wanted = {above for path in paths for above in upwards(path)}
        return [one for one in self.database.read().trust.values() if one.path in wanted]

    async def trust_first_use(self, path: str, workspaces: Sequence[Workspace]) -> None:
        def use() -> None:
            self.database.trust.pop((path, FIRST_USE), None)
            for one in workspaces:
                if one.content:
                    self.database.trust_content(one, "upgrade")

        await self.database.write(use, patient=True)

    async def note_digests(self, workspaces: Sequence[Workspace]) -> None:
        def note() -> None:
            for one in workspaces:
                row = self.database.trust.get((one.path, one.content))
                if row is not None and row.files is None:
                    self.database.trust[one.path, one.content] = replace(row, files=one.files)

        await self.database.write(note, patient=True)

    async def insert_request(self, session_id: str, ask: PermissionRequest) -> None:
        await self.database.write(
            lambda: self.database.insert_request(session_id, ask), patient=True
        )

    async def trust_requests(self, turn_id: str) -> list[StoredRequest]:
        rows = [one for one in self.database.read().requests.values() if one.turn_id == turn_id]
        return [one for one in reversed(rows) if one.request.workspaces]
