"""A client of sessions, independent of its connection: subscriptions, positions,
awaited prompts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from pykoclaw_acp.model import client_traits
from pykoclaw_acp.model.cursors import Reader
from pykoclaw_acp.model.session_environment import ClientEnvironment
from pykoclaw_acp.model.turns import Outcome, Turn
from pykoclaw_acp.sessions import closing
from pykoclaw_acp.sessions.live_pace import LivePace
from pykoclaw_acp.sessions.ports import Client
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.subscription import Subscription
from pykoclaw_acp.tasks import Tasks


class Subscriber:
    """One client. Session ids are those the client uses; several may be aliases of one session.

    `client_process` identifies the client's process, `front` (UUID) the front it is connected through.
    """

    def __init__(self, sessions: Sessions, client: Client, client_process: str, front: str) -> None:
        self.sessions = sessions
        self.subscriptions: dict[str, Subscription] = {}
        self.loading: dict[str, int] = {}  # request number of a running replay, by session
        self._leaving = Tasks()  # which let go of it where sessions were closed before it came back
        self.client = client
        self.superseded = False
        """Whether its front speaks through a newer connection."""
        self.client_process = client_process
        self._front = front
        self._given: ClientEnvironment | None = None
        self.pace = LivePace()
        self.lives: dict[str, bool] = {}
        """Whether its process had a place in a session that it is opening."""
        self._prompts: dict[int, tuple[Session, Turn]] = {}  # unanswered prompts, by request number
        self._expected: set[str] = set()  # turns whose prompts its front sends again
        self.introduce(client_traits.UNNAMED, client_traits.UNNAMED)

    def introduce(self, name: str, version: str) -> None:
        """Set the client's name and traits."""
        self.name = name
        self.traits = client_traits.find(name, version)
        self._reader = Reader(name, self.client_process, self._front)

    @property
    def given(self) -> ClientEnvironment | None:
        """What the client gives to the sessions that it opens; None: nothing of its own."""
        return self._given

    @given.setter
    def given(self, given: ClientEnvironment | None) -> None:
        self._given = given
        for subscription in self.subscriptions.values():
            subscription.given = given

    def close(self) -> int:
        """Drop the client; its turns continue. Returns the number of prompts it waited for."""
        self.sessions.fronts.leave(self._front, self)
        self._leaving.cancel()
        for subscription in list(self.subscriptions.values()):
            subscription.close()
        self.subscriptions.clear()
        for session, turn in self._prompts.values():
            session.deduplication.lose_call(turn)
        left = len(self._prompts)
        self._prompts.clear()
        return left

    # --- subscriptions

    def subscribe(
        self, session: Session, session_id: str, after: int, number: int = 0, hold: float = 0, *,
        seen: int | None = None, opens: bool = False,
    ) -> Subscription:  # fmt: skip
        """Subscribe the client to the session's log after `after`; `number` and `hold` as in
        Subscription.

        `seen`: position the client has certainly seen; None: `after`. `opens`: it has opened the
        session, which others may have closed for themselves since.
        """
        previous = self.subscriptions.pop(session_id, None)
        made = self.subscriptions[session_id] = session.subscribe(
            self.client, after, number, hold, session_id
        )
        made.reader = self._reader
        made.given = self._given
        made.pace = self.pace
        stays = opens and session.closed_for.isdisjoint({None, self.client})
        made.leaves = session.record.closed and not stays
        self.sessions.confirmations.note(session_id, self._reader, after if seen is None else seen)
        if previous is not None:
            made.own = session.untold(previous.own)
            previous.close()
        return made

    def is_subscribed(self, session_id: str) -> bool:
        """Whether the client has a subscription under this id."""
        subscription = self.subscriptions.get(session_id)
        return subscription is not None and subscription.alive

    def subscription(self, session: Session, session_id: str) -> Subscription:
        """Return the client's subscription, or make one from the log's end on; a broken one continues."""
        known = self.subscriptions.get(session_id)
        if known is not None and known.alive:
            return known
        start = session.last_seq if known is None else known.cursor
        return self.subscribe(session, session_id, start)

    async def opened(self, session_id: str) -> Session:
        """The session, which is opened again if another client has closed it and this one has not.
        Raises what `Sessions.get_open` and `Sessions.reopen` do.
        """
        known = self.subscriptions.get(session_id)
        if known is not None and known.alive and not known.leaves:
            session = await self.sessions.get(session_id)
            record, servers = session.record, session.options.mcp_servers
            if record.closed and record.cwd is not None:
                added = record.additional_directories
                await self.sessions.reopen(session, record.cwd, added, servers, given=self.given)
        return await self.sessions.get_open(session_id)

    def give_up_replay(
        self, session: Session, session_id: str, replay: Subscription, before: Subscription | None
    ) -> None:
        """End a replay that stays incomplete: the client goes on where it was `before`, or follows
        the session no longer.
        """
        replay.close()
        if self.subscriptions.get(session_id) is not replay:
            return  # the client is gone, or the session was closed
        if before is None or before is replay:
            self.client.stop_updates(session_id)
            return
        made = self.subscribe(session, session_id, before.cursor, seen=0, opens=True)
        made.own = before.own | replay.own

    def require_current(self) -> None:
        """Raises ConnectionError if its front speaks through a newer connection: what it asks for
        has come again there.
        """
        if self.superseded:
            raise ConnectionError("The front speaks through a newer connection.")

    def note_life(self, session_id: str) -> None:
        """The client has sent something about this session: somebody may be there."""
        if (subscription := self.subscriptions.get(session_id)) is not None:
            subscription.noticed.set()

    def certain(self, session: Session, known: Subscription) -> int:
        """Up to where the client has certainly taken what it was sent of a session that it resumes:
        one that suspends sessions takes all while it waits for an answer in this one.
        """
        waits = any(one is session for one, _ in self._prompts.values())
        return known.cursor if waits or not self.traits.suspends else known.certain

    def stay(self, session_id: str) -> None:
        """The client opens the session: a close that came before takes its subscription no more."""
        if (subscription := self.subscriptions.get(session_id)) is not None:
            subscription.leaves = False

    def leave_at_end(self, session: Session, one: Subscription) -> None:
        """Let go of the client once it was shown what is left in a closed session; while recovery waits,
        the next daemon does, which knows what that is.
        """
        if not self.sessions.awaits_recovery:
            self._leaving.start(closing.let_go_at_end(session, one), name="let go")

    def drop(self, session_id: str) -> None:
        """Drop the subscription of a closed session."""
        self.subscriptions.pop(session_id, None)

    # --- places

    async def claim(self, session: Session, session_id: str, upto: int | None = None) -> int | None:
        """Position at which this client, which opens the session, continues; None for one without a
        name.
        """
        there = [one for one in session.subscriptions if one.alive and one.session_id == session_id]
        others = {one.reader for one in there if one.reader is not None}
        confirmations = self.sessions.confirmations
        start = await confirmations.claim(session_id, session.last_seq, self._reader, others, upto)
        if start is not None and upto is None:  # its own now, also if it is given up on the way
            confirmations.note(session_id, self._reader, start)
        return start

    async def is_known(self, session_id: str) -> bool:
        """Whether this client's process has a place in the session."""
        return await self.sessions.confirmations.knows(session_id, self._reader)

    def claim_prompts(self, session: Session) -> None:
        """Let prompts run that wait for this client, which loads or resumes the session: its own, and
        those of processes of its name that have ended.
        """
        confirmations = self.sessions.confirmations
        readers = [one.reader for one in session.subscriptions if one.alive]
        here = {one.client_process for one in readers if one is not None}

        def is_author(one: str | None) -> bool:
            return one is None or one == self.client_process or not confirmations.lives(one, here)

        session.unclaimed.claim_for(self.name, is_author)

    async def claim_prompts_again(self, session: Session, session_id: str) -> None:
        """Let prompts run that wait for this client, which comes back to the session: those of its
        process, or of those in whose place it has come, without those that its front sends again.
        """
        if session.unclaimed:
            confirmations = self.sessions.confirmations
            authors = await confirmations.predecessors(session_id, self._reader)
            session.unclaimed.claim_for(self.name, lambda one: one in authors, self._front)

    def confirm_updates(self, session_id: str, seq: int) -> None:
        """Note that the client has the updates up to `seq`."""
        subscription = self.subscriptions.get(session_id)
        # Beyond the log's end if the database was restored from a backup.
        if subscription is not None and seq <= subscription.last_seq:
            self.sessions.confirmations.note(session_id, self._reader, seq)

    # --- prompts

    def expect_prompts(self, turns: Iterable[str]) -> None:
        """Note that the prompts of these turns, which are unanswered, come again."""
        self._expected.update(turns)

    def expect_answer(self, number: int, session: Session, turn: Turn) -> None:
        """Note that the turn answers the request with this number."""
        self._prompts[number] = (session, turn)
        self._expected.discard(turn.turn_id)

    def awaits(self, turn_id: str | None) -> bool:
        """Whether the client waits for the answer of this turn."""
        return turn_id in self._expected or any(
            turn.turn_id == turn_id for _, turn in self._prompts.values()
        )

    def helps_itself(self, turn_id: str | None) -> bool:
        """Whether the client takes all words of this turn as the answer to a prompt of its own."""
        return any(turn.turn_id == turn_id and turn.helper for _, turn in self._prompts.values())

    async def outcome(self, turn: Turn, session_id: str) -> Outcome:
        """Wait for the turn's outcome, and until the client was sent all its updates."""
        outcome, told = await asyncio.shield(turn.ended)  # shared with other waiters
        await self.sent(session_id, told)
        return outcome

    async def sent(self, session_id: str, seq: int) -> None:
        """Wait until the client was sent all of a session up to `seq`."""
        subscription = self.subscriptions.get(session_id)
        while subscription is not None:
            await subscription.reached(max(seq, subscription.owed))
            current = self.subscriptions.get(session_id, subscription)
            if current is subscription:
                break
            subscription = current  # replaced by a load meanwhile

    def confirm_answer(self, number: int) -> bool:
        """Note that the client has the response; False if no turn gave it."""
        session, turn = self._prompts.pop(number, (None, None))
        if session is None or turn is None:
            return False
        session.mark_answered(turn)
        for one in session.subscriptions:
            if one.client is self.client:
                one.certain = one.cursor
        return True

    def confirm_earlier_answer(self, request_key: str) -> None:
        """Note that the client has a response that an earlier daemon gave."""
        for session_id in self.subscriptions:
            self.sessions.mark_request_answered(session_id, request_key)
