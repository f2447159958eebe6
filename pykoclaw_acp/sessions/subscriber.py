"""A client as sessions know it, by whatever it is connected: subscriptions, places, prompts that it waits for."""

from __future__ import annotations

import asyncio

from pykoclaw_acp.model import client_traits
from pykoclaw_acp.model.cursors import Reader
from pykoclaw_acp.model.turns import Outcome, Turn
from pykoclaw_acp.sessions.ports import Client
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.subscription import Subscription


class Subscriber:
    """One client. Sessions have the ids that the client uses, of which several may lead to one session.

    `instance` is the process that the client is, `front` what it is connected through: a UUID.
    """

    def __init__(self, sessions: Sessions, client: Client, instance: str, front: str) -> None:
        self.sessions = sessions
        self.subscriptions: dict[str, Subscription] = {}
        self.loading: dict[str, int] = {}  # by session: the number of the request whose replay goes on
        self.client = client
        self._instance = instance
        self._front = front
        self._prompts: dict[int, tuple[Session, Turn]] = {}  # by number: those whose answer the client does not have
        self.introduce(client_traits.UNNAMED, client_traits.UNNAMED)

    def introduce(self, name: str, version: str) -> None:
        """The client has said who it is."""
        self.name = name
        self.traits = client_traits.find(name, version)
        self._reader = Reader(name, self._instance, self._front)

    def close(self) -> int:
        """The client is gone; its turns go on without it. Returns how many it waited for."""
        for subscription in list(self.subscriptions.values()):
            subscription.close()
        for session, turn in self._prompts.values():
            session.deduplication.lose_call(turn)
        left = len(self._prompts)
        self._prompts.clear()
        return left

    # --- subscriptions ------------------------------------------------------------------------------------------------

    def subscribe(
        self, session: Session, session_id: str, after: int, number: int = 0, hold: float = 0, *,
        seen: int | None = None,
    ) -> Subscription:  # fmt: skip
        """Show the client the session's log after `after`, and what follows; `number` and `hold` as in Subscription.

        `seen`: up to where the client was certainly shown it; None: up to `after`.
        """
        previous = self.subscriptions.pop(session_id, None)
        made = self.subscriptions[session_id] = session.subscribe(self.client, after, number, hold, session_id)
        made.reader = self._reader
        self.sessions.confirmations.note(session_id, self._reader, after if seen is None else seen)
        if previous is not None:
            made.own = session.still_queued(previous.own)
            previous.close()
        return made

    def is_subscribed(self, session_id: str) -> bool:
        """The client is shown what happens in the session, under this id."""
        subscription = self.subscriptions.get(session_id)
        return subscription is not None and subscription.alive

    def subscription(self, session: Session, session_id: str) -> Subscription:
        """The client's subscription, made if there is none.

        One that broke goes on; a client that prompts without a load is subscribed from here on.
        """
        known = self.subscriptions.get(session_id)
        if known is not None and known.alive:
            return known
        return self.subscribe(session, session_id, session.last_seq if known is None else known.cursor)

    def drop(self, session_id: str) -> None:
        """The session was closed."""
        self.subscriptions.pop(session_id, None)

    # --- places -------------------------------------------------------------------------------------------------------

    async def claim(self, session: Session, session_id: str, upto: int | None = None) -> int | None:
        """The place that this client has in the session under this id, or takes over; as in Confirmations."""
        there = [one for one in session.subscriptions if one.alive and one.session_id == session_id]
        others = {one.reader for one in there if one.reader is not None}
        return await self.sessions.confirmations.claim(session_id, session.last_seq, self._reader, others, upto)

    def confirm_updates(self, session_id: str, seq: int) -> None:
        """The client was shown the session's updates up to `seq`."""
        subscription = self.subscriptions.get(session_id)
        # A front may have been shown more than there is, if the database was restored from a copy meanwhile.
        if subscription is not None and seq <= subscription.last_seq:
            self.sessions.confirmations.note(session_id, self._reader, seq)

    # --- prompts ------------------------------------------------------------------------------------------------------

    def expect_answer(self, number: int, session: Session, turn: Turn) -> None:
        """The client's request with this number will be answered by the turn."""
        self._prompts[number] = (session, turn)

    async def outcome(self, turn: Turn, session_id: str) -> Outcome:
        """How the turn ended, once the client was sent everything of it."""
        outcome, told = await asyncio.shield(turn.ended)  # which others may wait for as well
        subscription = self.subscriptions.get(session_id)
        while subscription is not None:
            await subscription.reached(told)
            current = self.subscriptions.get(session_id, subscription)
            if current is subscription:
                break
            subscription = current  # a load meanwhile has put another one in its place
        return outcome

    def confirm_answer(self, number: int) -> bool:
        """The client has the answer to this request. False if no turn has given it."""
        session, turn = self._prompts.pop(number, (None, None))
        if session is None or turn is None:
            return False
        session.mark_answered(turn)
        return True

    def confirm_earlier_answer(self, request_key: str) -> None:
        """The client has an answer that an earlier daemon gave: if it was a turn's, the turn is over for it."""
        for session_id in self.subscriptions:
            self.sessions.mark_request_answered(session_id, request_key)
