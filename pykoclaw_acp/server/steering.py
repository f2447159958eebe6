"""Prompts for the turn that runs: what `_meta` says of them."""

from __future__ import annotations

from typing import Any, Final

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.protocol.wire import Params
from pykoclaw_acp.sessions.turns import steering

STEERING: Final = "pykoclaw.dev/steering"
PROMPT_REQUIRED: Final = "promptRequired"
_WANTED: Final = {"steer": True, "queue": False}


def wanted(params: Params) -> bool | None:
    """Whether prompts are to go into the running turn; None: not said. Raises InvalidParams."""
    said = (params.meta or {}).get(STEERING)
    if said is None:
        return None
    if not isinstance(said, str) or said not in _WANTED:
        raise InvalidParams(f"`_meta.{STEERING}`: must be `steer` or `queue`.")
    return _WANTED[said]


def needs_turn(params: Params) -> bool:
    """Whether a prompt of `_session/steering` is only for a turn that runs, as claude-agent-acp has
    it: its client sends it by `session/prompt` otherwise. Raises InvalidParams.
    """
    said = (params.meta or {}).get("steering")
    behavior = said.get("idleBehavior") if isinstance(said, dict) else None
    if behavior not in (None, PROMPT_REQUIRED):
        raise InvalidParams(f"`_meta.steering.idleBehavior`: must be `{PROMPT_REQUIRED}`.")
    return behavior is not None


def told(turn: Turn) -> dict[str, Any] | None:
    """`_meta` of the response to a prompt that was to go into the running turn."""
    return {STEERING: steering.result(turn)} if turn.steers else None
