"""Decides what people are told of, once they had the time to come back, and records it.

Hints say that a turn has ended or that nobody is there to answer; what counts is the journal, which
is looked at again `GRACE` later. A start looks for what an earlier daemon did not come to.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

import msgspec
import structlog

from pykoclaw_acp.model.notices import DeliveryTarget, Notice, NoticeKind
from pykoclaw_acp.model.turns import AWAY_GRACE
from pykoclaw_acp.notify import words
from pykoclaw_acp.notify.ports import NoticeStore
from pykoclaw_acp.notify.quiet import QuietHours
from pykoclaw_acp.notify.sender import Sender
from pykoclaw_acp.notify.targets import CommandTarget, Target, Webhook
from pykoclaw_acp.retries import passes

GRACE: Final = AWAY_GRACE + 1.0  # s; the away policy acts before
MARGIN: Final = 60_000  # ms; of what a next daemon looks at again
RETRY: Final = 30.0  # s after an error that nobody has foreseen

log: Final = structlog.get_logger()


class Teller:
    """`attended`: whether a client is there in this session, now."""

    def __init__(
        self,
        store: NoticeStore,
        targets: Sequence[Target],
        quiet: QuietHours | None,
        attended: Callable[[str], bool],
        *,
        secret: str | None = None,
        grace: float = GRACE,
    ) -> None:
        self._store = store
        self._deliveries = [one for one in targets if isinstance(one, DeliveryTarget)]
        asked = {one.key: one for one in targets if isinstance(one, CommandTarget | Webhook)}
        self._senders = {key: Sender(store, key, one, secret, quiet) for key, one in asked.items()}
        self._quiet = quiet
        self._attended = attended
        self._grace = grace
        self._turns: dict[str, float] = {}  # when each is looked at; s, of the loop
        self._requests: dict[str, float] = {}
        self._hint = asyncio.Event()

    def turn_ended(self, turn_id: str) -> None:
        """A turn has ended, in the journal."""
        self._turns[turn_id] = asyncio.get_running_loop().time() + self._grace
        self._hint.set()

    def request_waits(self, ask_id: str) -> None:
        """A permission request is pending, and nobody is there."""
        self._requests.setdefault(ask_id, asyncio.get_running_loop().time() + self._grace)
        self._hint.set()

    async def run(self) -> None:
        """Tell people, until cancelled."""
        turns, requests = await self._store.begin()
        for turn_id in turns:
            self.turn_ended(turn_id)
        for ask_id in requests:
            self.request_waits(ask_id)
        await self._store.remove_others(list(self._senders))
        async with asyncio.TaskGroup() as work:
            for sender in self._senders.values():
                work.create_task(self._again(sender.run), name="send notices")
            work.create_task(self._again(self._decide_all), name="decide on notices")

    async def _again(self, run: Callable[[], Awaitable[None]]) -> None:
        """Go on after an error that nobody has foreseen."""
        while True:
            try:
                await run()
            except Exception:
                log.exception("Notices are delayed", action="notices_delayed")
                await asyncio.sleep(RETRY)

    async def _decide_all(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._hint.clear()
            if (wait := self._wait(loop.time())) != 0:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait):
                        await self._hint.wait()
                continue
            await self._decide(loop.time())

    def _wait(self, now: float) -> float | None:
        """Seconds until something can be decided; None: until there is a hint."""
        due = [*self._turns.values(), *self._requests.values()]
        if not due:
            return None
        left = max(min(due) - now, 0.0)
        if left == 0 and self._quiet is not None:
            return self._quiet.pause()
        return left

    async def _decide(self, now: float) -> None:
        await self._decide_due(self._requests, now, self._decide_request)
        if await self._decide_due(self._turns, now, self._decide_turn) and not self._turns:
            await self._store.settle_until(self._store.clock.now() - MARGIN)

    async def _decide_due(
        self, waiting: dict[str, float], now: float, decide: Callable[[str], Awaitable[None]]
    ) -> int:
        """Decide on what is due; returns how many that were. What fails waits for its next try."""
        due = [one for one, at in waiting.items() if at <= now]
        for one in due:
            del waiting[one]
            try:
                await decide(one)
            except Exception as error:
                waiting.setdefault(one, now + RETRY)
                if passes(error):
                    raise  # the others would meet it, too; but not what is damaged
                log.exception("A notice is delayed", action="notices_delayed", about=one)
        return len(due)

    async def _decide_request(self, ask_id: str) -> None:
        found = await self._store.waiting_request(ask_id)
        if found is not None:
            await self._add(words.of_request(found))

    async def _decide_turn(self, turn_id: str) -> None:
        found = await self._store.ended_turn(turn_id)
        if found is None:
            return
        if self._attended(found.place.session_id):
            found = replace(found, watched=True)
        await self._add(words.of_turn(found))

    async def _add(self, notice: Notice | None) -> None:
        if notice is None:
            return
        body = msgspec.json.encode(words.body(notice)).decode()
        # A conversation has the answers to its own turns already.
        deliveries = [
            one
            for one in self._deliveries
            if notice.kind == NoticeKind.QUESTION
            or notice.unanswered
            or one.conversation != notice.place.conversation
        ]
        if await self._store.add(notice, body, list(self._senders), deliveries):
            log.info(
                "Notice recorded",
                action="notice_recorded",
                notice=notice.notice_id,
                session=notice.place.session_id,
                event_kind=str(notice.kind),
            )
            for sender in self._senders.values():
                sender.wake()
