"""What Claude offers in a directory, over `store/offers.py`."""

from __future__ import annotations

from pykoclaw_acp.model.choices import Offer, elsewhere
from pykoclaw_acp.store import offers
from pykoclaw_acp.store.journal.base import SqlStore


class SqlOfferStore(SqlStore):
    """Implements `sessions.ports.OfferStore`."""

    async def offer(self, cwd: str, configuration: str | None = None) -> Offer | None:
        """The directory's offer; else what of others holds here, too."""
        found, made_under = await offers.of(self._database, cwd)
        if found is not None and (configuration is None or made_under in (None, configuration)):
            return found
        alike = None
        if configuration is not None:
            alike = await offers.newest(self._database, configuration)
        other = found or alike or await offers.newest(self._database)
        return None if other is None else elsewhere(alike, other.models)

    async def keep_offer(self, cwd: str, offer: Offer, configuration: str = "") -> None:
        """Replace the directory's offer, which is the newest one now."""
        await self._run(offers.keep(cwd, offer, configuration))
