"""Trust requests whose directories the user trusts elsewhere while they wait: with a command, or in
another session.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import structlog

from pykoclaw_acp.errors import StoreClosed, StoreUnavailable
from pykoclaw_acp.model import trust
from pykoclaw_acp.sessions.permissions.broker import Broker
from pykoclaw_acp.sessions.ports import TrustStore

log: Final = structlog.get_logger()


class RequestHolder(Protocol):
    """A session, as far as its requests are concerned."""

    permissions: Broker


class TrustedElsewhere:
    """Settles the trust requests of all sessions that need no answer any more."""

    def __init__(self, live: Mapping[str, RequestHolder], store: TrustStore) -> None:
        self._live = live
        self._store = store

    async def settle(self) -> None:
        """Settle each pending request whose directories are trusted by now, with what it shows."""
        for session in list(self._live.values()):
            for request in session.permissions.trust_requests:
                try:
                    known = await self._store.trusted([one.path for one in request.workspaces])
                except StoreClosed:
                    return  # the next daemon asks again
                except StoreUnavailable:
                    log.exception("A trust request is still pending", action="trust_not_read")
                    return
                rows = [trust.grant(one, known) for one in request.workspaces]
                by = [row.by for row in rows if row is not None]
                if by and len(by) == len(rows):
                    session.permissions.trust(request.ask_id, by[-1])
