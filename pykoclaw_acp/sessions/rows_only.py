"""What stands in for transcripts where there are none to look at."""

from __future__ import annotations

from collections.abc import Callable, Collection

from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.sessions.ports import Imported, RowStanding


class RowsOnly:
    """Follows the rows of conversations, and looks at no transcript."""

    async def exists(self, claude_session_id: str) -> bool:  # noqa: ARG002
        """Whether there is such a transcript: none is known."""
        return False

    async def holding(
        self,
        record: SessionRecord,  # noqa: ARG002
        claude_session_id: str,  # noqa: ARG002
        uuids: Collection[str],  # noqa: ARG002
    ) -> set[str] | None:
        """Nobody knows."""
        return None

    async def take_in(
        self,
        record: SessionRecord,
        row_session_id: str | None,
        *,
        own: Collection[str],  # noqa: ARG002
    ) -> Imported:
        """Another Claude session in the row continues the conversation, unless ours is yet to branch
        off.
        """
        known = record.claude_session_id
        if row_session_id in (None, known):
            return Imported(RowStanding.SAME, followed=known)
        if record.branch is not None:
            return Imported(RowStanding.SIDE, followed=known)
        return Imported(RowStanding.MOVED_ON, followed=row_session_id)

    async def note_told(self, session_id: str) -> None:
        """Nothing: there are no digests."""

    def watch(self, session_id: str, changed: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002
        """Nothing to watch."""
        return lambda: None
