"""A client's prompt and cancel, with what decides about one that comes again."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from pykoclaw_acp.model import prompt_text
from pykoclaw_acp.model.turns import PromptKeys, Turn
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.subscriber import Subscriber
from pykoclaw_acp.tasks import in_pieces


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt as a client sends it: `number` is the request's on this connection, `request_key` names it for ever.

    If it comes again, `sent_at` (ms since 1970) and `uptime` (ms) say when its client sent it first.
    """

    session_id: str
    content: list[dict[str, Any]]
    number: int
    request_key: str | None = None
    idempotency_key: str | None = None
    sent_at: int | None = None
    uptime: int | None = None


async def accept(subscriber: Subscriber, prompt: Prompt) -> tuple[Session, Turn] | None:
    """The turn that answers the prompt, in the journal; a new one, or the one of a prompt that comes again.

    None: an earlier daemon has accepted it, and what that left waits for a database that can be written.
    """
    sessions = subscriber.sessions
    # One that comes again joins its turn also after the session was closed.
    find = sessions.get_open if prompt.sent_at is None else sessions.get
    session = await find(prompt.session_id)
    subscription = subscriber.subscription(session, prompt.session_id)
    fingerprint = await in_pieces(prompt_text.fingerprint(prompt.content))
    keys = PromptKeys(prompt.request_key, prompt.idempotency_key, fingerprint)
    shown = prompt.sent_at or time.time_ns() // 1_000_000
    sent = sessions.clock.now() if prompt.uptime is None else sessions.clock.at(prompt.uptime)
    turn = Turn(str(uuid4()), session.id, prompt.content, keys, shown, client=subscriber.name, sent=sent)
    if prompt.request_key is not None and sessions.awaits_recovery and await sessions.in_journal(session, keys):
        return None
    turn = await session.intake.accept(turn, subscription)
    subscriber.expect_answer(prompt.number, session, turn)
    return session, turn


async def cancel(
    sessions: Sessions, session_id: str, *, uptime: int | None = None, request_key: str | None = None
) -> list[asyncio.Task[None]]:
    """Stop the session's turns, but for those that came after a cancel that comes again, sent at `uptime` (ms).

    For an unknown or idle session it does nothing. The tasks are done when the cancel outlives this daemon.
    """
    session = await sessions.find(session_id)
    until = None if uptime is None else sessions.clock.at(uptime)
    return [] if session is None else session.cancel(until=until, request=request_key)
