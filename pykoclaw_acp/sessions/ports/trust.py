"""Trust in the directories that sessions work in."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from pykoclaw_acp.model.permissions import PermissionRequest, StoredRequest, Workspace
from pykoclaw_acp.model.trust import Trusted
from pykoclaw_acp.sessions.ports.store import Store
from pykoclaw_acp.trust.content import Content


class Workspaces(Protocol):
    """Directories on disk."""

    async def look(self, cwd: str, directories: Sequence[str], sources: Sequence[str]) -> Content:
        """What acts there, of what Claude reads with these setting sources."""

    async def unchanged(self, content: Content) -> bool:
        """Whether nothing that was looked at has changed since."""


class TrustStore(Store, Protocol):
    """Which directories the user trusts, and the requests that ask for it."""

    async def trusted(self, paths: Collection[str]) -> list[Trusted]:
        """What the user has said of these directories and of those above them."""

    async def trust_first_use(self, path: str, workspaces: Sequence[Workspace]) -> None:
        """Trust these directories in place of the first use of `path`, which is over. Waits while
        the database cannot be written.
        """

    async def note_digests(self, workspaces: Sequence[Workspace]) -> None:
        """Keep the digests of these directories, which are trusted with this content and without
        them. Waits while the database cannot be written.
        """

    async def insert_request(self, session_id: str, request: PermissionRequest) -> None:
        """Insert a trust request, which comes from no worker. Waits while the database cannot be
        written.
        """

    async def trust_requests(self, turn_id: str) -> list[StoredRequest]:
        """Trust requests of a turn, settled or not, the newest first."""
