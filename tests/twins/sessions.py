"""The twin of `sessions.ports.SessionStore`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from pykoclaw_acp.errors import RowRefused
from pykoclaw_acp.model.away import AwayPolicy
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.turns import SessionRecord
from tests.twins.base import MemoryStore
from tests.twins.database import SessionRow


class MemorySessionStore(MemoryStore):
    async def create(self, record: SessionRecord) -> None:
        def insert() -> None:
            keys = {row.record.request_key for row in self.database.sessions.values()} - {None}
            taken = record.session_id in self.database.sessions or record.request_key in keys
            if taken or record.conversation_name in self.database.claude_sessions:
                raise RowRefused(record.session_id)
            self.database.sessions[record.session_id] = SessionRow(
                replace(record), self.clock.now()
            )
            self.database.claude_sessions[record.conversation_name] = None
            self.database.folders[record.conversation_name] = record.cwd

        await self.database.write(insert)

    async def find(self, session_id: str) -> SessionRecord | None:
        database = self.database.read()
        row = database.owner(session_id)
        if row is None:
            return None
        record, log = row.record, database.logs.get(row.record.session_id)
        return replace(
            record,
            pruned_upto=log[0].seq - 1 if log else record.last_seq,
            claude_session_id=database.followed.get(record.session_id)
            or database.claude_sessions.get(record.conversation_name)
            or None,
            request_key=None,
            client=None,
            works_for=next(
                (
                    one.run.task.conversation
                    for one in database.runs.values()
                    if one.run.aside and one.run.session_id == record.session_id
                ),
                None,
            ),
        )

    async def find_created(self, request_key: str) -> str | None:
        rows = self.database.read().sessions.values()
        return next(
            (row.record.session_id for row in rows if row.record.request_key == request_key), None
        )

    async def was_taken(self, request_key: str) -> bool:
        turns = self.database.read().turns.values()
        return await self.find_created(request_key) is not None or any(
            row.keys.request == request_key for row in turns
        )

    async def id_taken(self, session_id: str) -> bool:
        database = self.database.read()
        claude = {*database.claude_sessions.values(), *database.buried}
        return session_id in database.sessions or session_id in claude

    async def name_taken(self, name: str) -> bool:
        database = self.database.read()
        names = {row.record.conversation_name for row in database.sessions.values()}
        return name in names or name in database.claude_sessions

    async def current_seq(self, session_id: str, seq: int) -> int:
        self.database.read()
        return seq  # logs are never merged here

    async def inherited_end(self, session_id: str) -> int | None:
        return self.database.read().inherited.get(session_id)

    async def reopen(self, record: SessionRecord, said: Sequence[Event] = ()) -> list[int]:
        def reopen() -> list[int]:
            row = self.database.session(record.session_id)
            row.record.cwd, row.record.real_cwd = record.cwd, record.real_cwd
            row.record.additional_directories = record.additional_directories
            row.record.environment = record.environment
            row.record.prompted = row.record.prompted or record.prompted
            row.record.closed, row.pruned, row.used_clock = False, False, self.clock.now()
            if said:
                self.database.used(record.session_id)
            return self.database.log(record.session_id, None, said)

        return await self.database.write(reopen, patient=True)

    async def outdate_worker(self, session_id: str, *, spare: bool) -> None:
        def outdate() -> None:
            for key, row in self.database.workers.items():
                if key[0] == session_id:
                    spared = row.spared and spare
                    self.database.workers[key] = replace(row, outdated=True, spared=spared)

        await self.database.write(outdate, patient=True)

    async def mark_closed(self, session_id: str) -> None:
        def close() -> None:
            self.database.session(session_id).record.closed = True
            self.database.limit_waits.pop(session_id, None)

        await self.database.write(close)

    async def set_away_policy(
        self, session_id: str, policy: AwayPolicy | None, *, patient: bool = False
    ) -> None:
        def keep() -> None:
            self.database.session(session_id).record.away_policy = policy

        await self.database.write(keep, patient=patient)

    async def set_steering(self, session_id: str, *, steers: bool) -> None:
        def keep() -> None:
            self.database.session(session_id).record.steers = steers

        await self.database.write(keep)

    async def delete(
        self,
        session_id: str,
        hidden: Callable[[], object] = lambda: None,
        transcripts: Collection[str] = (),
    ) -> None:
        def hide() -> None:
            self.database.session(session_id)
            for row in self.database.sessions.values():
                if session_id in (row.record.session_id, row.alias_of):
                    row.deleted, row.record.title, row.record.request_key = True, None, None
            followed = self.database.followed.get(session_id)
            known = {claude for one, claude in self.database.transcripts if one == session_id}
            begun = [claude for claude, one in self.database.begun.items() if one == session_id]
            for claude in begun:
                del self.database.begun[claude]
            known.update(begun)
            self.database.buried |= {session_id, *known, *([followed] if followed else [])}
            self.database.buried |= {*transcripts}
            self.database.to_remove |= {*transcripts}
            self.database.clear(session_id)
            self.database.rules = {one for one in self.database.rules if one[0] != session_id}

        await self.database.write(hide)
        hidden()

    async def unused(self, before: int) -> list[str]:
        return [one for one in self.database.read().sessions if self._is_unused(one, before)]

    async def prune(
        self, session_id: str, before: int, hidden: Callable[[], object] = lambda: None
    ) -> bool:
        def prune() -> bool:
            if session_id not in self.database.sessions or not self._is_unused(session_id, before):
                return False
            self.database.sessions[session_id].pruned = True
            self.database.clear(session_id)
            return True

        pruned = await self.database.write(prune)
        if pruned:
            hidden()
        return pruned

    def _is_unused(self, session_id: str, before: int) -> bool:
        row = self.database.sessions[session_id]
        if row.used_clock >= before or row.pruned or row.deleted or row.alias_of is not None:
            return False
        if row.record.prompted and not row.record.auxiliary:
            return False
        if (
            not row.record.auxiliary
            and self.database.claude_sessions.get(row.record.conversation_name) is not None
        ):
            return False
        works = any(
            one.session_id == session_id and one.unfinished for one in self.database.turns.values()
        )
        asks = any(
            one.session_id == session_id and one.outcome is None
            for one in self.database.requests.values()
        )
        return not works and not asks and not self._is_run_kept(session_id)

    def _is_run_kept(self, session_id: str) -> bool:
        """Whether it is of a run aside that has no result, or of the newest one of a task that runs again."""
        tables = self.database
        runs = (row for row in tables.runs.values() if row.run.session_id == session_id)
        tasks = {one.id for one in tables.tasks.values() if one.status != "completed"}
        return any(row.run.aside and (not row.ended or row.run.task.id in tasks) for row in runs)
