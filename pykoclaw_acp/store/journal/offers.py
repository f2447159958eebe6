"""What Claude offers in a directory, over `store/offers.py`."""

from __future__ import annotations

from pykoclaw_acp.model.choices import Offer, elsewhere
from pykoclaw_acp.store import offers
from pykoclaw_acp.store.database import Unit
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
        """Replace the directory's offer, which is the newest one now. What changes no answer of
        `offer` is not written: each worker that starts reports its offer.
        """
        if not await self._says_nothing_new(cwd, offer, configuration):
            statements = offers.keep(cwd, offer, configuration), offers.drop_old()
            await self._commit(Unit(statements))

    async def _says_nothing_new(self, cwd: str, offer: Offer, configuration: str) -> bool:
        """Whether the directory has this offer, and other directories learn the same from newer
        ones.
        """
        if await offers.of(self._database, cwd) != (offer, configuration):
            return False
        newest = await offers.newest(self._database)
        alike = await offers.newest(self._database, configuration)
        if newest is None or alike is None:  # an unreadable row
            return False
        everywhere = elsewhere(offer, offer.models)
        return newest.models == offer.models and elsewhere(alike, alike.models) == everywhere
