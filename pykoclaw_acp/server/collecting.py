"""When Python looks for reference cycles among all objects. That holds the event loop for 0.1 s with
1,000 open sessions, so it waits until nothing happens.
"""

from __future__ import annotations

import asyncio
import gc
from typing import Final

from pykoclaw_acp.server.lag import LoopLag

LOOK: Final = 10.0  # s between two looks whether nothing happens
STILL: Final = 0.1  # s in which the loop does nothing else
WORTH: Final = 10  # collections of younger objects, some 70,000 objects, that make one worth it
MOST: Final = 100  # of them, after which it does not wait
_OWN: Final = 2  # rounds of the loop for a sleep


async def run(lag: LoopLag) -> None:
    """Make the full collections of this process until cancelled."""
    before = gc.get_threshold()
    gc.set_threshold(*before[:2], MOST)
    try:
        while True:
            await asyncio.sleep(LOOK)
            if gc.get_count()[2] > WORTH and await _is_still(lag):
                gc.collect()
    finally:
        gc.set_threshold(*before)


async def _is_still(lag: LoopLag) -> bool:
    rounds = lag.rounds
    await asyncio.sleep(STILL)
    return lag.rounds - rounds <= _OWN
