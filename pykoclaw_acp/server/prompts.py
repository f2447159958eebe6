"""`session/prompt`, `_session/steering` and `session/cancel`."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Never

from pykoclaw_acp import crash_points
from pykoclaw_acp.error_kinds import MISREAD, ErrorKind
from pykoclaw_acp.errors import AcpError, AuthRequired, TurnFailed
from pykoclaw_acp.model.failures import AUTHENTICATION, TurnFailure
from pykoclaw_acp.model.turns import Outcome, Turn, TurnState
from pykoclaw_acp.protocol import prompt as content
from pykoclaw_acp.protocol.limits import MAX_KEY
from pykoclaw_acp.protocol.messages import (
    PromptParams,
    PromptResult,
    SessionParams,
    SteeringResult,
    TokenUsage,
)
from pykoclaw_acp.server import meta, steering, whole_prompts
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.dispatch import Later
from pykoclaw_acp.sessions import prompting
from pykoclaw_acp.sessions.prompting import ClientPrompt
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.turns import steering as turn_steering
from pykoclaw_acp.sessions.turns.deduplication import IDEMPOTENCY
from pykoclaw_acp.tasks import in_pieces


async def prompt(call: Call, params: PromptParams) -> Later:
    """Journal the prompt; the response follows when its turn has ended, and what that has left running
    if the prompt waits for it, and all updates were sent.
    """
    crash_points.reached("prompt_received")
    tools = whole_prompts.tools(call, params)
    accepted = await _accept(
        call,
        params,
        steers=steering.wanted(params),
        idempotency_key=meta.text(params, IDEMPOTENCY, MAX_KEY),
    )
    if accepted is None:
        return Later(next_daemon())
    session, turn = accepted
    call.client.requests.send_soon(partial(call.client.peer.taken, call.line.number))
    by = call.client.name
    if tools is not whole_prompts.NONE and call.task is not None:
        session.held[call.task] = turn
        call.task.add_done_callback(session.held.pop)
    call.on_cancel(lambda: [session.cancel(one, by=by) for one in turn.with_answered()])
    return Later(_answer(call, session, turn, params.session_id, tools))


async def steer(call: Call, params: PromptParams) -> SteeringResult:
    """`_session/steering` of claude-agent-acp: the answer comes when the prompt was given to the
    turn that runs, or is in the queue. Its clients know no word for a prompt that waits, which only
    `_meta` says; it is answered with that turn, too.
    """
    if steering.needs_turn(params) and await prompting.is_idle(
        call.sessions, params.session_id, request_key=call.key
    ):
        return SteeringResult(outcome=steering.PROMPT_REQUIRED, reason="noRunningTurn")
    accepted = await _accept(call, params, steers=True, unattended=True)
    if accepted is None:
        return SteeringResult(outcome=turn_steering.INJECTED)
    session, turn = accepted
    became = turn_steering.result(turn)
    if session.steering.was_given(turn):
        became = turn_steering.INJECTED
    elif became == turn_steering.NEW:
        return SteeringResult(outcome=became)
    return SteeringResult(outcome=turn_steering.INJECTED, meta={steering.STEERING: became})


async def _accept(
    call: Call,
    params: PromptParams,
    *,
    steers: bool | None,
    idempotency_key: str | None = None,
    unattended: bool = False,
) -> tuple[Session, Turn] | None:
    """Journal the prompt of a request, as `prompting.accept`."""
    kept = await in_pieces(content.accepted(params.prompt))
    if not call.line.taken:  # by a version that took blank ones
        content.require_words(params.prompt)
    return await prompting.accept(
        call.subscriber,
        ClientPrompt(
            params.session_id,
            kept.blocks,
            number=call.line.number,
            request_key=call.key,
            idempotency_key=idempotency_key,
            sent_at=call.line.sent_at,
            uptime=call.line.uptime,
            blobs=kept.data,
            steers=steers,
            unattended=unattended,
            joins=call.line.taken,
        ),
    )


async def _answer(
    call: Call, session: Session, turn: Turn, session_id: str, tools: whole_prompts.Tools
) -> PromptResult:
    outcome = await _outcome(call, session, turn, session_id, tools)
    crash_points.reached("response_ready")
    if outcome.stop_reason is not None:
        return PromptResult(
            stop_reason=outcome.stop_reason, usage=_usage(outcome), meta=steering.told(turn)
        )
    raise _error(outcome)


async def _outcome(
    call: Call, session: Session, turn: Turn, session_id: str, tools: whole_prompts.Tools
) -> Outcome:
    """The outcome of the turn and of the prompts that are answered with it, with what calls of these
    `tools` have led to: the last one's, with the tokens of all. The response to `_session/steering` has
    said that they belong to it.
    """
    used = Counter[str]()
    ends: dict[str, Outcome] = {}  # by the turn that has led to it: several prompts may be in one
    for one in turn.with_answered():  # of the next one only when this one has ended
        outcome = await call.subscriber.outcome(one, session_id)
        used.update(outcome.usage or {})
        if outcome.state == TurnState.DONE and tools is not whole_prompts.NONE:
            ran_as = one.taken_by or one.turn_id
            if ran_as not in ends:
                ends[ran_as], own = await whole_prompts.outcome(session, one, outcome, tools)
                for each in own:
                    used.update(each.usage or {})
                await call.subscriber.sent(session_id, session.last_seq)
            outcome = ends[ran_as]
        if outcome.state != TurnState.DONE:
            break
    return replace(outcome, usage=dict(used) or None)


async def cancel(call: Call, params: SessionParams) -> Later:
    """Cancel the session's turns; does nothing for an unknown or idle session (ACP).

    Acknowledged when it outlives this daemon: a front repeats it until then.
    """
    if call.sessions.awaits_recovery and call.key is not None:
        return Later(next_daemon())
    leaving = await prompting.cancel(
        call.sessions,
        params.session_id,
        by=call.client.name,
        uptime=call.line.uptime,
        request_key=call.key,
    )
    return Later(_all(leaving))


async def next_daemon() -> Never:
    """Wait for ever: recovery is pending, and the front re-sends the line to the daemon that
    recovers.
    """
    await asyncio.Event().wait()
    raise AssertionError("nobody sets it")


async def _all(leaving: list[asyncio.Task[None]]) -> None:
    if leaving:
        await asyncio.wait(leaving)


def _usage(outcome: Outcome) -> TokenUsage | None:
    if outcome.usage is None:
        return None
    used = outcome.usage
    return TokenUsage(
        total_tokens=used["totalTokens"],
        input_tokens=used["inputTokens"],
        output_tokens=used["outputTokens"],
        cached_read_tokens=used["cachedReadTokens"],
        cached_write_tokens=used["cachedWriteTokens"],
    )


def _error(outcome: Outcome) -> AcpError:
    failure = outcome.failure or TurnFailure(
        ErrorKind.TURN_FAILED, "The turn ended without an answer."
    )
    retryable = failure.retryable and outcome.state != TurnState.UNKNOWN
    data: dict[str, object] = {
        "errorKind": failure.kind,
        "turnState": outcome.state,
        "retryable": retryable,
    }
    if failure.status is not None:
        data["httpStatus"] = failure.status
    if failure.retry_after is not None:
        data["retryAfter"] = _harmless(failure.retry_after)
    if failure.resets_at is not None:
        data["resetsAt"] = datetime.fromtimestamp(failure.resets_at, UTC).isoformat()
    kind = AuthRequired if failure.kind in AUTHENTICATION else TurnFailed
    return kind(failure.message, data)


def _harmless(seconds: int) -> int:
    """No fewer seconds, in digits that Mitto does not take for a context that is too large."""
    while MISREAD in str(seconds):
        seconds += 1
    return seconds
