"""What a server does beside its sessions for as long as it runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import structlog

from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.server import notices
from pykoclaw_acp.sessions.deliveries import Deliverer
from pykoclaw_acp.sessions.limit_resuming import LimitResumer
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.row_changes import RowChanges
from pykoclaw_acp.sessions.task_runs import TaskRuns
from pykoclaw_acp.store import blobs, deletion
from pykoclaw_acp.store.changes import Changes
from pykoclaw_acp.store.conversion import LONGEST, RETRY, Conversion
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.hinting_journal import HintingJournal
from pykoclaw_acp.store.journal.deliveries import SqlDeliveryStore
from pykoclaw_acp.store.session_journal import SessionJournal

log: Final = structlog.get_logger()


class SideTasks:
    """Runs them in the current event loop, until `close`."""

    def __init__(
        self, settings: Settings, database: Database, journal: HintingJournal, sessions: Sessions, *,
        conversion: Conversion, runs: TaskRuns,
    ) -> None:  # fmt: skip
        store = SessionJournal(database)
        rows, limits = RowChanges(sessions, store), LimitResumer(sessions, store)
        deliverer = Deliverer(sessions, SqlDeliveryStore(database))
        changes = Changes(database.path)
        wanted = (sessions.deliveries_wanted, runs.changed, runs.written)
        for told in (*wanted, rows.changed, rows.changed_unattended, limits.changed):
            changes.tell(told)
        work = {
            "look for changes of other programs": changes.run(),
            "look at rows of conversations": rows.run(),
            "look at rows of unattended ones": rows.run_unattended(),
            "look for deleted tasks": runs.watch(),
            "tidy up after tasks": runs.left.run(),
            "deliver": deliverer.run(),
            "go on after usage limits": limits.run(),
            "purge deleted sessions": to_the_end(
                partial(_purge, database),
                "Deleted sessions are purged later",
                action="purge_failed",
            ),
            "remove transcripts of deleted sessions": remove_transcripts(sessions, database),
            "remove unused blobs": _remove_unused(database),
            "convert old logs": to_the_end(
                conversion.run, "Old logs are converted later", action="conversion_failed"
            ),
            "tell people": notices.run(settings, database, journal, sessions),
            "forget old notices": notices.forget(database),
        }
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(one, name=name) for name, one in work.items()]

    async def close(self) -> None:
        """Cancel them, and wait until they have ended."""
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)


async def to_the_end(work: Callable[[], Awaitable[None]], what: str, *, action: str) -> None:
    """Do what is to be done once; what fails is logged as `what`, and tried again later. The next
    server continues if this is interrupted.
    """
    pause = RETRY
    while True:
        try:
            await work()
            return
        except Exception:
            log.exception(what, action=action)
        await asyncio.sleep(pause)
        pause = min(2 * pause, LONGEST)


async def _purge(database: Database) -> None:
    """Finish deletions."""
    await database.condition.writable()
    await deletion.purge(database)


async def remove_transcripts(sessions: Sessions, database: Database) -> None:
    """Finish removals, now and after each deletion; until cancelled."""
    wanted = sessions.catalogue.removals_wanted
    while True:
        try:
            await database.condition.writable()
            await sessions.catalogue.finish_removals()
        except Exception:
            log.exception(
                "Transcripts of deleted sessions are removed later", action="removal_failed"
            )
        await wanted.wait()
        wanted.clear()


async def _remove_unused(database: Database) -> None:
    """Remove files that no session uses, now and once a day; until cancelled."""
    while True:
        try:
            await database.condition.writable()
            await blobs.remove_orphans(database)
        except Exception:
            log.exception("Unused images and files are removed later", action="blobs_kept")
        await asyncio.sleep(blobs.ORPHAN_AGE)
