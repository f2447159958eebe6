"""Gives notices to a command or webhook, again and again until each was accepted or is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

import structlog

from pykoclaw_acp.model.notices import DueNotification, NoticeKind, NotificationOutcome
from pykoclaw_acp.notify import command, webhook
from pykoclaw_acp.notify.acceptance import NotAccepted
from pykoclaw_acp.notify.ports import NoticeStore
from pykoclaw_acp.notify.quiet import QuietHours
from pykoclaw_acp.notify.targets import CommandTarget, Webhook

FIRST_PAUSE: Final = 5.0  # s; doubled after each failure
MOST_DOUBLED: Final = 10  # times; then it is longer than the longest
LONGEST_PAUSE: Final = 3600.0  # s
GIVE_UP: Final = 24 * 3600.0  # s after the notice, unless that is a question that waits
TOO_OLD: Final = "nobody could be told of it for a day"
AT_ONCE: Final = 4  # notices that a target is told at the same time

log: Final = structlog.get_logger()


class Sender:
    """Tells one target, so that none waits for another; `key` is its name in the database, `secret`
    signs what webhooks get. What is due in quiet hours waits for their end.
    """

    def __init__(
        self,
        store: NoticeStore,
        key: str,
        target: CommandTarget | Webhook,
        secret: str | None,
        quiet: QuietHours | None = None,
    ) -> None:
        self._store = store
        self._key = key
        self._target = target
        self._secret = secret or ""
        self._quiet = quiet
        self._wanted = asyncio.Event()
        self._room = asyncio.Semaphore(AT_ONCE)

    def wake(self) -> None:
        """There is a new notice."""
        self._wanted.set()

    async def run(self) -> None:
        """Send what is due, until cancelled."""
        while True:
            self._wanted.clear()
            if self._quiet is not None and (pause := self._quiet.pause()):
                await asyncio.sleep(pause)
                continue
            found = await self._store.due(self._key, self._store.clock.now())
            if found:
                await self._try_all(found)
                continue
            following = await self._store.next_due(self._key)
            wait = None
            if following is not None:
                wait = max(following - self._store.clock.now(), 0) / 1000
            try:
                async with asyncio.timeout(wait):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    async def _try_all(self, found: Sequence[DueNotification]) -> None:
        """Try each to its end: an error at one may not interrupt others, which were told then."""
        tries = (self._try(one) for one in found)
        for error in await asyncio.gather(*tries, return_exceptions=True):
            if error is not None:
                raise error

    async def _try(self, one: DueNotification) -> None:
        question = one.kind == NoticeKind.QUESTION
        if question and not await self._store.is_pending(one.notice_id.removeprefix("question-")):
            await self._store.note_outcome(one, NotificationOutcome.OUTDATED)
            return
        if not question and one.age > GIVE_UP:  # no daemon ran meanwhile, or notices were off
            await self._failed(one, TOO_OLD)
            return
        try:
            async with self._room:
                if not await self._store.is_wanted(one.notice_id):
                    await self._store.note_outcome(one, NotificationOutcome.REMOVED)
                    return
                await self._tell(one)
        except NotAccepted as error:
            await self._failed(one, str(error))
            return
        await self._store.note_outcome(one, NotificationOutcome.ACCEPTED)
        log.info("Notice accepted", action="notice_accepted", notice=one.notice_id)

    async def _tell(self, one: DueNotification) -> None:
        body, target = one.body.encode(), self._target
        try:
            if isinstance(target, CommandTarget):
                await command.tell(target.arguments, body)
            else:
                await webhook.tell(target.url, self._secret, body, one.notice_id)
        except (OSError, RuntimeError) as error:  # no descriptor, or no thread, is left
            raise NotAccepted(f"it could not be told: {error}") from error

    async def _failed(self, one: DueNotification, reason: str) -> None:
        pause = min(FIRST_PAUSE * 2 ** min(one.attempts, MOST_DOUBLED), LONGEST_PAUSE)
        given_up = one.kind != NoticeKind.QUESTION and one.age + pause > GIVE_UP
        log.warning(
            "A notice was not accepted" + (", and is given up" if given_up else ""),
            action="notice_given_up" if given_up else "notice_refused",
            notice=one.notice_id,
            target=one.target,
            attempts=one.attempts + 1,
            reason=reason,
        )
        if given_up:
            await self._store.note_outcome(one, NotificationOutcome.GIVEN_UP, reason)
        else:
            again = self._store.clock.now() + round(pause * 1000)
            await self._store.note_failure(one, reason, again)
