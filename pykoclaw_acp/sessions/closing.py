"""Closing a session, whose turns and worker end, and whose clients are shown that, and let go of if
it is closed for them, too; and opening it again.

Another client may do so during the close: what begins then goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace
from typing import Final
from uuid import uuid4

from pykoclaw_acp.errors import Conflict, SessionNotFound, StoreClosed, StoreUnavailable
from pykoclaw_acp.model import client_traits, notes
from pykoclaw_acp.model.events import MOVED, note_event
from pykoclaw_acp.sessions import directories
from pykoclaw_acp.sessions.ports import Client, SessionStore, Workers
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.subscription import Subscription

CUT_SHORT: Final = (
    "The session was deleted, or closed, before all of it was sent: what came is only a part of it."
)


async def close(
    session: Session,
    store: SessionStore,
    workers: Workers,
    patience: float,
    by: Client | None = None,
) -> None:
    """Close the session under all its ids. Clients are let go of once they were shown everything, if
    that is possible within `patience` (s). If it is closed `by` one of them, other clients with a
    place in it keep it open: they are told, and what they ask of it opens it again.
    """
    async with session.intake.lock:
        was = session.record.closed
        session.record.closed = True  # before the commit: a load that comes now is committed later
        try:
            await store.mark_closed(session.id)
        except BaseException:
            session.record.closed = session.record.closed and was
            raise
        session.closed_for.add(by)
        for one in session.subscriptions:
            one.leaves |= by is None or one.client is by or one.reader is None
        session.early.suspend()
    await stop(session, workers, by="" if by is None else by.name)
    with contextlib.suppress(StoreUnavailable, StoreClosed):
        await session.limit_wait.stop()  # a turn's end may have been committed after the close
    with contextlib.suppress(TimeoutError):
        leaving = [one for one in session.subscriptions if one.leaves]
        reached = [one.reached(session.last_seq) for one in leaving]
        async with asyncio.timeout(patience):
            await asyncio.gather(*reached, return_exceptions=True)
    let_go(session)
    others = any(one.reader is not None for one in session.subscriptions)
    if by is not None and session.record.closed and others and not was:
        with contextlib.suppress(StoreUnavailable, StoreClosed, Conflict):
            place = client_traits.place(by.name)
            await session.log.tell(notes.closed(f"closed-{uuid4()}", place))


async def reopen(session: Session, store: SessionStore, moved_from: str | None = None) -> None:
    """Note here and in the database that the session is open, in the order in which closes and this
    come, and with it in its log that its directory is another one than before; raises
    SessionNotFound if it is being deleted.
    """
    if session.intake.ends:
        raise SessionNotFound(session.id)
    session.record.closed = False
    session.closed_for.clear()
    said = []
    if moved_from is not None:
        words = directories.moved(moved_from, session.record.cwd or "")
        said = [note_event(f"{MOVED}{uuid4()}", words)]
    seqs = await store.reopen(replace(session.record), said)
    session.log.committed(seqs, None, said)
    if session.record.closed:  # the close may have been committed first, if the store had trouble
        await store.mark_closed(session.id)


async def stop(session: Session, workers: Workers, by: str = "") -> None:
    """End the turns of this moment as cancelled, `by` a client, and the worker. A turn that comes
    meanwhile has the next worker.
    """
    with session.hold():
        turns = session.turns
        session.cancel(by=by)
        for turn in turns:
            await turn.over()
        await workers.stop(session.id)


def let_go(session: Session, *, every: bool = False) -> None:
    """End the subscriptions, with what they ask, of clients that have not opened the session since
    it was closed; or of `every` one. Those of prompts that came during the close follow their turns.
    """
    for one in [one for one in session.subscriptions if every or one.leaves]:
        _let_go(session, one)


async def let_go_at_end(session: Session, one: Subscription) -> None:
    """Let go of a client that has come back to a closed session, once it was shown what its turns
    of this moment have left, unless it opens the session.
    """
    for turn in session.turns:
        await turn.over()
    await session.background_over()
    with contextlib.suppress(ConnectionError):
        await one.reached(session.last_seq)
    if one.leaves and one in session.subscriptions:
        _let_go(session, one)


def _let_go(session: Session, one: Subscription) -> None:
    session.permissions.drop_client(one)
    one.close()
    one.client.stop_updates(one.session_id)
