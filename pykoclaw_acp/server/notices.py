"""Notices, wired: people are told while nobody is there, if `PYKOCLAW_NOTIFY` says who."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.hinting_journal import HintingJournal
from pykoclaw_acp.store.journal.notices import SqlNoticeStore

RETRY: Final = 30.0  # s
DAY: Final = 24 * 3600.0  # s

log: Final = structlog.get_logger()


async def run(
    settings: Settings, database: Database, journal: HintingJournal, sessions: Sessions
) -> None:
    """Tell people, until cancelled; or note that nobody is to be told."""
    while True:
        try:
            await database.condition.writable()
            await _run(settings, SqlNoticeStore(database), journal, sessions)
            return
        except Exception:
            log.exception("Notices are delayed", action="notices_delayed")
            await asyncio.sleep(RETRY)


async def forget(database: Database) -> None:
    """Delete old notices, now and once a day, also if nobody is told any more; until cancelled."""
    store = SqlNoticeStore(database)
    while True:
        try:
            await database.condition.writable()
            await store.forget_old()
        except Exception:
            log.exception("Old notices are deleted later", action="notices_kept")
        await asyncio.sleep(DAY)


async def _run(
    settings: Settings, store: SqlNoticeStore, journal: HintingJournal, sessions: Sessions
) -> None:
    if settings.notify is None:
        await store.switch_off()
        return
    # Not at the top: a daemon that tells nobody does not need them.
    from pykoclaw_acp.notify import targets
    from pykoclaw_acp.notify.quiet import QuietHours
    from pykoclaw_acp.notify.teller import Teller

    def attended(session_id: str) -> bool:
        return any(
            one.alive and one.client.present
            for session in sessions.live.values()
            if session.id == session_id
            for one in session.subscriptions
        )

    teller = Teller(
        store,
        targets.parse(settings.notify),
        None if settings.notify_quiet is None else QuietHours.parse(settings.notify_quiet),
        attended,
        secret=settings.notify_secret,
    )
    journal.turn_ended = teller.turn_ended
    journal.request_waits = teller.request_waits
    await teller.run()
