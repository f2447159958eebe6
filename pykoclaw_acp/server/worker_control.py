"""The handlers of `_pykoclaw.dev/workers/…`: live workers, and how they are stopped."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

from pykoclaw_acp.channel.options import UNREAD, is_restricted
from pykoclaw_acp.channel.processes import WorkerRecord
from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.model.workers import WorkerState
from pykoclaw_acp.pool.whereabouts import Whereabouts
from pykoclaw_acp.protocol.control.workers import StopParams, Stopped, WorkerInfo
from pykoclaw_acp.protocol.wire import Params
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.dispatch import Method
from pykoclaw_acp.server.session_finder import SessionFinder
from pykoclaw_acp.sessions import closing
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.store import overview
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.workers import SqlWorkerStore


class WorkerControl:
    """Workers of all sessions, with the memory that they use."""

    def __init__(
        self,
        sessions: Sessions,
        database: Database,
        finder: SessionFinder,
        whereabouts: Whereabouts,
    ) -> None:
        self._sessions = sessions
        self._database = database
        self._finder = finder
        self._whereabouts = whereabouts

    @property
    def methods(self) -> dict[str, Method[Call, Any]]:
        """The dispatch table of these methods."""
        return {
            "_pykoclaw.dev/workers/list": Method(
                Params, self.list_all, before_initialize=True, heavy=True
            ),
            "_pykoclaw.dev/workers/stop": Method(StopParams, self.stop, before_initialize=True),
        }

    async def list_all(self, call: Call, params: Params) -> list[WorkerInfo]:  # noqa: ARG002
        """The live workers."""
        return await self.live()

    async def stop(self, call: Call, params: StopParams) -> Stopped:  # noqa: ARG002
        """End a session's worker, or all: turns end as cancelled, also those that wait. A turn that
        comes later has another worker.

        Raises InvalidParams unless it says which, and StoreUnavailable, unless `now`, while the
        ends of turns cannot be stored.
        """
        if (params.session is None) != params.all:
            raise InvalidParams(
                "`session` or `all`: give a session, or `all: true` to end all workers."
            )
        if not params.now or self._sessions.awaits_recovery:
            self._database.condition.require()
        only = None if params.session is None else await self._finder.find(params.session)
        stopped = {record.session_id for record in await self._alive()}
        sessions = list(self._sessions.live.values()) if only is None else [only]
        if params.now:
            for session in sessions:
                session.cancel()
                self._sessions.workers.kill(session.id)
        if only is not None:
            stopped &= {only.id}
        if not self._database.condition.is_writable:  # they are dead; the rest waits
            return Stopped(workers=len(stopped))
        workers, ended = self._sessions.workers, {session.id for session in sessions}
        stopping = [closing.stop(session, workers) for session in sessions]
        await asyncio.gather(*stopping, *(workers.stop(one) for one in stopped - ended))
        return Stopped(workers=len(stopped))

    async def live(self, session_id: str | None = None) -> list[WorkerInfo]:
        """The live workers, or only that of one session."""
        alive = {(one.session_id, one.epoch): one for one in await self._alive()}
        rows = [
            row
            for row in await overview.workers(self._database)
            if (row.session_id, row.epoch) in alive and session_id in (None, row.session_id)
        ]
        records = [alive[row.session_id, row.epoch] for row in rows]
        used = await asyncio.to_thread(self._whereabouts.memory, records)
        return [
            WorkerInfo(
                session=row.session_id,
                title=row.title,
                epoch=row.epoch,
                pid=row.pid,
                state=self._state(row),
                protocol=row.protocol,
                started_at=row.created_at,
                memory=size,
                workspace=_counts(row.workspace),
            )
            for row, size in zip(rows, used, strict=True)
        ]

    def _state(self, row: overview.WorkerSummary) -> WorkerState:
        live = self._sessions.live.get(row.session_id)
        if row.state == WorkerState.WORKING and live is not None and live.reports.hangs:
            return WorkerState.HANGING
        works = row.state == WorkerState.IDLE and self._sessions.workers.works(row.session_id)
        return WorkerState.BACKGROUND if works else row.state

    async def _alive(self) -> list[WorkerRecord]:
        """Workers that live: the row of a dead one stays until all that it told is in the log."""
        rows = await SqlWorkerStore(self._database).rows()
        return await asyncio.to_thread(lambda: [row for row in rows if self._may_live(row)])

    def _may_live(self, worker: WorkerRecord) -> bool:
        try:
            return self._whereabouts.lives(worker)
        except OSError:  # no descriptor is left to look with
            return True


def _counts(workspace: str | None) -> Literal["trusted", "without"] | None:
    """Whether active content of a worker's directories takes effect; None if there is none,
    or if nobody has looked.
    """
    if not workspace or workspace == UNREAD:
        return None
    return "without" if is_restricted(workspace) else "trusted"
