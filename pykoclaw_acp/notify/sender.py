"""Gives notices to commands and webhooks, again and again until each was accepted or is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog

from pykoclaw_acp.model.notices import DueNotification, NoticeKind, NotificationOutcome
from pykoclaw_acp.notify import command, webhook
from pykoclaw_acp.notify.acceptance import NotAccepted
from pykoclaw_acp.notify.ports import NoticeStore
from pykoclaw_acp.notify.quiet import QuietHours
from pykoclaw_acp.notify.targets import CommandTarget, Webhook

FIRST_PAUSE: Final = 5.0  # s; doubled after each failure
LONGEST_PAUSE: Final = 3600.0  # s
GIVE_UP: Final = 24 * 3600.0  # s after the notice
AT_ONCE: Final = 4  # targets that are told at the same time

log: Final = structlog.get_logger()


class Sender:
    """`targets` by their names in the database; `secret` signs what webhooks get. What is due in
    quiet hours waits for their end.
    """

    def __init__(
        self,
        store: NoticeStore,
        targets: Mapping[str, CommandTarget | Webhook],
        secret: str | None,
        quiet: QuietHours | None = None,
    ) -> None:
        self._store = store
        self._quiet = quiet
        self._targets = targets
        self._secret = secret or ""
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
            found = await self._store.due(self._store.clock.now())
            if found:
                async with asyncio.TaskGroup() as sending:
                    for one in found:
                        sending.create_task(self._try(one), name="notify")
                continue
            following = await self._store.next_due()
            wait = None
            if following is not None:
                wait = max(following - self._store.clock.now(), 0) / 1000
            try:
                async with asyncio.timeout(wait):
                    await self._wanted.wait()
            except TimeoutError:
                continue

    async def _try(self, one: DueNotification) -> None:
        target = self._targets.get(one.target)
        if target is None:
            await self._store.note_outcome(one, NotificationOutcome.REMOVED)
            return
        question = one.kind == NoticeKind.QUESTION
        if question and not await self._store.is_pending(one.notice_id.removeprefix("question-")):
            await self._store.note_outcome(one, NotificationOutcome.OUTDATED)
            return
        try:
            async with self._room:
                if not await self._store.is_wanted(one.notice_id):
                    await self._store.note_outcome(one, NotificationOutcome.REMOVED)
                    return
                await self._tell(target, one)
        except NotAccepted as error:
            await self._failed(one, str(error))
            return
        await self._store.note_outcome(one, NotificationOutcome.ACCEPTED)
        log.info("Notice accepted", action="notice_accepted", notice=one.notice_id)

    async def _tell(self, target: CommandTarget | Webhook, one: DueNotification) -> None:
        body = one.body.encode()
        if isinstance(target, CommandTarget):
            await command.tell(target.arguments, body)
        else:
            await webhook.tell(target.url, self._secret, body, one.notice_id)

    async def _failed(self, one: DueNotification, reason: str) -> None:
        pause = min(FIRST_PAUSE * 2**one.attempts, LONGEST_PAUSE)
        given_up = one.age + pause > GIVE_UP
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
