"""The twin of `sessions.ports.tasks.TaskStore`."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import replace
from itertools import takewhile

from msgspec.structs import replace as changed

from pykoclaw_acp.errors import Conflict
from pykoclaw_acp.model import deliveries
from pykoclaw_acp.model.conversations import OWN
from pykoclaw_acp.model.schedule import now_text
from pykoclaw_acp.model.scheduled import Task, TaskResult, TaskRun
from tests.twins.base import MemoryStore
from tests.twins.rows import QueuedDelivery, RunLog, RunRow


class MemoryTaskStore(MemoryStore):
    async def due(self, limit: int) -> list[Task]:
        now = now_text()
        due = [
            one
            for one in self.database.read().tasks.values()
            if one.status == "active" and one.next_run is not None and one.next_run <= now
        ]
        waiting = [one for one in due if not self._runs(one.id)]
        return sorted(waiting, key=lambda one: one.next_run or "")[:limit]

    async def next_due(self) -> str | None:
        now = now_text()
        times = (
            one.next_run for one in self.database.read().tasks.values() if one.status == "active"
        )
        return min((at for at in times if at is not None and at > now), default=None)

    def _runs(self, task_id: str) -> bool:
        return any(
            row.run.task.id == task_id and not row.ended for row in self.database.runs.values()
        )

    def _unchanged(self, task: Task) -> Task:
        known = self.database.tasks.get(task.id)
        if known is None or (known.next_run or "") != (task.next_run or ""):
            raise Conflict(f"the task {task.id} has changed")
        return known

    async def claim(self, run: TaskRun) -> None:
        def claim() -> None:
            known = self._unchanged(run.task)
            if self._runs(known.id) or (known.status != "active" and not run.manual):
                raise Conflict(f"the task {known.id} runs, or is held")
            self.database.tasks[known.id] = changed(known, next_run=run.claimed)
            self.database.runs[run.turn_id] = RunRow(replace(run))

        await self.database.write(claim)

    async def refuse(self, task: Task, reason: str) -> None:
        def refuse() -> None:
            known = self._unchanged(task)
            self.database.tasks[task.id] = changed(
                known, status="paused", last_run=now_text(), last_result=f"Error: {reason}"
            )
            self.database.log_run(task.id, RunLog("error", None, reason))

        await self.database.write(refuse)

    async def place(self, run: TaskRun, turn_id: str) -> None:
        def place() -> None:
            if turn_id not in self.database.runs:
                raise Conflict(f"no run {turn_id}")
            known = self.database.runs[turn_id]
            self.database.place_run(turn_id, replace(known, run=replace(run)))

        await self.database.write(place, patient=True)

    async def without_task(self, task_ids: Collection[str]) -> set[str]:
        return set(task_ids) - self.database.read().tasks.keys()

    async def unfinished(self) -> list[TaskRun]:
        return [replace(row.run) for row in self.database.read().runs.values() if not row.ended]

    async def session_of(self, conversation: str) -> str | None:
        rows = [
            row
            for row in self.database.read().sessions.values()
            if row.record.conversation_name == conversation and row.alias_of is None
        ]
        found = min(rows, key=lambda one: one.deleted, default=None)
        return None if found is None else found.record.session_id

    async def finish(self, run: TaskRun, result: TaskResult) -> None:
        def finish() -> None:
            known = self.database.runs.get(run.turn_id)
            if known is None or known.ended:
                raise Conflict(f"the run {run.turn_id} has a result")
            self.database.runs[run.turn_id] = replace(known, ended=True)
            self._after_run(run, result)
            status = "success" if result.error is None else "error"
            row = RunLog(status, result.text or None, result.error)
            self.database.log_run(run.task.id, row)
            self._deliver(run, result)
            self._begin(result)

        await self.database.write(finish, patient=True)

    def _after_run(self, run: TaskRun, result: TaskResult) -> None:
        """The schedule of a task that was given another time meanwhile stays as it is."""
        known = self.database.tasks.get(run.task.id)
        if known is None:
            return
        known = changed(known, last_run=now_text(), last_result=result.summary)
        if not run.manual and (known.next_run or "") == (run.claimed or ""):
            status = known.status if result.next_run else "completed"
            known = changed(known, next_run=result.next_run, status=status)
        self.database.tasks[known.id] = known

    def _deliver(self, run: TaskRun, result: TaskResult) -> None:
        if result.error is not None or not result.text:
            return
        to, channel = deliveries.target(run.task.conversation, run.task.target_conversation)
        text = deliveries.without_reply_tags(result.text)
        status = "delivered" if result.shown else "pending"
        self.database.enqueue(
            QueuedDelivery(uuid.uuid4().hex[:12], to, text, channel, run.task.id, status)
        )

    def _begin(self, result: TaskResult) -> None:
        """A conversation goes on from its row's Claude session, unless it has one, or a session."""
        row, tables = result.begins, self.database
        if row is None or tables.claude_sessions.get(row.name):
            return
        if all(one.record.conversation_name != row.name for one in tables.sessions.values()):
            tables.claude_sessions[row.name] = row.claude_session_id
            tables.folders[row.name], tables.hashes[row.name] = row.cwd, row.prompt_hash

    async def left_aside(self, run: TaskRun) -> list[str]:
        return [
            row.run.session_id
            for row in self._earlier(run)
            if row.run.aside and row.run.session_id is not None
        ]

    def _earlier(self, run: TaskRun) -> list[RunRow]:
        rows = self.database.read().runs
        before = takewhile(lambda row: row.run.turn_id != run.turn_id, rows.values())
        return [
            row
            for row in before
            if run.turn_id in rows
            and row.run.task.id == run.task.id
            and row.ended
            and not self._is_persons(row)
        ]

    def _is_persons(self, row: RunRow) -> bool:
        session = self.database.read().sessions.get(row.run.session_id or "")
        return (
            row.run.aside
            and session is not None
            and session.record.prompted
            and not session.record.auxiliary
        )

    async def claude_sessions_aside(self, session_id: str) -> set[str]:
        tables = self.database.read()
        mine = tables.sessions.get(session_id)
        if mine is None or not mine.gone:
            return set()
        needed = {
            claude
            for name, claude in tables.claude_sessions.items()
            if name != mine.record.conversation_name
        }
        needed |= {claude for one, claude in tables.followed.items() if one != session_id}
        needed |= {claude for one, claude in tables.transcripts if one != session_id}
        branches = (one.record.branch for one in tables.sessions.values() if not one.deleted)
        needed |= {one.source for one in branches if one is not None}
        followed = tables.followed.get(session_id)
        return {session_id, *([] if followed is None else [followed])} - needed

    async def discard_aside(self, session_id: str) -> None:
        def discard() -> None:
            tables = self.database
            row = tables.sessions.get(session_id)
            if row is None or not row.gone:
                return
            name = row.record.conversation_name
            own = (None, "", session_id, tables.followed.get(session_id))
            if tables.claude_sessions.get(name) not in own or self._is_known(name):
                return
            for table in (tables.claude_sessions, tables.folders, tables.hashes):
                table.pop(name, None)
            del tables.sessions[session_id]

        await self.database.write(discard, patient=True)

    def _is_known(self, conversation: str) -> bool:
        """Whether a task runs there, or something is still to be delivered there."""
        tables = self.database
        return any(
            conversation in (one.conversation, one.target_conversation)
            for one in tables.tasks.values()
        ) or any(
            (one.channel, one.status, one.conversation) == (OWN, "pending", conversation)
            for one in tables.delivery_queue.values()
        )

    async def forget_earlier(self, run: TaskRun) -> None:
        def forget() -> None:
            for row in self._earlier(run):
                del self.database.runs[row.run.turn_id]

        await self.database.write(forget, patient=True)

    async def outlived(self) -> list[tuple[str, str | None]]:
        tables = self.database.read()
        found: list[tuple[str, str | None]] = []
        for turn_id, row in tables.runs.items():
            session = tables.sessions.get(row.run.session_id or "") if row.run.aside else None
            deleted = row.run.task.id not in tables.tasks
            unneeded = deleted and (
                session is None or session.record.auxiliary or not session.record.prompted
            )
            if row.ended and (
                unneeded or (session is not None and (session.pruned or session.gone))
            ):
                found.append((turn_id, None if session is None else session.record.session_id))
        return found

    async def forget(self, turn_id: str) -> None:
        def forget() -> None:
            del self.database.runs[turn_id]

        await self.database.write(forget, patient=True)
