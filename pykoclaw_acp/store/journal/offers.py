"""What Claude offers in a directory, over `store/offers.py`."""

from __future__ import annotations

from pykoclaw_acp.model.choices import Offer
from pykoclaw_acp.store import offers
from pykoclaw_acp.store.journal.base import SqlStore


class SqlOfferStore(SqlStore):
    """Implements `sessions.ports.OfferStore`."""

    async def offer(self, cwd: str) -> Offer | None:
        """The directory's offer; else the models of the newest one anywhere."""
        found = await offers.of(self._database, cwd)
        if found is None and (other := await offers.newest(self._database)) is not None:
            return Offer(models=other.models)
        return found

    async def keep_offer(self, cwd: str, offer: Offer) -> None:
        """Replace the directory's offer."""
        await self._run(offers.keep(cwd, offer))
