"""The twin of `sessions.ports.BlobStore`."""

from __future__ import annotations

from tests.twins.base import MemoryStore


class MemoryBlobStore(MemoryStore):
    async def read_blob(self, sha256: str, size: int) -> bytes | None:
        data = self.database.blobs.get(sha256)
        return data if data is not None and len(data) == size else None
