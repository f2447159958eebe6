"""`acp_workers`: which processes are ours; implements the pool's ledger."""

from __future__ import annotations

from pykoclaw_acp.pool.launcher import WorkerProcess
from pykoclaw_acp.store.database import Database, Statement, Unit
from pykoclaw_acp.store.sessions import now_ms
from pykoclaw_acp.worker.frames import PROTOCOL
from pykoclaw_acp.worker.spec import LaunchSpec


class WorkerLedger:
    """The rows of live workers; each launch has an epoch of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def next_epoch(self, session_id: str) -> int:
        """The session's next epoch, committed; only the pool calls this, once at a time for a session."""
        step = Statement("UPDATE acp_sessions SET epoch = epoch + 1 WHERE acp_session_id = ?", (session_id,), rows=1)
        await self._database.commit(Unit(statements=(step,)))
        rows = await self._database.read("SELECT epoch FROM acp_sessions WHERE acp_session_id = ?", (session_id,))
        return int(rows[0][0])

    async def worker_started(self, spec: LaunchSpec, process: WorkerProcess) -> None:
        """A worker lives."""
        row = Statement(
            "INSERT INTO acp_workers (acp_session_id, epoch, pid, start_time, boot_id, socket, protocol, created_at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                spec.session_id,
                spec.epoch,
                process.pid,
                process.start_time,
                process.boot_id,
                spec.socket,
                PROTOCOL,
                now_ms(),
            ),
        )
        await self._database.commit(Unit(statements=(row,)))

    async def worker_gone(self, session_id: str, epoch: int) -> None:
        """Nothing of it is left."""
        await self._database.commit(
            Unit(
                statements=(
                    Statement("DELETE FROM acp_workers WHERE acp_session_id = ? AND epoch = ?", (session_id, epoch)),
                )
            )
        )

    async def left_behind(self) -> list[tuple[WorkerProcess, str]]:
        """Workers of a server that died, each with its socket's path."""
        rows = await self._database.read("SELECT pid, start_time, boot_id, socket FROM acp_workers")
        return [(WorkerProcess(pid, start_time, boot_id), socket) for pid, start_time, boot_id, socket in rows]

    async def sessions(self) -> list[str]:
        """Sessions that have a worker's row."""
        return [session for (session,) in await self._database.read("SELECT DISTINCT acp_session_id FROM acp_workers")]

    async def forget_all(self) -> None:
        """All of them are gone."""
        await self._database.commit(Unit(statements=(Statement("DELETE FROM acp_workers"),)))


def acknowledge(session_id: str, epoch: int, frame: int) -> Statement:
    """Committed with the events of the worker's frames up to this one."""
    return Statement(
        "UPDATE acp_workers SET acked_frame = ? WHERE acp_session_id = ? AND epoch = ?", (frame, session_id, epoch)
    )
