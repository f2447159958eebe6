"""Waiting for all that a turn leads to, when it has ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from pykoclaw_acp.model.work import SETTLED, Work
from pykoclaw_acp.sessions.session import Session

LONGEST: Final = 3600.0  # s from the turn's end; from its request's return after a reconnect
ASKED: Final = 86_400.0  # s in which a person is asked, and which do not count
LOOK: Final = 0.2  # s between two looks
STOP: Final = 5.0  # s that subagents have to stop, once the worker has been told or does not answer


def goes_on(session: Session, work: Work) -> bool:
    """Whether something of it runs."""
    return session.background or not work.calls.isdisjoint(session.log.open_tools)


def is_waited_for(session: Session, work: Work) -> bool:
    """Whether something of it runs, or has ended of which Claude may still tell."""
    return work.beside or work.just_over or goes_on(session, work)


async def stop(session: Session, work: Work) -> None:
    """Stop the session's subagents, and wait until the log says so of those of this work."""
    await asyncio.wait([session.requests.stop_subagents()], timeout=STOP)
    left = STOP
    while left > 0 and not work.subagents.isdisjoint(session.log.open_tools):
        await asyncio.sleep(LOOK)
        left -= LOOK


async def over(
    session: Session,
    work: Work,
    find: Callable[[], Awaitable[Work]],
    stopped: asyncio.Event | None = None,
) -> tuple[Work, bool]:
    """Wait for the end of what a turn has led to: `work` until now, which `find` reads again; that, and
    whether it goes on though LONGEST is over, or `stopped` was set. Time in which a person is asked does not
    count, up to ASKED.
    """
    if not is_waited_for(session, work):
        return work, False
    left, asked, quiet = LONGEST, ASKED, 0.0
    ran = work.beside
    stopped = stopped or asyncio.Event()
    while left > 0:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK):
                await stopped.wait()
                return work, goes_on(session, work)
        if session.permissions.pending_ids and asked > 0:
            asked -= LOOK
        else:
            left -= LOOK
        going = goes_on(session, work)
        ran = ran or going
        # Claude may tell of it when the turn of others has ended.
        quiet = 0.0 if going or (ran and session.busy) else quiet + LOOK
        if quiet >= SETTLED:
            work, quiet = await find(), 0.0
            if not goes_on(session, work):
                return work, False
    work = await find()
    return work, goes_on(session, work)
