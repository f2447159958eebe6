"""Prompts for the turn that runs: what `_meta` says of them, and the peer's `_session/steering`."""

from __future__ import annotations

from typing import Any, Final

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.protocol import prompt as content
from pykoclaw_acp.protocol.messages import PromptParams, SteeringResult
from pykoclaw_acp.protocol.wire import Params
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.sessions import prompting
from pykoclaw_acp.sessions.prompting import Prompt
from pykoclaw_acp.sessions.turns import steering
from pykoclaw_acp.tasks import in_pieces

STEERING: Final = "pykoclaw.dev/steering"
_WANTED: Final = {"steer": True, "queue": False}


def wanted(params: Params) -> bool | None:
    """Whether prompts are to go into the running turn; None: not said. Raises InvalidParams."""
    said = (params.meta or {}).get(STEERING)
    if said is None:
        return None
    if not isinstance(said, str) or said not in _WANTED:
        raise InvalidParams(f"`_meta.{STEERING}`: must be `steer` or `queue`.")
    return _WANTED[said]


def told(turn: Turn) -> dict[str, Any] | None:
    """`_meta` of the response to a prompt that was to go into the running turn."""
    return {STEERING: steering.result(turn)} if turn.steers else None


async def steer(call: Call, params: PromptParams) -> SteeringResult:
    """`_session/steering` of claude-agent-acp: the answer comes when the prompt was given to the
    turn that runs, or is in the queue; nobody waits for its end.
    """
    kept = await in_pieces(content.accepted(params.prompt))
    accepted = await prompting.accept(
        call.subscriber,
        Prompt(
            params.session_id,
            kept.blocks,
            number=call.line.number,
            request_key=call.key,
            sent_at=call.line.sent_at,
            uptime=call.line.uptime,
            blobs=kept.data,
            steers=True,
            unattended=True,
        ),
    )
    if accepted is None:
        return SteeringResult(outcome=steering.QUEUED)
    session, turn = accepted
    given = session.steering.was_given(turn)
    return SteeringResult(outcome=steering.INJECTED if given else steering.result(turn))
