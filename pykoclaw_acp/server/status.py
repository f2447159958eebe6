"""The handler of `_pykoclaw.dev/status`: the state of the daemon."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pykoclaw_acp import __version__
from pykoclaw_acp.channel.processes import WorkerRecord
from pykoclaw_acp.config import listing
from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.errors import StoreUnavailable
from pykoclaw_acp.link import records
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.pool.launcher import Launcher
from pykoclaw_acp.protocol.control.daemon import (
    ConversionInfo,
    DaemonInfo,
    DatabaseInfo,
    LimitWaitInfo,
    OtherSettings,
    SessionCounts,
    Status,
    UnacceptedNotices,
)
from pykoclaw_acp.protocol.control.permissions import QuestionInfo
from pykoclaw_acp.protocol.control.tasks import SchedulerInfo
from pykoclaw_acp.protocol.control.workers import WorkerInfo
from pykoclaw_acp.protocol.wire import Params
from pykoclaw_acp.server import accounts
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.dispatch import Method
from pykoclaw_acp.server.lag import LoopLag
from pykoclaw_acp.server.permission_control import PermissionControl
from pykoclaw_acp.server.worker_control import WorkerControl
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.store import instance, limit_waits, notices, overview
from pykoclaw_acp.store.conversion import Conversion
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.sessions import now_ms
from pykoclaw_acp.store.sqlite import ENGINE
from pykoclaw_acp.store.workers import SqlWorkerStore

_STARTED_AT: Final = now_ms()  # of this process, which may open the database anew


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the database says; as it is made here, that it cannot be read."""

    known: instance.InstanceRow | None = None
    rows: Sequence[WorkerRecord] = ()
    workers: list[WorkerInfo] = field(default_factory=list)
    sessions: SessionCounts | None = None
    running: int | None = None
    waiting: int | None = None
    questions: list[QuestionInfo] = field(default_factory=list)
    scheduler: SchedulerInfo | None = None
    limit_waits: tuple[LimitWaitInfo, ...] = ()
    unaccepted: tuple[UnacceptedNotices, ...] = ()


class DaemonStatus:
    """Reports the state of all parts of the daemon."""

    def __init__(
        self,
        sessions: Sessions,
        database: Database,
        places: Places,
        lag: LoopLag,
        conversion: Conversion | None,
        *,
        launcher: Launcher,
        workers: WorkerControl,
        permissions: PermissionControl,
        scheduler: Callable[[], Awaitable[SchedulerInfo]] | None,
        others: Callable[[], list[tuple[str, list[str]]]],
        settings: Settings | None,
    ) -> None:
        self._sessions = sessions
        self._database = database
        self._places = places
        self._lag = lag
        self._conversion = conversion
        self._launcher = launcher
        self._workers = workers
        self._permissions = permissions
        self._scheduler = scheduler
        self._others = others
        self._settings = settings

    @property
    def methods(self) -> dict[str, Method[Call, Any]]:
        """The dispatch table of this method."""
        return {
            "_pykoclaw.dev/status": Method(Params, self.status, before_initialize=True, heavy=True)
        }

    async def status(self, call: Call, params: Params) -> Status:  # noqa: ARG002
        """The state of the daemon, its workers, its sessions and the database."""
        condition = self._database.condition
        try:
            stored, trouble = await self._stored(), (condition.state, condition.reason)
        except StoreUnavailable as error:
            stored, trouble = _Stored(), (DatabaseState(error.state), error.reason)
        known = stored.known
        clients = {
            subscription.client
            for session in self._sessions.live.values()
            for subscription in session.subscriptions
            if subscription.client.present
        }
        return Status(
            daemon=DaemonInfo(
                pid=os.getpid(),
                version=__version__,
                started_at=_STARTED_AT,
                socket=self._places.socket,
                data=self._places.data,
                state=self._places.state,
                loop_lag=round(self._lag.worst() * 1000, 1),
                memory=await asyncio.to_thread(
                    self._launcher.whereabouts.server_memory,
                    stored.rows,
                ),
                instance=None if known is None else known.instance,
                copied_from=None if known is None else known.copied_from,
                copied_at=None if known is None else known.copied_at,
            ),
            workers=stored.workers,
            sessions=stored.sessions,
            clients=len(clients),
            running=stored.running,
            waiting=stored.waiting,
            questions=stored.questions,
            database=DatabaseInfo(
                path=str(self._database.path),
                condition=trouble[0],
                reason=trouble[1] or None,
                size=await asyncio.to_thread(overview.size, self._database),
                journal_mode=self._database.journal_mode.mode,
                engine=ENGINE.name,
                engine_version=".".join(map(str, ENGINE.version)),
                at_risk=ENGINE.affected,
            ),
            conversion=self._progress(),
            scheduler=stored.scheduler,
            accounts=await asyncio.to_thread(accounts.every, self._sessions.daemon_environment),
            other_settings=tuple(
                OtherSettings(client=client, settings=names) for client, names in self._others()
            ),
            limit_waits=stored.limit_waits,
            damaged=await self._launcher.damaged_spools(records.names(self._places)),
            unaccepted=stored.unaccepted,
            settings={} if self._settings is None else listing.values(self._settings),
        )

    async def _stored(self) -> _Stored:
        running, waiting = await overview.queue(self._database)
        return _Stored(
            known=await instance.read(self._database),
            rows=await SqlWorkerStore(self._database).rows(),
            workers=await self._workers.live(),
            sessions=await overview.counts(self._database),
            running=running,
            waiting=waiting,
            questions=[info for info, _ in await self._permissions.pending()],
            scheduler=None if self._scheduler is None else await self._scheduler(),
            limit_waits=tuple(
                LimitWaitInfo(session=one.session_id, due=one.due * 1000)
                for one in await limit_waits.every(self._database)
            ),
            unaccepted=tuple(await self._unaccepted()),
        )

    async def _unaccepted(self) -> list[UnacceptedNotices]:
        """What targets have not accepted that are still in the setting."""
        if self._settings is None or self._settings.notify is None:
            return []
        from pykoclaw_acp.notify import targets  # others do not need it

        names = targets.names(self._settings.notify)
        return [
            UnacceptedNotices(target=target, name=names[target], notices=count, reason=reason)
            for target, count, reason in await notices.unaccepted(self._database)
            if target in names
        ]

    def _progress(self) -> ConversionInfo | None:
        progress = None if self._conversion is None else self._conversion.progress
        return (
            None if progress is None else ConversionInfo(events=progress.events, left=progress.left)
        )
