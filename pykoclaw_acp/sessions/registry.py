"""All sessions of this process: created, found, and reached by their workers' frames."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal
from uuid import uuid4

import structlog

from pykoclaw_acp.sessions.model import SessionRecord, TurnTimes
from pykoclaw_acp.sessions.ports import Journal, Workers, WorkerWish
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.worker.frames import Numbered
from pykoclaw_acp.worker.spec import McpStdio

NAME_LENGTH: Final = 8  # characters of the id in a conversation's name, more on a collision

log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class SessionDefaults:
    """What settings say about every session."""

    model: str | None
    permission_mode: str
    setting_sources: tuple[str, ...]
    cli_path: str | None
    log_level: Literal["debug", "info", "warning", "error"]
    times: TurnTimes


class Sessions:
    """Sessions by id. Live ones are kept for the process's life: they cost some kilobytes."""

    def __init__(self, journal: Journal, defaults: SessionDefaults) -> None:
        self._journal = journal
        self._defaults = defaults
        self._live: dict[str, Session] = {}
        self.workers: Workers

    async def create(self, cwd: str, directories: tuple[str, ...], servers: tuple[McpStdio, ...]) -> Session:
        """A new session, in the database before this returns."""
        session_id = str(uuid4())
        record = SessionRecord(
            session_id=session_id,
            conversation_name=await self._free_name(session_id),
            cwd=cwd,
            additional_directories=directories,
            model=self._defaults.model,
        )
        await self._journal.create(record)
        log.info("Session created", action="session_created", session=session_id, cwd=cwd)
        return self._make(record, servers)

    async def find(self, session_id: str) -> Session | None:
        """The session, live or from the database; its next worker will resume what the database says."""
        live = self._live.get(session_id)
        if live is None:
            record = await self._journal.find(session_id)
            live = self._live.get(session_id)
            if record is None or live is not None:
                return live
            live = self._make(record, ())
        elif not self.workers.is_live(session_id) and not live.busy:
            # Another channel may have moved the conversation on since.
            record = await self._journal.find(session_id)
            if record is None:
                return None
            self.workers.set_resume(session_id, record.claude_session_id)
        return live

    async def reopen(
        self, session: Session, cwd: str, directories: tuple[str, ...], servers: tuple[McpStdio, ...]
    ) -> None:
        """A client opens the session again: with these directories and servers, from its next worker on."""
        session.record.cwd = session.record.cwd or cwd
        session.record.additional_directories = directories
        session.record.closed = False
        await self._journal.adopt(session.record)
        wish = replace(session.wish, cwd=session.record.cwd, additional_directories=directories, mcp_servers=servers)
        if wish != session.wish:
            session.change_worker(wish)

    async def close(self, session: Session) -> None:
        """End its turns and its worker; it can be loaded again."""
        session.record.closed = True  # first: from now on nobody prompts it
        session.cancel()
        await session.idle()
        await self.workers.stop(session.id)
        attachments = list(session.attachments)
        with contextlib.suppress(TimeoutError):
            reached = [attachment.reached(session.last_seq) for attachment in attachments]
            told = asyncio.gather(*reached, return_exceptions=True)
            await asyncio.wait_for(told, self._defaults.times.cancel_grace)
        for attachment in attachments:
            attachment.close()
        await self._journal.mark_closed(session.id)

    async def cancel_all(self) -> None:
        """Interrupt every turn and wait until all have ended."""
        busy = [session for session in self._live.values() if session.busy]
        for session in busy:
            session.cancel()
        await asyncio.gather(*(session.idle() for session in busy))

    # --- WorkerListener ---------------------------------------------------------------------------------------------

    async def frames(self, session_id: str, epoch: int, frames: Sequence[Numbered]) -> None:
        """A worker's frames, to their session."""
        await self._live[session_id].frames(epoch, frames)

    async def lost(self, session_id: str, epoch: int, kind: str, message: str) -> None:
        """A worker is gone."""
        await self._live[session_id].lost(epoch, kind, message)

    def _make(self, record: SessionRecord, servers: tuple[McpStdio, ...]) -> Session:
        wish = WorkerWish(
            session_id=record.session_id,
            cwd=record.cwd or "",
            additional_directories=record.additional_directories,
            mcp_servers=servers,
            model=record.model or self._defaults.model,
            permission_mode=self._defaults.permission_mode,
            setting_sources=self._defaults.setting_sources,
            cli_path=self._defaults.cli_path,
            log_level=self._defaults.log_level,
        )
        self.workers.set_resume(record.session_id, record.claude_session_id)
        session = self._live[record.session_id] = Session(
            record, wish, self._journal, self.workers, self._defaults.times
        )
        return session

    async def _free_name(self, session_id: str) -> str:
        for length in range(NAME_LENGTH, len(session_id) + 1):
            name = f"acp-{session_id[:length]}"
            if not await self._journal.name_taken(name):
                return name
        raise RuntimeError("a UUID was given out twice")
