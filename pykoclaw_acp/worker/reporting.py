"""What a worker reports of itself outside of turns."""

from __future__ import annotations

from pykoclaw_acp.channel.frames import EventFrame
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.worker.outbox import Outbox


class Reporting:
    """Tells the daemon, and knows what of it the daemon has."""

    def __init__(self, epoch: int, outbox: Outbox) -> None:
        self._epoch = epoch
        self._outbox = outbox
        self._last = 0  # number of the newest report

    def tell(self, event: Event) -> None:
        """Report an event outside of turns."""
        self._outbox.put(EventFrame(epoch=self._epoch, turn_id=None, event=event))
        self._last = self._outbox.number()

    def underway(self) -> bool:
        """Whether the daemon has not committed a report yet."""
        return self._last > self._outbox.told[1]
