"""All sessions of all programs, as a list, and what can be done to each without opening it."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import structlog

from pykoclaw_acp.errors import (
    Conflict,
    InvalidParams,
    RowRefused,
    SessionNotFound,
    StoreClosed,
    StoreUnavailable,
)
from pykoclaw_acp.model import conversations
from pykoclaw_acp.model.choices import TAKEN_OVER
from pykoclaw_acp.model.events import TitleChanged
from pykoclaw_acp.model.found_transcripts import FoundTranscript, Removed
from pykoclaw_acp.model.listing import Archived, ListedSession, ListPosition, ListQuery
from pykoclaw_acp.model.session_environment import StoredEnvironment
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.sessions import adopting
from pykoclaw_acp.sessions.names import ConversationNames
from pykoclaw_acp.sessions.new_session import require_same
from pykoclaw_acp.sessions.ports import FoundTranscripts
from pykoclaw_acp.sessions.ports.journal import ListAndTranscripts
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.turns import titles
from pykoclaw_acp.system import disks

PAGE: Final = 50  # sessions

log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ListSettings:
    """Which sessions lists have, by the settings of these names."""

    data: str
    hide_channels: tuple[str, ...]
    list_transcripts: str
    delete_transcripts: str
    helper_prompts: tuple[str, ...]


class SessionLifecycle(Protocol):
    """Finds, adopts, closes and deletes sessions."""

    async def find(self, session_id: str) -> Session | None:
        """The session with this id or alias; None if there is none."""

    async def adopt(
        self, session_id: str, cwd: str | None, client: str | None, account: str | None = None
    ) -> Session:
        """The session of a conversation that another program began; raises SessionNotFound, and
        InvalidParams if it would be made and is not of `account`.
        """

    async def close(self, session: Session) -> None:
        """End turns and worker."""

    async def delete(self, session: Session, transcripts: Collection[str] = ()) -> None:
        """Close the session and delete its log; these Claude sessions' transcripts are noted as to be
        removed.
        """


@dataclass(frozen=True, slots=True)
class ListPage:
    """A part of the list; `end`: what the next one begins after, None if there is none."""

    sessions: list[ListedSession]
    end: ListPosition | None


class Catalogue:
    """Lists, names, archives and deletes sessions."""

    def __init__(
        self,
        sessions: SessionLifecycle,
        store: ListAndTranscripts,
        names: ConversationNames,
        settings: ListSettings,
    ) -> None:
        self.settings = settings
        self.transcripts: FoundTranscripts | None = None
        self.removals_wanted = asyncio.Event()
        """Set when a fork that needed a deleted session's transcript may be gone."""
        self._removing: set[str] = set()  # Claude sessions of deletions that are going on
        self._names = names
        self._sessions = sessions
        self._store = store

    async def page(
        self,
        after: ListPosition | None = None,
        cwd: str | None = None,
        archived: Archived = Archived.EXCLUDE,
    ) -> ListPage:
        """The next sessions, newest first; `cwd`: of this directory only."""
        query = ListQuery(
            PAGE + 1,
            after,
            None if cwd is None else await _spellings(cwd),
            archived,
            self.settings.hide_channels,
            transcripts=await self.look_for_transcripts(),
        )
        found = await self._store.listed(query)
        more = len(found) > PAGE
        shown = [one if one.cwd else replace(one, cwd=self._folder(one)) for one in found[:PAGE]]
        return ListPage(shown, shown[-1].place if more else None)

    async def look_for_transcripts(self) -> bool:
        """Whether lists have what was begun in a terminal; they know of the newest then."""
        if self._found is not None:
            await self._found.refresh()
        return self._found is not None

    async def set_title(self, session_id: str, title: str) -> str:
        """Set the title, cut to one line of at most 80 characters, and tell clients; returns it.

        Raises SessionNotFound, and InvalidParams for a title without words.
        """
        session = await self.open(session_id)
        line = titles.shorten(title)
        if line is None:
            raise InvalidParams("`title`: must not be empty.")
        if line != session.record.title or session.record.title_by:
            by, session.record.title_by = session.record.title_by, ""
            try:  # a title that Claude is making comes too late from now on
                await session.log.tell([TitleChanged(line)])
            except Exception:
                session.record.title_by = by
                raise
        return line

    async def archive(self, session_id: str, *, archived: bool) -> None:
        """Close the session and leave it out of lists, or take it back. Raises SessionNotFound."""
        session = await self.open(session_id)
        if archived:  # in a closed session, too, a turn may run: one that nobody has to attend
            await self._sessions.close(session)
        try:
            await self._store.set_archived(session.id, archived=archived)
        except Conflict:
            raise SessionNotFound(session_id) from None

    async def delete(self, session_id: str) -> Removed | None:
        """Delete the session, if there is one: end its turns, remove what was said. Its id is not
        found again. Returns what became of Claude's own transcript; None: it stays.
        """
        claude = {session_id}
        try:
            session = await self._known(session_id)
        except SessionNotFound:
            # Also of one that is in no list now: it would be back when lists have such again.
            if self.transcripts is None or await self.transcripts.find(session_id) is None:
                return None
            deleting = self._store.bury_transcript(session_id, remove=self._removes)
        else:
            claude |= {session.id, session.record.claude_session_id or session.id}
            claude |= await self._store.begun_transcripts(session.id)
            if conversations.channel(session.record.conversation_name) != conversations.OWN:
                claude.clear()  # other programs go on with it
            deleting = self._sessions.delete(session, claude if self._removes else ())
        self._removing |= claude
        try:
            await deleting
            return await self._remove(claude)
        finally:
            self._removing -= claude
            self.removals_wanted.set()

    async def finish_removals(self) -> None:
        """Delete what is left of the transcripts of deleted sessions: after kills and failures, and
        when no fork needs them any more.
        """
        with contextlib.suppress(StoreUnavailable, StoreClosed):
            left = await self._store.transcripts_to_remove()
            await self._remove(left - self._removing)

    async def _remove(self, claude: set[str]) -> Removed | None:
        removed = None
        with contextlib.suppress(StoreUnavailable, StoreClosed):  # the next server looks again
            claude = claude - await self._store.branched_off(claude)  # forks made meanwhile
            removed = await self.remove_transcripts(claude)
            if removed is not None and (gone := claude - removed.left_of):
                await self._store.transcripts_removed(gone)
        return removed

    async def remove_transcripts(self, claude_session_ids: Collection[str]) -> Removed | None:
        """Delete the transcripts of these Claude sessions if the settings say so; None: they stay."""
        if self.transcripts is None or not self._removes or not claude_session_ids:
            return None
        return await self.transcripts.remove(claude_session_ids)

    async def open(
        self,
        session_id: str,
        cwd: str | None = None,
        client: str | None = None,
        *,
        account: str | None = None,
    ) -> Session:
        """The session of whatever a list has under this id; one is made for a conversation of another
        program, and for a transcript.

        Raises SessionNotFound, and InvalidParams if it is not of `account`, or if the transcript's
        directory is there and not `cwd`. Nothing is made then.
        """
        try:
            known = await self._known(session_id, cwd, client, account)
        except SessionNotFound:
            found = None if self._found is None else await self._found.find(session_id)
            if found is None:
                raise
        else:
            require_same(known.environment.account, account)
            return known
        if cwd is not None:
            await adopting.has_moved(found.cwd, cwd)
        require_same(found.account, account)
        await self._adopt(found, client)
        session = await self._sessions.find(session_id)
        if session is None:
            raise SessionNotFound(session_id)
        return session

    @property
    def _removes(self) -> bool:
        return self.settings.delete_transcripts == "on"

    @property
    def _found(self) -> FoundTranscripts | None:
        """Transcripts, if sessions are made of them."""
        return self.transcripts if self.settings.list_transcripts == "on" else None

    async def _known(
        self,
        session_id: str,
        cwd: str | None = None,
        client: str | None = None,
        account: str | None = None,
    ) -> Session:
        session = await self._sessions.find(session_id)
        if session is not None:
            return session
        return await self._sessions.adopt(session_id, cwd, client, account)

    async def _adopt(self, found: FoundTranscript, client: str | None) -> None:
        """Make a session of a transcript, unless another request was first, or it was deleted."""
        session_id = found.claude_session_id
        record = SessionRecord(session_id, "", found.cwd, title=found.title, client=client)
        record.environment = StoredEnvironment(found.account)
        with contextlib.suppress(Conflict, RowRefused):
            name = await self._store.conversation_following(session_id)
            if name is not None:
                await self._store.adopt(replace(record, conversation_name=name))
            else:
                async with self._names.reserve(session_id) as name:
                    mode = found.mode if found.mode in TAKEN_OVER else None
                    record = replace(record, conversation_name=name, mode=mode)
                    await self._store.adopt_transcript(record, found.updated_at)
            log.info("Transcript adopted", action="transcript_adopted", session=session_id)

    def _folder(self, listed: ListedSession) -> str:
        """Where other programs run a conversation that no client has opened."""
        return str(Path(self.settings.data, "conversations", listed.conversation or ""))


async def _spellings(cwd: str) -> tuple[str, ...]:
    """A directory as it was given, and without symbolic links, as Claude names it."""
    with contextlib.suppress(TimeoutError):
        return tuple(dict.fromkeys((cwd, await disks.call(cwd, partial(os.path.realpath, cwd)))))
    return (cwd,)
