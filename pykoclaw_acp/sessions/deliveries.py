"""Delivers what other programs send to conversations: into their sessions' logs, once, in order,
between turns.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Final

import structlog

from pykoclaw_acp.errors import Conflict, StoreClosed, StoreUnavailable, StoreUncertain
from pykoclaw_acp.model.deliveries import WaitingDeliveries
from pykoclaw_acp.model.turns import TurnState
from pykoclaw_acp.sessions.delivered_turns import DeliveredTurns, FoundTurns
from pykoclaw_acp.sessions.ports import DeliveryStore
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.tasks import Tasks

MOST_TRIES: Final = 3  # of a delivery that cannot be written for a reason of its own
PAUSE: Final = 0.5  # s before the next try
LONG_PAUSE: Final = 10.0  # s after what failed; no change cuts it short, as damage makes changes
MOST_AT_ONCE: Final = 8  # messages that are written
TOGETHER: Final = 100  # messages of a session whose transcripts are looked at together
LONGEST_HOLD: Final = 0.5  # s that a prompt waits for messages; those left come after its turn
REST: Final = 20  # times the duration of a look, until the next: many rows may wait for nobody
LONGEST_REST: Final = 30.0  # s
DELETED: Final = "The session of this conversation was deleted."
NOT_THERE: Final = "the session is being made, or deleted, which may fail"

log: Final = structlog.get_logger()


class Deliverer:
    """Empties the queue of deliveries for known conversations, as often as they are wanted.

    What is for a conversation that has no session waits until it has one.
    """

    def __init__(self, sessions: Sessions, store: DeliveryStore) -> None:
        self._sessions = sessions
        self._store = store
        self._wanted = sessions.deliveries_wanted
        self._tasks = Tasks()
        self._active: set[str] = set()  # sessions whose deliveries are being delivered
        self._resting: dict[str, float] = {}  # sessions that failed, and until when they are left
        self._room = asyncio.Semaphore(MOST_AT_ONCE)
        self._turns = DeliveredTurns(store)

    async def run(self) -> None:
        """Deliver until cancelled, or until the store is closed."""
        self._wanted.set()
        try:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                await asyncio.sleep(min(REST * await self._look(), LONGEST_REST))
        except StoreClosed:
            return
        finally:
            self._tasks.cancel()

    async def _look(self) -> float:
        """Begin with what waits; returns how long reading it took (s), without an outage before."""
        try:
            await self._store.writable()
            began = time.monotonic()
            waiting = await self._store.waiting()
            took = time.monotonic() - began
        except StoreClosed:
            raise
        except Exception as error:
            if isinstance(error, StoreUnavailable) and error.retryable:
                self._later(PAUSE)
                return 0.0
            log.exception("Deliveries could not be read", action="deliveries_unread")
            await asyncio.sleep(LONG_PAUSE)
            self._wanted.set()
            return 0.0
        now = asyncio.get_running_loop().time()
        self._resting = {one: until for one, until in self._resting.items() if until > now}
        for one in waiting:
            if one.session_id not in self._active and one.session_id not in self._resting:
                self._active.add(one.session_id)
                self._tasks.start(self._of_session(one), name="deliveries")
        return took

    def _later(self, pause: float) -> None:
        asyncio.get_running_loop().call_later(pause, self._wanted.set)

    def _rest(self, session_id: str) -> None:
        loop = asyncio.get_running_loop()
        self._resting[session_id] = until = loop.time() + LONG_PAUSE
        loop.call_at(until, self._wanted.set)

    async def _of_session(self, waiting: WaitingDeliveries) -> None:
        try:
            await self._deliver_all(waiting)
        except (StoreUnavailable, Conflict) as error:
            # A conflict: one was marked by another program, or the session is going or gone.
            log.info("Deliveries wait", action="deliveries_wait", reason=str(error))
            if isinstance(error, StoreUnavailable) and not error.retryable:
                self._rest(waiting.session_id)
            else:
                self._later(PAUSE)  # then the look waits until the store can be written
        except StoreClosed:
            pass
        except Exception:
            session = waiting.session_id
            log.exception("Deliveries failed", action="deliveries_failed", session=session)
            self._rest(session)
        else:
            self._wanted.set()  # what came meanwhile
        finally:
            self._active.discard(waiting.session_id)

    async def _deliver_all(self, waiting: WaitingDeliveries) -> None:
        async with self._room:
            session = await self._sessions.find(waiting.session_id)
        ids = waiting.delivery_ids
        if session is None:
            if not waiting.deleted:
                raise Conflict(NOT_THERE)
            for delivery_id in ids:
                async with self._room:  # for each: sessions that are held wait for it
                    await self._give_up(delivery_id, DELETED)
            return
        for at in range(0, len(ids), TOGETHER):
            some = deque(ids[at : at + TOGETHER])
            found = await self._turns.find(session, some)
            while some:
                await self._deliver_some(waiting.session_id, some, found)

    async def _deliver_some(self, session_id: str, ids: deque[str], found: FoundTurns) -> None:
        """Deliver the first of these, in order: between two turns, and while no prompt waits for long."""
        session, done = await self._sessions.find(session_id), True
        if session is None:
            raise Conflict(NOT_THERE)
        async with session.between_turns():
            until = time.monotonic() + LONGEST_HOLD
            await self._turns.find_later(session, found)
            while ids and (done := await self._deliver(session, ids[0], found)):
                ids.popleft()
                if time.monotonic() >= until and _prompt_waits(session):
                    break
            found.last_seq = session.last_seq
        await asyncio.sleep(0 if done else PAUSE)  # a prompt that waits begins, whatever is left

    async def _deliver(self, session: Session, delivery_id: str, found: FoundTurns) -> bool:
        """Deliver one; False if that is to be tried again."""
        try:
            async with self._room:
                delivery = await self._store.delivery(delivery_id)
                if delivery is None:
                    return True
                turn = await self._turns.standing_for(session, delivery, found)
                await session.receive(delivery, self._store, known=turn)
            if turn is not None:
                self._turns.use(session, turn)
        except (StoreUncertain, StoreClosed, Conflict):
            raise
        except Exception as error:
            if isinstance(error, StoreUnavailable):
                if error.retryable:
                    raise
                await self._store.writable()  # what it needs is damaged: that others can be stored
            reason = str(error) or type(error).__name__
            tries = await self._store.count_attempt(delivery_id, reason)
            log.exception(
                "A delivery could not be written",
                action="delivery_not_written",
                delivery=delivery_id,
                tries=tries,
            )
            if tries < MOST_TRIES:
                return False
            await self._give_up(delivery_id, reason)
        else:
            log.info(
                "Delivered", action="delivered", session=session.id, delivery=delivery_id,
                task=delivery.task_id,
            )  # fmt: skip
        return True

    async def _give_up(self, delivery_id: str, reason: str) -> None:
        await self._store.give_up(delivery_id, reason)
        log.error(
            "A delivery failed", action="delivery_failed", delivery=delivery_id, reason=reason
        )


def _prompt_waits(session: Session) -> bool:
    return any(turn.state == TurnState.QUEUED for turn in session.turns)
