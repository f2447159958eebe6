"""Clients of a session that is closed are shown its end, and let go of."""

from __future__ import annotations

import asyncio
import contextlib

from pykoclaw_acp.sessions.session import Session


async def detach(session: Session, patience: float) -> None:
    """End all subscriptions, with what they ask; each was shown everything, if that is possible within
    `patience` (s).
    """
    subscriptions = list(session.subscriptions)
    with contextlib.suppress(TimeoutError):
        reached = [subscription.reached(session.last_seq) for subscription in subscriptions]
        async with asyncio.timeout(patience):
            await asyncio.gather(*reached, return_exceptions=True)
    for subscription in subscriptions:
        if subscription in session.subscriptions:  # not replaced by a load meanwhile
            session.permissions.drop_client(subscription)
            subscription.close()
            subscription.client.stop_updates(subscription.session_id)
