"""The twin of `pool.ports.WorkerStore`."""

from __future__ import annotations

from dataclasses import replace

from pykoclaw_acp.channel.processes import WorkerHandle, WorkerRecord
from pykoclaw_acp.channel.spec import LaunchSpec
from pykoclaw_acp.errors import RowRefused, SpoolPending
from tests.twins.base import MemoryStore


class MemoryWorkerStore(MemoryStore):
    async def next_epoch(self, session_id: str) -> int:
        def step() -> int:
            rows = self.database.workers
            if session_id not in self.database.sessions or any(
                key[0] == session_id for key in rows
            ):
                raise SpoolPending(session_id)
            return self.database.next_epoch(session_id)

        return await self.database.write(step, patient=True)

    async def left(self, session_id: str) -> list[WorkerRecord]:
        rows = sorted(self.database.read().workers.items())
        acknowledged = self.database.acknowledged
        return [
            replace(row, acked_frame=acknowledged.get(key, 0))
            for key, row in rows
            if key[0] == session_id
        ]

    async def worker_started(self, spec: LaunchSpec, handle: WorkerHandle) -> None:
        def insert() -> None:
            key = spec.session_id, spec.epoch
            if key in self.database.workers:
                raise RowRefused(spec.cookie)
            self.database.workers[key] = WorkerRecord(
                spec.identity, handle, 0, spec.options.workspace
            )

        await self.database.write(insert, patient=True)

    async def transcript_begun(self, session_id: str, claude_session_id: str) -> None:
        def begun() -> None:
            self.database.begun.setdefault(claude_session_id, session_id)

        await self.database.write(begun, patient=True)

    async def worker_gone(self, session_id: str, epoch: int) -> None:
        await self.database.write(
            lambda: self.database.workers.pop((session_id, epoch), None), patient=True
        )
