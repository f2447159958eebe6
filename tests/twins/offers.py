"""The twin of `sessions.ports.OfferStore`."""

from __future__ import annotations

from pykoclaw_acp.model.choices import Configuration, Offer, elsewhere
from pykoclaw_acp.store.offers import KEPT
from tests.twins.base import MemoryStore


class MemoryOfferStore(MemoryStore):
    async def offer(self, cwd: str, configuration: Configuration) -> Offer | None:
        offers = self.database.read().offers
        if (cwd, configuration) in offers:
            return offers[cwd, configuration]
        made_under = [(one, offer) for (_, one), offer in reversed(offers.items())]
        alike = next((offer for one, offer in made_under if one == configuration), None)
        whose = configuration.models_of
        newest = next((offer for one, offer in made_under if one.models_of == whose), None)
        other = alike or newest
        return None if other is None else elsewhere(alike, other.models)

    async def keep_offer(self, cwd: str, offer: Offer, configuration: Configuration) -> None:
        def keep() -> None:
            self.database.offers.pop((cwd, configuration), None)
            self.database.offers[cwd, configuration] = offer
            for old in list(self.database.offers)[:-KEPT]:
                del self.database.offers[old]

        await self.database.write(keep)
