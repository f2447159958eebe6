"""The twin of `sessions.ports.OfferStore`."""

from __future__ import annotations

from pykoclaw_acp.model.choices import Offer, elsewhere
from pykoclaw_acp.store.offers import KEPT
from tests.twins.base import MemoryStore


class MemoryOfferStore(MemoryStore):
    async def offer(self, cwd: str, configuration: str | None = None) -> Offer | None:
        offers = self.database.read().offers
        found, made_under = offers.get(cwd, (None, None))
        if not offers or (found is not None and configuration in (None, made_under)):
            return found
        alike = [offer for offer, name in offers.values() if name == configuration]
        newest = found or (alike or [offer for offer, _ in offers.values()])[-1]
        return elsewhere(alike[-1] if alike else None, newest.models)

    async def keep_offer(self, cwd: str, offer: Offer, configuration: str = "") -> None:
        def keep() -> None:
            self.database.offers.pop(cwd, None)
            self.database.offers[cwd] = offer, configuration
            for old in list(self.database.offers)[:-KEPT]:
                del self.database.offers[old]

        await self.database.write(keep)
