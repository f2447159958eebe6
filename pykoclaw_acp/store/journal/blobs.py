"""Blobs, over `store/blob_files.py`."""

from __future__ import annotations

from pykoclaw_acp.store.journal.base import SqlStore


class SqlBlobStore(SqlStore):
    """Implements `sessions.ports.BlobStore`."""

    async def read_blob(self, sha256: str, size: int) -> bytes | None:
        """The blob's bytes; None if they are missing or damaged."""
        return await self._database.blobs.read(sha256, size)
