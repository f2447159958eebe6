"""The twin of `sessions.ports.OfferStore`."""

from __future__ import annotations

from pykoclaw_acp.model.choices import Offer
from tests.twins.base import MemoryStore


class MemoryOfferStore(MemoryStore):
    async def offer(self, cwd: str) -> Offer | None:
        offers = self.database.read().offers
        if cwd in offers or not offers:
            return offers.get(cwd)
        return Offer(models=list(offers.values())[-1].models)

    async def keep_offer(self, cwd: str, offer: Offer) -> None:
        def keep() -> None:
            self.database.offers.pop(cwd, None)
            self.database.offers[cwd] = offer

        await self.database.write(keep)
