"""The turns of one Claude session that have not ended."""

from __future__ import annotations

from claude_agent_sdk import ResultMessage

from pykoclaw_acp.worker import results
from pykoclaw_acp.worker.raw_frames import RawFrame


class CurrentTurns:
    """At most one that the daemon gave, and one that runs; they may be the same."""

    def __init__(self) -> None:
        self.prompted: str | None = None
        """The daemon's turn, from its prompt to its result."""
        self._done = False  # the CLI has done with that prompt, of which no result has told
        self.running: str | None = None
        """The turn whose messages come in now."""
        self.begun = False
        """Whether the CLI has begun the turn that runs, of which it then tells a result."""
        self.last_prompt: str | None = None
        """The newest turn that the daemon gave, also when it has ended."""

    def __bool__(self) -> bool:
        return bool(self.ids)

    @property
    def ids(self) -> list[str]:
        """Turns that run, or were given to Claude."""
        return [one for one in (self.prompted, self.running) if one is not None]

    @property
    def untaken(self) -> str | None:
        """A turn whose prompt Claude has not taken up yet."""
        return self.prompted if self.running is None else None

    @property
    def is_own(self) -> bool:
        """Whether the turn that runs is Claude's own."""
        return self.running is not None and self.running != self.prompted

    @property
    def alone(self) -> str | None:
        """Claude's own turn that runs while no prompt of the daemon's is with Claude."""
        return self.running if self.prompted is None else None

    @property
    def unbegun(self) -> str | None:
        """A turn that the CLI has not begun, of which it may tell no result: a subagent has asked
        something while none ran.
        """
        return self.running if self.is_own and not self.begun else None

    def expect(self, turn_id: str | None) -> None:
        """Note that the prompt of this turn is with Claude; None: no prompt is."""
        self.prompted, self._done = turn_id, False
        self.last_prompt = turn_id or self.last_prompt

    def follow(self, frame: RawFrame) -> None:
        """Note that the CLI, as the frame says, has done with the daemon's prompt."""
        if frame.get("type") == "command_lifecycle" and frame.get("state") == "completed":
            self._done = self._done or frame.get("command_uuid") == self.prompted

    def is_ended_by(self, result: ResultMessage) -> bool:
        """Whether the daemon's turn ends with this result. It names no prompt that a hook has blocked in
        Claude's own turn.
        """
        if self.prompted is None:
            return False
        return self._done or results.answers(result, self.prompted)
