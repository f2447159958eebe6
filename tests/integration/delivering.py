"""Deliveries of other programs to sessions on workers in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pykoclaw_acp.sessions.deliveries import Deliverer
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.store.changes import Changes
from pykoclaw_acp.store.journal.deliveries import SqlDeliveryStore
from tests.integration.rig import Client, Rig


@asynccontextmanager
async def delivering(r: Rig) -> AsyncIterator[None]:
    """A deliverer at work, and what tells it of changes."""
    changes = Changes(r.database.path)
    changes.tell(r.sessions.deliveries_wanted)
    deliverer = Deliverer(r.sessions, SqlDeliveryStore(r.database))
    running = [asyncio.create_task(changes.run()), asyncio.create_task(deliverer.run())]
    try:
        yield
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def attached(r: Rig) -> tuple[Session, Client]:
    session, client = await r.session(), Client()
    session.subscribe(client, 0)
    return session, client


def name(session: Session) -> str:
    return session.record.conversation_name
