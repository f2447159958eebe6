"""Take a session's worker for a prompt: one that was there before must show that it lives, one that
is launched for the prompt must become ready.
"""

from __future__ import annotations

import asyncio

from pykoclaw_acp.channel.frames import Ready
from pykoclaw_acp.pool.life import WorkerLife


async def claim(worker: WorkerLife) -> bool:
    """Protect the worker from eviction; False if it takes no prompt, and the next worker may.

    One that this daemon launches is claimed at once: why it never becomes ready is for the prompt.
    """
    if not worker.usable:
        return False
    worker.occupation.busy = True
    if worker.idle_timer is not None:
        worker.idle_timer.cancel()
    if not worker.ready.done():
        if not worker.adopted:
            return True
        await asyncio.wait([worker.ready])  # one that does not answer in time is killed
        if worker.ready.exception() is not None:
            return False
    return await worker.ping() and worker.usable


async def ready(worker: WorkerLife, timeout: float) -> Ready:
    """What a claimed worker says when it is ready; raises TimeoutError if it has not answered
    after `timeout` (s), WorkerFailed if it is gone.
    """
    while not worker.answers:
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(worker.ready)
        except TimeoutError:
            if worker.recorded and not worker.answers:
                raise
    return await asyncio.shield(worker.ready)
