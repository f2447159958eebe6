"""Which of a session's clients are asked its pending permission requests, from when until when."""

from __future__ import annotations

import asyncio

from pykoclaw_acp.model.permissions import Decision, PermissionRequest, StoredRequest
from pykoclaw_acp.sessions.permissions import audience, decisions, interview
from pykoclaw_acp.sessions.permissions.away import Away
from pykoclaw_acp.sessions.permissions.pending import PendingRequest
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.sessions.subscription import Subscription


class Asking:
    """Asks the clients of one session.

    A client is asked one at a time, since Mitto refuses the first request when a second comes, or
    several if it is known to show them together. A client that does not choose leaves the request
    to the others; if none is left, that settles it, unless its user was not there. `away` acts
    while no client is there.
    """

    def __init__(self, state: SessionState, away: Away) -> None:
        self._state = state
        self._away = away

    def still_offered(self, request: PermissionRequest) -> PermissionRequest:
        """The request as the session may ask it now."""
        return decisions.still_offered(request, self._state.record.options)

    def ask_all(self, one: PendingRequest, row: StoredRequest | None = None) -> None:
        """Ask the clients that are there; if there are none, start the away clock, of `row` if it
        was restored.
        """
        for subscription in self._state.subscriptions:
            if audience.can_ask(self._state.subscriptions, subscription, one.request):
                self._ask(one, subscription)
        if not self._away.is_attended(one):
            self._away.start(one, row)

    def add_client(self, one: PendingRequest, subscription: Subscription) -> None:
        """Ask a client that came, and stop the away clock; a form that it cannot show does not wait
        long for another one.
        """
        if not audience.can_ask(self._state.subscriptions, subscription, one.request):
            self._away.hasten_unsupported(one)
            return
        if self._away.is_attended(one):
            self._away.stop(one)
        self._ask(one, subscription)

    def drop_client(self, one: PendingRequest, subscription: Subscription) -> None:
        """Withdraw from a client what stays pending, when its subscription ends."""
        if subscription in one.asking and not one.decision.done():
            one.asking.pop(subscription).cancel()
            subscription.client.close_request(one.request.ask_id)

    def close(self, one: PendingRequest, decision: Decision | None) -> None:
        """Tell the clients that the request is settled, and how; None: withdrawn."""
        for asking in one.asking.values():
            asking.cancel()
        asked = [*self._state.subscriptions, *one.asking]
        for client in dict.fromkeys(subscription.client for subscription in asked):
            client.close_request(one.request.ask_id, decision)

    def _ask(self, one: PendingRequest, subscription: Subscription) -> None:
        asking = self._ask_client(one, subscription)
        one.asking[subscription] = asyncio.get_running_loop().create_task(asking, name="ask-client")

    async def _ask_client(self, one: PendingRequest, subscription: Subscription) -> None:
        await interview.ask(one, self.still_offered(one.request), subscription, self._away)
        if not one.decision.done():
            one.asking.pop(subscription, None)
