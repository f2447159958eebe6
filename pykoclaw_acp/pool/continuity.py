"""What the next worker of a session goes on with."""

from __future__ import annotations

from typing import Any

from pykoclaw_acp.channel.frames import Ready
from pykoclaw_acp.model.branches import Branch


class Continuity:
    """By session: the Claude session to resume, or the branch to begin, and what its workers have
    said to the user about plugins and servers.
    """

    def __init__(self) -> None:
        self._resume: dict[str, str | None] = {}
        self._branches: dict[str, Branch | None] = {}
        self._told: dict[str, str] = {}

    def set_resume(
        self, session_id: str, claude_session_id: str | None, branch: Branch | None
    ) -> None:
        """As `WorkerPool.set_resume`."""
        self._resume[session_id] = claude_session_id
        self._branches[session_id] = branch

    def note_ready(self, session_id: str, ready: Ready) -> None:
        """Note which Claude session a worker runs."""
        if self._branches.get(session_id) is None:  # else until a turn of it has ended
            self._resume[session_id] = None if ready.fresh else ready.claude_session_id
        self._told.setdefault(session_id, ready.told)

    def note_told(self, session_id: str, told: str) -> None:
        """Note what its worker has said."""
        self._told[session_id] = told

    def forget(self, session_id: str) -> None:
        """Forget the session."""
        for known in (self._resume, self._branches, self._told):
            known.pop(session_id, None)

    def of(self, session_id: str) -> dict[str, Any]:
        """The fields of the launch specification that say it."""
        return {
            "resume_session_id": self._resume.get(session_id),
            "branch": self._branches.get(session_id),
            "told": self._told.get(session_id, ""),
        }
