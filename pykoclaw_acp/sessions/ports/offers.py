"""What Claude offers in a directory, in the database."""

from __future__ import annotations

from typing import Protocol

from pykoclaw_acp.model.choices import Offer
from pykoclaw_acp.sessions.ports.store import Store


class OfferStore(Store, Protocol):
    """Models and slash commands, as the last worker in each directory reported them."""

    async def offer(self, cwd: str) -> Offer | None:
        """The directory's offer; else the models of the newest one anywhere; None if no worker ever
        ran.
        """

    async def keep_offer(self, cwd: str, offer: Offer) -> None:
        """Replace the directory's offer."""
