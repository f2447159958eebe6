"""What a worker reports of itself outside of turns."""

from __future__ import annotations

from collections.abc import Callable

from pykoclaw_acp.model.events import Event
from pykoclaw_acp.worker.outbox import Outbox


class Reporting:
    """Tells the daemon through `note`, and knows what of it the daemon has."""

    def __init__(self, note: Callable[[Event], None], outbox: Outbox) -> None:
        self._note = note
        self._outbox = outbox
        self._last = 0  # number of the newest report

    def tell(self, event: Event) -> None:
        """Report an event outside of turns."""
        self._note(event)
        self._last = self._outbox.number()

    def underway(self) -> bool:
        """Whether the daemon has not committed a report yet."""
        return self._last > self._outbox.told[1]
