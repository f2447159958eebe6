"""What Claude offers in a directory, in the database."""

from __future__ import annotations

from typing import Protocol

from pykoclaw_acp.model.choices import Configuration, Offer
from pykoclaw_acp.sessions.ports.store import Store


class OfferStore(Store, Protocol):
    """Models and slash commands, as the last worker of each directory and configuration reported."""

    async def offer(self, cwd: str, configuration: Configuration) -> Offer | None:
        """The directory's offer under this configuration.

        Where there is none: the newest offer under it, with those commands that it has for every
        directory; without one, the models of the newest offer to its account and service; None if
        there is none: what others may use says nothing of it.
        """

    async def keep_offer(self, cwd: str, offer: Offer, configuration: Configuration) -> None:
        """Replace the directory's offer under this configuration by this one, the newest."""
