"""Bytes that are kept outside of rows."""

from __future__ import annotations

from typing import Protocol

from pykoclaw_acp.sessions.ports.store import Store


class BlobStore(Store, Protocol):
    """Blobs by their hashes; `TurnJournal.accept` puts them there."""

    async def read_blob(self, sha256: str, size: int) -> bytes | None:
        """The blob's bytes; None if they are missing or damaged."""
