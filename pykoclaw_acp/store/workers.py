"""`acp_workers`: which processes are ours; implements the pool's ledger."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pykoclaw_acp.channel.frames import PROTOCOL
from pykoclaw_acp.channel.processes import LeftWorker, WorkerProcess
from pykoclaw_acp.channel.spec import LaunchSpec, WorkerIdentity
from pykoclaw_acp.errors import Conflict, SpoolPending
from pykoclaw_acp.store.database import Database, Statement, Unit
from pykoclaw_acp.store.sessions import now_ms


@dataclass(frozen=True, slots=True)
class WorkerRow:
    """A worker that may live, or has left something: `socket` is its path."""

    session_id: str
    epoch: int
    process: WorkerProcess
    socket: Path
    acked_frame: int
    workspace: str | None = None

    @property
    def directory(self) -> Path:
        """The directory of the instance's workers, in the state directory of then; its name is the instance's."""
        return self.socket.parents[1]

    @property
    def left(self) -> LeftWorker:
        """The worker, whose things are where its socket is."""
        identity = WorkerIdentity.at(self.directory, self.socket.name, self.session_id, self.epoch, self.workspace)
        return LeftWorker(identity, self.process, self.acked_frame)


class WorkerLedger:
    """The rows of live workers; each launch has an epoch of its own. What it writes waits until it can be written."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def next_epoch(self, session_id: str) -> int:
        """The session's next epoch, committed; only the pool calls this, once at a time for a session.

        Raises SpoolPending while there is a row of an older worker: what that has left would be of a stale epoch.
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
        rows = await self._database.read("SELECT epoch FROM acp_sessions WHERE acp_session_id = ?", (session_id,))
        return int(rows[0][0])

    async def left(self, session_id: str) -> list[LeftWorker]:
        """The session's workers whose rows are there, the oldest first."""
        return [row.left for row in await self.rows() if row.session_id == session_id]

    async def worker_started(self, spec: LaunchSpec, process: WorkerProcess) -> None:
        """A worker lives."""
        row = Statement(
            "INSERT INTO acp_workers (acp_session_id, epoch, pid, start_time, boot_id, socket, protocol, created_at,"
            " workspace) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                spec.session_id,
                spec.epoch,
                process.pid,
                process.start_time,
                process.boot_id,
                spec.socket,
                PROTOCOL,
                now_ms(),
                spec.workspace,
            ),
        )
        await self._database.commit(Unit(statements=(row,)), patient=True)

    async def worker_gone(self, session_id: str, epoch: int) -> None:
        """Nothing of it is left."""
        row = Statement("DELETE FROM acp_workers WHERE acp_session_id = ? AND epoch = ?", (session_id, epoch))
        await self._database.commit(Unit(statements=(row,)), patient=True)

    async def rows(self) -> list[WorkerRow]:
        """All workers, those of a session in the order of their epochs."""
        rows = await self._database.read(
            "SELECT w.acp_session_id, w.epoch, w.pid, w.start_time, w.boot_id, w.socket, COALESCE((SELECT MAX(e.frame)"
            " FROM acp_sessions s JOIN acp_log e ON e.log_key = s.log_key WHERE s.acp_session_id = w.acp_session_id"
            " AND e.seq > w.acked_seq AND e.epoch = w.epoch AND e.frame > w.acked_frame), w.acked_frame),"
            " w.workspace"
            " FROM acp_workers w ORDER BY w.acp_session_id, w.epoch"
        )
        return [
            WorkerRow(session_id, epoch, WorkerProcess(pid, start_time, boot_id), Path(socket), acked, workspace)
            for session_id, epoch, pid, start_time, boot_id, socket, acked, workspace in rows
        ]


def acknowledge(session_id: str, epoch: int, frame: int) -> Statement:
    """Committed with the events of the worker's frames up to this one; later ones may be in the log's rows."""
    return Statement(
        "UPDATE acp_workers SET acked_frame = ?, acked_seq = COALESCE((SELECT MAX(e.seq) FROM acp_sessions s"
        " JOIN acp_log e ON e.log_key = s.log_key WHERE s.acp_session_id = acp_workers.acp_session_id), 0)"
        " WHERE acp_session_id = ? AND epoch = ?",
        (frame, session_id, epoch),
    )
