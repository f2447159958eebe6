"""What a client that has opened a session is shown, and what begins for it, after the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.subscriber import Subscriber
from pykoclaw_acp.sessions.subscription import Subscription

FollowUp = Callable[[], Coroutine[Any, Any, None]]


async def begin(subscription: Subscription) -> None:
    """Let the subscription deliver."""
    subscription.answered.set()


async def warm(subscriber: Subscriber) -> None:
    """A prompt is likely to follow; after the answer, since to start a process takes some
    milliseconds.
    """
    subscriber.sessions.workers.warm()


async def start_early(subscriber: Subscriber, session: Session, *, soon: bool = False) -> None:
    """Start a worker for the prompt that is likely to follow, `soon` or at once."""
    early = subscriber.sessions.early
    if early is not None and not subscriber.traits.keeps_spares:
        (early.begin_soon if soon else early.begin)(session)


async def end_line(session: Session, subscription: Subscription) -> None:
    """End the text of a turn that the client did not ask for, and whose end it does not see."""
    await session.idle()
    await subscription.reached(session.last_seq)
    if subscription.alive and not session.busy:
        await subscription.end_line()


async def repeat_requests(subscriber: Subscriber, session_id: str) -> None:
    """Show once more what a client has not answered that may have lost its view of the session."""
    await asyncio.sleep(subscriber.traits.catch_up_pause)
    session = await subscriber.sessions.find(session_id)
    for ask_id in () if session is None else session.permissions.pending_ids:
        await subscriber.client.repeat_request(ask_id)


async def show_commands(subscriber: Subscriber, session: Session, session_id: str) -> None:
    """Show which slash commands there are, once the client takes them."""
    await asyncio.sleep(subscriber.traits.commands_pause)
    commands = await session.choosing.commands()
    if commands and subscriber.is_subscribed(session_id):
        await subscriber.client.offer(session_id, commands)
