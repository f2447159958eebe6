"""`session/prompt` and `session/cancel`."""

from __future__ import annotations

import asyncio
import time
from typing import Final, Never
from uuid import uuid4

from pykoclaw_acp import crash_points
from pykoclaw_acp.errors import AcpError, AuthRequired, InvalidParams, TurnFailed
from pykoclaw_acp.model import prompt_text
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.model.turns import Outcome, PromptKeys, Turn
from pykoclaw_acp.protocol import prompt as content
from pykoclaw_acp.protocol.messages import PromptParams, PromptResult, SessionParams, Usage
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.dispatch import Later
from pykoclaw_acp.sessions.subscription import Subscription
from pykoclaw_acp.sessions.turns.deduplication import IDEMPOTENCY
from pykoclaw_acp.tasks import in_pieces

MAX_KEY: Final = 255  # characters


async def prompt(call: Call, params: PromptParams) -> Later:
    """Journals the prompt, in order; the answer comes when its turn has ended and everything of it was sent."""
    crash_points.reached("prompt_received")
    blocks = content.accepted(params.prompt)
    # One that comes again joins its turn also after the session was closed.
    again = call.line.sent_at is not None
    session = await (call.sessions.get if again else call.sessions.get_open)(params.session_id)
    subscription = call.connection.following(session, params.session_id)
    keys = PromptKeys(call.key, _idempotency_key(params), await in_pieces(prompt_text.fingerprint(blocks)))
    shown = call.line.sent_at or time.time_ns() // 1_000_000
    clock = call.sessions.clock
    sent = clock.now() if call.line.uptime is None else clock.at(call.line.uptime)
    turn = Turn(str(uuid4()), session.id, blocks, keys, shown, client=call.connection.name, sent=sent)
    if call.key is not None and call.sessions.awaits_recovery and await call.sessions.in_journal(session, keys):
        return Later(_next_daemon())
    turn = await session.accept(turn, subscription)
    call.connection.prompted(call, session, turn)
    call.on_cancel(lambda: session.cancel(turn))
    return Later(_answer(call, turn, subscription))


def _idempotency_key(params: PromptParams) -> str | None:
    key = (params.meta or {}).get(IDEMPOTENCY)
    if key is not None and (not isinstance(key, str) or not 0 < len(key) <= MAX_KEY):
        raise InvalidParams(f"`_meta.{IDEMPOTENCY}`: must be a string of 1 to {MAX_KEY} characters.")
    return key


async def _answer(call: Call, turn: Turn, subscription: Subscription) -> PromptResult:
    outcome, told = await asyncio.shield(turn.ended)  # which others may wait for as well
    while True:
        await subscription.reached(told)
        current = call.connection.subscriptions.get(subscription.session_id, subscription)
        if current is subscription:
            break
        subscription = current  # a load meanwhile has put another one in its place
    crash_points.reached("response_ready")
    if outcome.stop_reason is not None:
        return PromptResult(stop_reason=outcome.stop_reason, usage=_usage(outcome))
    raise _error(outcome)


async def cancel(call: Call, params: SessionParams) -> Later:
    """Stops the session's turns; for an unknown or idle session it does nothing (ACP).

    Acknowledged when it outlives this daemon: a front repeats it until then.
    """
    if call.sessions.awaits_recovery and call.key is not None:
        return Later(_next_daemon())
    session = await call.sessions.find(params.session_id)
    until = None if call.line.uptime is None else call.sessions.clock.at(call.line.uptime)
    leaving = [] if session is None else session.cancel(until=until, request=call.key)
    return Later(_all(leaving))


async def _next_daemon() -> Never:
    """Nothing: what an earlier daemon left is not taken up yet; the front sends the line again when it is."""
    await asyncio.Event().wait()
    raise AssertionError("nobody sets it")


async def _all(leaving: list[asyncio.Task[None]]) -> None:
    if leaving:
        await asyncio.wait(leaving)


def _usage(outcome: Outcome) -> Usage | None:
    if outcome.usage is None:
        return None
    used = outcome.usage
    return Usage(
        total_tokens=used["totalTokens"],
        input_tokens=used["inputTokens"],
        output_tokens=used["outputTokens"],
        cached_read_tokens=used["cachedReadTokens"],
        cached_write_tokens=used["cachedWriteTokens"],
    )


def _error(outcome: Outcome) -> AcpError:
    failure = outcome.failure or TurnFailure("turn_failed", "The turn ended without an answer.")
    data: dict[str, object] = {"errorKind": failure.kind, "turnState": outcome.state}
    if failure.status is not None:
        data["httpStatus"] = failure.status
    if failure.retry_after is not None:
        data["retryAfter"] = failure.retry_after
    kind = AuthRequired if failure.kind == "authentication_failed" else TurnFailed
    return kind(failure.message, data)
