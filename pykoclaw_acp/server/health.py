"""Health checks of event loop, database writer and worker pool, for systemd's watchdog."""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

import structlog

from pykoclaw_acp.errors import RestartWanted
from pykoclaw_acp.system.systemd import Notifier

INTERVAL: Final = 15.0  # s; where nobody sets one
ANSWER_WAIT: Final = 12.0  # s; above the 10 s for which the writer waits for another process's lock

log: Final = structlog.get_logger()


class Part(Protocol):
    """A part of the daemon that can be checked."""

    async def probe(self) -> None:
        """Return when the part has responded; raises RestartWanted if it never will."""


async def watch(notifier: Notifier, database: Part, pool: Part) -> None:
    """Feed systemd's watchdog for the daemon's life; ends only by cancellation, or RestartWanted.

    RestartWanted is raised when a part has not answered for 12 s: a new daemon takes over the
    workers. A loop that is late is not fed for, and systemd kills what is late twice in a row;
    workers outlive that as well.
    """
    loop = asyncio.get_running_loop()
    pause = (
        notifier.watchdog_interval or INTERVAL
    ) / 2  # twice as often as systemd wants, so that one may be missed
    while True:
        due = loop.time() + pause
        await asyncio.sleep(pause)
        late = loop.time() - due
        await _answer("database", database)
        await _answer("worker pool", pool)
        if late > pause:
            log.warning("The event loop is late", action="loop_late", seconds=round(late, 3))
        else:
            notifier.watchdog()


async def _answer(name: str, part: Part) -> None:
    try:
        async with asyncio.timeout(ANSWER_WAIT):
            await part.probe()
    except TimeoutError:
        raise RestartWanted(
            f"The {name} has not answered for {ANSWER_WAIT:g} s. A restart is needed."
        ) from None
    except OSError as error:
        # It has answered; what the system refuses it, a new daemon would be refused as well.
        log.warning(
            "A part of the daemon has trouble", action="probe_failed", part=name, error=str(error)
        )
