"""Prompts that are given to the turn that runs.

The CLI queues such a message and takes it up after the next tool result, before it asks the model
again; it then repeats the message (`--replay-user-messages`) under its uuid, which is how this is
known. What it has not taken up when the turn ends it runs next, as turns of their own: all that
wait at once are one turn of the CLI's, which the first of them gives its name.
"""

from __future__ import annotations

from collections.abc import Callable

from claude_agent_sdk import ClaudeSDKClient, Message, UserMessage
from msgspec.structs import replace

from pykoclaw_acp.channel.frames import EventFrame, TurnEnded, TurnStarted
from pykoclaw_acp.channel.steering import Steer
from pykoclaw_acp.worker import sdk_private
from pykoclaw_acp.worker.raw_frames import RawFrame


class Steered:
    """The steering prompts of one worker that have not ended."""

    def __init__(
        self, epoch: int, put: Callable[[TurnStarted | EventFrame | TurnEnded], None]
    ) -> None:
        self._epoch = epoch
        self._put = put
        self._waiting: dict[str, Steer] = {}
        self._taken: list[str] = []

    @property
    def ids(self) -> list[str]:
        """All of them, in order."""
        return [*self._taken, *self._waiting]

    def add(self, steer: Steer) -> None:
        """Expect the CLI to take this prompt up."""
        self._waiting[steer.turn_id] = steer

    def was_taken(self, turn_id: str) -> bool:
        """Whether the turn that runs has taken the prompt up."""
        return turn_id in self._taken

    async def take_back(self, client: ClaudeSDKClient, turn_id: str, claude_session: str) -> bool:
        """Whether the CLI has dropped the prompt, which it had not taken up; reports that it ended,
        unless it is the next to run.
        """
        if turn_id not in self._waiting or not await sdk_private.cancel_message(client, turn_id):
            return False
        if self._waiting.pop(turn_id, None) is not None:
            self.report_dropped(turn_id, claude_session)
        return True

    def report_dropped(self, turn_id: str, claude_session: str) -> TurnEnded:
        """Report the end of a prompt that the CLI has dropped, and return it."""
        ended = TurnEnded(
            epoch=self._epoch,
            turn_id=turn_id,
            stop_reason="cancelled",
            claude_session_id=claude_session,
        )
        self._put(ended)
        return ended

    def note_taken(self, message: Message, running: str | None) -> bool:
        """Report a prompt that, as the message says, the turn that runs has taken up; False if it says
        nothing of that.
        """
        return isinstance(message, UserMessage) and self._take(message.uuid, running)

    def follow(self, frame: RawFrame, current: str | None) -> None:
        """Report a prompt that, as the frame says, the CLI has begun with, in this turn: it is repeated
        in no turn if a hook blocks it, or if others run with it.
        """
        if frame.get("type") == "command_lifecycle" and frame.get("state") == "started":
            self._take(frame.get("command_uuid"), current)

    def _take(self, turn_id: str | None, into: str | None) -> bool:
        if into is None or turn_id is None or turn_id not in self._waiting:
            return False
        steer = self._waiting.pop(turn_id)
        self._taken.append(turn_id)
        self._put(TurnStarted(epoch=self._epoch, turn_id=turn_id, into=into))
        self.say(steer, into)
        return True

    def pop_taken(self) -> str | None:
        """Remove the first of the prompts that the CLI has begun with, and return it: its turn runs, since
        that into which it seemed to come was dropped.
        """
        return self._taken.pop(0) if self._taken else None

    def say(self, steer: Steer, turn_id: str) -> None:
        """Log the prompt in this turn."""
        for event in steer.said:
            self._put(EventFrame(epoch=self._epoch, turn_id=turn_id, event=event))

    def turn_ended(self, ended: TurnEnded) -> str | None:
        """The turn that has taken prompts up has ended, and they with it: reports that. Returns the
        turn with which the CLI goes on by itself.
        """
        for turn_id in self._taken:  # the tokens are counted once
            self._put(replace(ended, n=0, turn_id=turn_id, usage=None, into=ended.turn_id))
        self._taken.clear()
        following = next(iter(self._waiting), None)
        if following is not None:
            self.say(self._waiting.pop(following), following)
        return following
