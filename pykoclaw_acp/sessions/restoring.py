"""Restoring a session from an export: a new session with its history, whose Claude begins anew and
is told what was said last.

Claude's own transcript is not a part of an export: what Claude is to take for its own memory, and
for what its user has allowed, must not come from a file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple
from uuid import uuid4

import structlog

from pykoclaw_acp.errors import Conflict
from pykoclaw_acp.model.events import Event, OpenTools, Plan, TitleChanged, ToolEnded, note_event
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.sessions.context_summary import ContextSummary
from pykoclaw_acp.sessions.directories import resolve_links
from pykoclaw_acp.sessions.given_up import GivenUp
from pykoclaw_acp.sessions.names import ConversationNames
from pykoclaw_acp.sessions.ports.restoring import RestoreStore
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.turns import titles

TOLD: Final = (
    "This conversation was brought here from another machine, or from a copy. You have no record of"
    " it yourself. Its files may be different here. What was said last:\n\n"
)

BATCH: Final = 200  # events in one commit

log: Final = structlog.get_logger()


class EventBatch(NamedTuple):
    """Events of an export, and the bytes of their blobs by hash."""

    events: Sequence[Event]
    data: Mapping[str, bytes]


class Restorer:
    """Makes sessions of exports."""

    def __init__(
        self,
        store: RestoreStore,
        names: ConversationNames,
        find: Callable[[str], Awaitable[Session | None]],
    ) -> None:
        """`find`: the session of an id."""
        self._store = store
        self._names = names
        self._find = find
        self._given_up = GivenUp(store)

    async def restore(
        self,
        wanted: SessionRecord,
        title: str | None,
        batches: AsyncIterator[EventBatch],
        words: Callable[[bool], str],
    ) -> Session:
        """A session like `wanted`, under an id and a name of its own: there whole when this returns,
        and not at all otherwise. `words`: what is said of the import when all batches were taken;
        it is told whether Claude gets a summary.
        """
        session_id = str(uuid4())
        async with self._names.reserve(session_id) as name:
            record = replace(wanted, session_id=session_id, conversation_name=name)
            await resolve_links(record)
            await self._store.begin_restoring(record)
            try:
                await self._fill(record, title, batches, words)
            except BaseException:
                self._given_up.add(session_id)
                raise
        log.info("Session imported", action="session_imported", session=session_id)
        made = await self._find(session_id)
        if made is None:
            raise Conflict("the session was deleted at once")
        return made

    async def _fill(
        self,
        record: SessionRecord,
        title: str | None,
        batches: AsyncIterator[EventBatch],
        words: Callable[[bool], str],
    ) -> None:
        tools, told, plan, at = OpenTools(), ContextSummary(), Plan(()), 0
        async for batch in batches:
            for event in batch.events:
                tools.follow(event)
                told.follow(event)
                plan = event if isinstance(event, Plan) else plan
            await self._store.restore(record.session_id, at, batch.events, batch.data)
            at += len(batch.events)
        ends: list[Event] = [ToolEnded(tool, "failed") for tool in tools]
        for first in range(0, len(ends), BATCH):  # there may be very many
            batch_of_ends = ends[first : first + BATCH]
            await self._store.restore(record.session_id, at, batch_of_ends, {})
            at += len(batch_of_ends)
        said = list[Event]()
        if plan.entries:
            said.append(Plan(()))  # Claude has no tasks here
        if (line := titles.shorten(title or "")) is not None:
            said.append(TitleChanged(line))
        summary = told.text()
        said.append(note_event(f"import-{record.session_id}", words(bool(summary))))
        note = Note(f"import-{record.session_id}", TOLD + summary) if summary else None
        await self._store.end_restoring(record, said, note)
