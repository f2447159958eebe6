"""Prompts that are answered when what their turn leads to has ended, too."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from msgspec.structs import replace as replaced

from pykoclaw_acp.errors import TurnFailed
from pykoclaw_acp.model.turns import Outcome, Turn
from pykoclaw_acp.model.work import SUBAGENTS, Work
from pykoclaw_acp.protocol.wire import Params
from pykoclaw_acp.server import kept_turns, meta
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.sessions import work
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.turns import outcomes

WHOLE: Final = "pykoclaw.dev/whole"
Tools: TypeAlias = Collection[str] | None
NONE: Final[Tools] = frozenset()  # the response comes at the turn's end


def tools(call: Call, params: Params) -> Tools:
    """Tools whose calls are waited for; None: all. Raises InvalidParams."""
    wanted = meta.flag(params, WHOLE)
    if wanted is None:
        return SUBAGENTS if call.subscriber.traits.ends_with_answer else NONE
    return None if wanted else NONE


async def outcome(
    session: Session, turn: Turn, until_now: Outcome, tools: Tools
) -> tuple[Outcome, tuple[Outcome, ...]]:
    """How what the turn has led to has ended, which is done `until_now`, and how each of Claude's own
    turns did.
    """
    read = partial(session.led_to, turn.taken_by or turn.turn_id, tools)
    find = partial(kept_turns.read, read, turn.cancelled)
    try:
        led_to, _ = await work.over(session, await find(), find, turn.cancelled)
    except TurnFailed:
        if not turn.cancelled.is_set():
            raise
        led_to = Work()  # nobody knows which subagents are to stop: all are
    if not turn.cancelled.is_set():
        ended = led_to.failed or (until_now, *led_to.own)[-1]
        if ended.failure is not None:  # the prompt would do all of it again
            ended = replace(ended, failure=replaced(ended.failure, begun=True))
        return ended, led_to.own
    if not session.busy:  # with another prompt, whose turn would be stopped as well
        await work.stop(session, led_to)
    return outcomes.CANCELLED, ()
