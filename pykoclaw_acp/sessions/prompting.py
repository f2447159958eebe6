"""Prompts and cancels of clients, re-sent ones included."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from pykoclaw_acp.errors import StoreUnavailable
from pykoclaw_acp.model import notes, prompt_text
from pykoclaw_acp.model.turns import STARTED, PromptKeys, Turn
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.subscriber import Subscriber
from pykoclaw_acp.sessions.subscription import Subscription
from pykoclaw_acp.sessions.turns.intake import looking_back
from pykoclaw_acp.tasks import in_pieces


@dataclass(frozen=True, slots=True)
class ClientPrompt:
    """A client's prompt: `number` identifies the request on its connection, `request_key` globally.

    `content` is as `model/blobs.py` says, `blobs` are the bytes that it refers to, by their hashes.

    Of a re-sent one, `sent_at` (ms since 1970) and `uptime` (ms) are those of the first time.
    """

    session_id: str
    content: list[dict[str, Any]]
    number: int
    request_key: str | None = None
    idempotency_key: str | None = None
    sent_at: int | None = None
    uptime: int | None = None
    blobs: Mapping[str, bytes] = field(default_factory=dict)
    steers: bool | None = None  # None: as the session's setting says
    unattended: bool = False  # its answer does not wait for its end
    joins: bool = False  # an earlier daemon had taken it: it is no new turn


async def accept(subscriber: Subscriber, prompt: ClientPrompt) -> tuple[Session, Turn] | None:
    """Accept the prompt; returns its session and turn: a new turn, or that of a re-sent prompt.

    None: an earlier daemon accepted it, and recovery waits for a writable database.
    """
    sessions = subscriber.sessions
    # A re-sent prompt joins its turn even in a closed session.
    resent = prompt.sent_at is not None
    find = sessions.get if resent else subscriber.opened
    with looking_back(resent=resent):
        session = await find(prompt.session_id)
    subscription = subscriber.subscription(session, prompt.session_id)
    fingerprint = await in_pieces(prompt_text.fingerprint(prompt.content))
    keys = PromptKeys(prompt.request_key, prompt.idempotency_key, fingerprint)
    shown = prompt.sent_at or time.time_ns() // 1_000_000
    sent = sessions.clock.now() if prompt.uptime is None else sessions.clock.at(prompt.uptime)
    turn = Turn(str(uuid4()), session.id, prompt.content, keys, shown, subscriber.name, sent=sent)
    turn.client_process = subscriber.client_process
    helpers = sessions.catalogue.settings.helper_prompts
    turn.helper = prompt_text.by_client_itself(prompt.content, subscriber.name, helpers)
    turn.steers = session.record.steers if prompt.steers is None else prompt.steers
    turn.unattended, turn.resent = prompt.unattended, resent
    if prompt.request_key is not None and sessions.awaits_recovery:
        with looking_back(resent=resent):
            if await sessions.in_journal(session, keys):
                return None
    turn.blobs = prompt.blobs
    subscriber.require_current()
    try:
        known = await session.accept(turn, subscription, joins=prompt.joins)
        if known is not turn and known.ended.done() and not known.keys.is_same(keys):
            await _say_joined(session, subscription)
    finally:
        if subscription.leaves:  # made anew maybe, for this turn alone
            subscriber.leave_at_end(session, subscription)
    known.steers = known.steers or turn.steers
    subscriber.expect_answer(prompt.number, session, known)
    return session, known


async def is_idle(sessions: Sessions, session_id: str, *, request_key: str | None) -> bool:
    """Whether the session has no turn, and this request has made none. Raises SessionNotFound."""
    session = await sessions.get(session_id)
    if session.turns or sessions.awaits_recovery:
        return False
    return request_key is None or not await sessions.was_taken(request_key)


async def _say_joined(session: Session, author: Subscription) -> None:
    """Tell a person whose words were taken for those that the client sends again by itself."""
    try:
        await session.log.tell(notes.joined(f"joined-{uuid4()}"))
    except StoreUnavailable:
        return  # its answer says nothing that is not in the log
    author.owed = session.last_seq


async def cancel(
    sessions: Sessions,
    session_id: str,
    *,
    by: str = "",
    uptime: int | None = None,
    request_key: str | None = None,
) -> list[asyncio.Task[None]]:
    """Cancel the session's turns, as `by` wants, except those sent after a re-sent cancel of `uptime`
    (ms); it does not go on by itself after a usage limit. If no worker has one, stop its subagents, as
    a turn's end by a cancel does; a re-sent cancel does so before the first prompt to this daemon,
    and neither if a prompt that came after it has ended.

    Without effect for an unknown session. The returned tasks end when the cancel is durable, and the
    responses were written that nothing but it says are cancelled.
    """
    session = await sessions.find(session_id)
    until = None if uptime is None else sessions.clock.at(uptime)
    if session is None:
        return []
    turns = session.turns
    leaving = session.cancel(until=until, request=request_key, by=by)
    held = ((call, one) for call, host in session.held.items() for one in host.with_answered())
    leaving += {call for call, one in held if one.ended.done() and one.cancelled.is_set()}
    if until is not None and await session.deduplication.has_ended_after(until, request_key):
        return leaving
    later = session.deduplication.prompted or session.busy or session.background
    with_worker = any(one.state in STARTED and not one.leaving for one in turns)
    if not (with_worker or session.background) and (until is None or not later):
        leaving.append(session.requests.stop_subagents())
    return [*leaving, session.limit_wait.give_up([one for one in turns if one.cancelled.is_set()])]
