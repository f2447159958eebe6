"""What Claude offers in a directory, in the database."""

from __future__ import annotations

from typing import Protocol

from pykoclaw_acp.model.choices import Offer
from pykoclaw_acp.sessions.ports.store import Store


class OfferStore(Store, Protocol):
    """Models and slash commands, as the last worker in each directory reported them."""

    async def offer(self, cwd: str, configuration: str | None = None) -> Offer | None:
        """The directory's offer; None if no worker ever ran.

        Where none ran under this configuration: the newest offer under it, with those commands that
        it has for every directory; without one, the models of the newest offer anywhere. Without a
        configuration the commands do not matter.
        """

    async def keep_offer(self, cwd: str, offer: Offer, configuration: str = "") -> None:
        """Replace the directory's offer by the newest one, made under this configuration."""
