"""What Claude offers in a directory, over `store/offers.py`."""

from __future__ import annotations

from pykoclaw_acp.model.choices import Configuration, Offer, elsewhere
from pykoclaw_acp.store import offers
from pykoclaw_acp.store.database import Unit
from pykoclaw_acp.store.journal.base import SqlStore


class SqlOfferStore(SqlStore):
    """Implements `sessions.ports.OfferStore`."""

    async def offer(self, cwd: str, configuration: Configuration) -> Offer | None:
        """The directory's offer; else what of the account's others holds here, too."""
        found = await offers.of(self._database, cwd, configuration)
        if found is not None:
            return found
        alike = await offers.newest(self._database, configuration)
        other = alike or await offers.newest_alike(self._database, configuration)
        return None if other is None else elsewhere(alike, other.models)

    async def keep_offer(self, cwd: str, offer: Offer, configuration: Configuration) -> None:
        """Replace the directory's offer, which is the newest one now. What changes no answer of
        `offer` is not written: each worker that starts reports its offer.
        """
        if not await self._says_nothing_new(cwd, offer, configuration):
            statements = offers.keep(cwd, offer, configuration), offers.drop_old()
            await self._commit(Unit(statements))

    async def _says_nothing_new(self, cwd: str, offer: Offer, configuration: Configuration) -> bool:
        """Whether the directory has this offer, and other directories learn the same from newer
        ones.
        """
        if await offers.of(self._database, cwd, configuration) != offer:
            return False
        newest = await offers.newest_alike(self._database, configuration)
        alike = await offers.newest(self._database, configuration)
        if newest is None or alike is None:  # an unreadable row
            return False
        everywhere = elsewhere(offer, offer.models)
        return newest.models == offer.models and elsewhere(alike, alike.models) == everywhere
