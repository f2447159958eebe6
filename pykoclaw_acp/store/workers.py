"""`acp_workers`: the worker processes of this instance; implements the pool's ledger."""

from __future__ import annotations

from typing import Any, Final

import structlog

from pykoclaw_acp.channel.frames import PROTOCOL
from pykoclaw_acp.channel.processes import WorkerHandle, WorkerProcess, WorkerRecord
from pykoclaw_acp.channel.spec import LaunchSpec, WorkerIdentity
from pykoclaw_acp.errors import Conflict, SpoolPending
from pykoclaw_acp.store import readable
from pykoclaw_acp.store.database import Database, Statement, Unit
from pykoclaw_acp.store.readers import Rows, unless_damaged
from pykoclaw_acp.store.sessions import now_ms

_SPARED: Final = 1
_NOT_SPARED: Final = 2
_NEWEST_FRAME: Final = (
    "SELECT e.frame FROM acp_sessions s JOIN acp_log e ON e.log_key = s.log_key WHERE s.acp_session_id = ?"
    " AND e.seq > ? AND e.epoch = ? AND e.frame > ? ORDER BY e.seq DESC LIMIT 1"
)

log: Final = structlog.get_logger()


class SqlWorkerStore:
    """Rows of workers that may live; each launch has its own epoch. Writes are patient."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def next_epoch(self, session_id: str) -> int:
        """Commit and return the session's next epoch; called by the pool only, once at a time for a
        session.

        Raises SpoolPending while an older worker has a row: its spool would become stale.
        """
        step = Statement(
            "UPDATE acp_sessions SET epoch = epoch + 1 WHERE acp_session_id = ?"
            " AND NOT EXISTS (SELECT 1 FROM acp_workers w WHERE w.acp_session_id = acp_sessions.acp_session_id)",
            (session_id,),
            rows=1,
        )
        try:
            await self._database.commit(Unit(statements=(step,)), patient=True)
        except Conflict as error:
            raise SpoolPending(session_id) from error
        rows = await self._database.read(
            "SELECT epoch FROM acp_sessions WHERE acp_session_id = ?", (session_id,)
        )
        return int(rows[0][0])

    async def left(self, session_id: str) -> list[WorkerRecord]:
        """Workers of a session, the oldest first."""
        return [one for one in await self.rows() if one.session_id == session_id]

    async def worker_started(self, spec: LaunchSpec, handle: WorkerHandle) -> None:
        """A worker was launched."""
        row = Statement(
            "INSERT INTO acp_workers (acp_session_id, epoch, pid, start_time, boot_id, socket, protocol, created_at,"
            " workspace) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                spec.session_id,
                spec.epoch,
                handle.process.pid,
                handle.process.start_time,
                handle.process.boot_id,
                handle.socket,
                PROTOCOL,
                now_ms(),
                spec.options.workspace,
            ),
        )
        await self._database.commit(Unit(statements=(row,)), patient=True)

    async def transcript_begun(self, session_id: str, claude_session_id: str) -> None:
        """A worker has begun a Claude session under another id than the session's."""
        row = Statement(
            "INSERT INTO acp_begun_transcripts (claude_session_id, acp_session_id) VALUES (?, ?)"
            " ON CONFLICT (claude_session_id) DO NOTHING",
            (claude_session_id, session_id),
        )
        await self._database.commit(Unit(statements=(row,)), patient=True)

    async def worker_gone(self, session_id: str, epoch: int) -> None:
        """The worker is gone, and nothing that it left is needed."""
        row = Statement(
            "DELETE FROM acp_workers WHERE acp_session_id = ? AND epoch = ?", (session_id, epoch)
        )
        await self._database.commit(Unit(statements=(row,)), patient=True)

    async def rows(self) -> list[WorkerRecord]:
        """All workers whose rows can be read, per session in the order of their epochs. Which frames a
        damaged log has is as their rows say.
        """
        rows = await self._database.read_with(_rows)
        found: list[WorkerRecord] = []
        for session_id, epoch, pid, start_time, boot_id, socket, acked, workspace, outdated in rows:
            process = WorkerProcess(pid, start_time, boot_id)
            try:
                handle = WorkerHandle(process, socket)
                found.append(
                    _record(session_id, epoch, handle, acked, workspace, outdated=outdated)
                )
            except readable.ERRORS as error:
                log.error(
                    "A worker's row is damaged",
                    action="worker_row_damaged",
                    session=str(session_id),
                    error=str(error),
                )
        return found


def _rows(read: Rows) -> list[tuple[Any, ...]]:
    workers = read(
        "SELECT acp_session_id, epoch, pid, start_time, boot_id, socket, acked_seq, acked_frame, workspace, outdated"
        " FROM acp_workers ORDER BY acp_session_id, epoch",
        (),
    )
    found: list[tuple[Any, ...]] = []
    for session_id, epoch, *handle, seq, acked, workspace, outdated in workers:
        # One by one: the log of one session may be damaged
        newest = unless_damaged(read, _NEWEST_FRAME, (session_id, seq, epoch, acked))
        frame = newest[0][0] if newest else acked
        found.append((session_id, epoch, *handle, frame, workspace, outdated))
    return found


def _record(
    session_id: str,
    epoch: int,
    handle: WorkerHandle,
    acked: int,
    workspace: str | None,
    *,
    outdated: int,
) -> WorkerRecord:
    identity = WorkerIdentity(instance=handle.instance, session_id=session_id, epoch=epoch)
    return WorkerRecord(
        identity, handle, acked, workspace, outdated=outdated > 0, spared=outdated < _NOT_SPARED
    )


def outdate(session_id: str, *, spare: bool) -> Statement:
    """The next prompt of the session is not for the worker that it has; `spare`: background commands
    of that go on until then.
    """
    level = _SPARED if spare else _NOT_SPARED
    return Statement(
        "UPDATE acp_workers SET outdated = ? WHERE acp_session_id = ? AND outdated < ?",
        (level, session_id, level),
    )


def acknowledge(session_id: str, epoch: int, frame: int) -> Statement:
    """Record the acknowledged frame, with its events; later ones may be recorded in the
    log's rows.
    """
    return Statement(
        "UPDATE acp_workers SET acked_frame = ?, acked_seq = COALESCE((SELECT MAX(e.seq) FROM acp_sessions s"
        " JOIN acp_log e ON e.log_key = s.log_key WHERE s.acp_session_id = acp_workers.acp_session_id), 0)"
        " WHERE acp_session_id = ? AND epoch = ?",
        (frame, session_id, epoch),
    )
