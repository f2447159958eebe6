"""What the next worker of a session goes on with, and what workers have learned for all."""

from __future__ import annotations

from typing import Any

from pykoclaw_acp.channel.frames import Ready, TurnEnded
from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.model.branches import Branch


class Continuity:
    """By session: the Claude session to resume, or the branch to begin, and what its workers have
    said to the user about plugins and servers. By account and model: sizes of context windows, for
    which the CLI would have tokens counted some 26 times.
    """

    def __init__(self) -> None:
        self._resume: dict[str, str | None] = {}
        self._branches: dict[str, Branch | None] = {}
        self._ready: dict[str, int] = {}  # epoch of the worker that was last ready
        self._told: dict[str, str] = {}
        # By session: account and model with which its worker was launched by this daemon.
        self._launched: dict[str, tuple[str, str | None]] = {}
        self._windows: dict[tuple[str, str | None], dict[str, int]] = {}

    def set_resume(
        self, session_id: str, claude_session_id: str | None, branch: Branch | None
    ) -> None:
        """Set the Claude session, and its branch if any, with which the next worker resumes."""
        self._resume[session_id] = claude_session_id
        self._branches[session_id] = branch

    def note_ready(self, session_id: str, ready: Ready) -> None:
        """Note which Claude session a worker runs, once for each: the ends of its turns say later
        ones.
        """
        if self._ready.get(session_id) == ready.epoch:
            return
        self._ready[session_id] = ready.epoch
        if self._branches.get(session_id) is None:  # else until a turn of it has ended
            self._resume[session_id] = None if ready.fresh else ready.claude_session_id
        self._told.setdefault(session_id, ready.told)

    def note_ended(self, session_id: str, ended: TurnEnded) -> None:
        """Note what its worker says at a turn's end."""
        if ended.told is not None:
            self._told[session_id] = ended.told
        if ended.windows and (launched := self._launched.get(session_id)) is not None:
            self._windows[launched] = ended.windows

    def forget(self, session_id: str) -> None:
        """Forget the session."""
        for known in (self._resume, self._branches, self._ready, self._told, self._launched):
            known.pop(session_id, None)

    def of(self, session_id: str, options: WorkerOptions) -> dict[str, Any]:
        """The fields of the launch specification that say it, of a worker with these options."""
        launched = self._launched[session_id] = options.account, options.model
        return {
            "resume_session_id": self._resume.get(session_id),
            "branch": self._branches.get(session_id),
            "told": self._told.get(session_id, ""),
            "windows": self._windows.get(launched, {}),
        }
