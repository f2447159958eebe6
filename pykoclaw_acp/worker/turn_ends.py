"""How a turn ends: what the daemon is told, from the CLI's result and from what was said before it."""

from __future__ import annotations

from typing import Final

from claude_agent_sdk import ResultMessage
from msgspec.structs import replace

from pykoclaw_acp.channel.frames import TurnEnded
from pykoclaw_acp.channel.spec import LaunchSpec
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.worker import raw_frames, results
from pykoclaw_acp.worker.choices import Choices
from pykoclaw_acp.worker.failures import early_end, naming, of_begun_turn, of_own_turn
from pykoclaw_acp.worker.login_failures import explained
from pykoclaw_acp.worker.servers import Servers
from pykoclaw_acp.worker.side_events import SideEvents

NOT_UNDERSTOOD: Final = TurnFailure(
    ErrorKind.INTERNAL,
    "Claude said that the turn is over in a way that pykoclaw-acp does not understand; its log says more. Look at what"
    " was done before you repeat the prompt.",
)


class TurnEnds:
    """Makes the ends of one worker's turns."""

    def __init__(
        self, spec: LaunchSpec, side_events: SideEvents, servers: Servers, choices: Choices
    ) -> None:
        self._spec = spec
        self._side_events = side_events
        self._servers = servers
        self._choices = choices
        self.failure: TurnFailure | None = None
        """Why we interrupt the turn that runs."""
        self.api_error: tuple[str, str] | None = None
        """Kind and words of the API's last error in it."""
        self.last: str | None = None
        """The turn whose end was reported last."""

    def make_end(
        self, turn_id: str, result: ResultMessage, *, mine: bool, last_uuid: str | None
    ) -> tuple[list[Event], TurnEnded]:
        """Make the end of a turn, and the events that come before it. `mine`: the daemon gave the prompt;
        `last_uuid`: the turn's last entry in the transcript.
        """
        failure, self.failure = self.failure, None
        if result.subtype == raw_frames.UNREAD:
            failure = failure or NOT_UNDERSTOOD
        ended = results.turn_ended(
            self._spec.epoch, turn_id, result, failure, self.api_error, last_uuid=last_uuid
        )
        if ended.error is not None:
            words = self.api_error[1] if self.api_error else result.result or ""
            error = naming(ended.error, self._choices.running)
            told = explained(error, words, self._spec.options)
            told = self._side_events.explain(told)
            if not mine and failure is not NOT_UNDERSTOOD:
                told = of_own_turn(told)
            elif result.num_turns > 1:  # requests to the model: all but the first follow tools
                told = of_begun_turn(told)
            ended = replace(ended, error=told)
        notice = self._servers.notice(turn_id) if mine else []
        events = [*early_end(turn_id, ended.stop_reason), *notice]
        # After requests to the model for this prompt, it was another that came into the turn.
        alone = not result.num_turns or not results.answers(result, turn_id)
        untaken = mine and alone and self._side_events.blocked
        windows = dict(self._side_events.usage.windows)
        return events, replace(ended, windows=windows, untaken=untaken)

    def make_ends_without_result(
        self, running: str | None, prompted: str | None, result: ResultMessage, *, mine: bool
    ) -> list[TurnEnded]:
        """Make the ends of the turns that a result ends from which `make_end` could make none: of the
        one that ran, and of the daemon's, `prompted`, if it ends, too (`mine`).
        """
        ending = (running if running != prompted else None, prompted if mine else None)
        failure, self.failure = self.failure or NOT_UNDERSTOOD, None
        return [
            TurnEnded(
                epoch=self._spec.epoch,
                turn_id=one,
                stop_reason=None,
                claude_session_id=result.session_id,
                error=failure,
            )
            for one in ending
            if one is not None and one != self.last
        ]
