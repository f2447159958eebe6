"""All sessions of all programs, as a list, and what can be done to each without opening it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from pykoclaw_acp.errors import Conflict, InvalidParams, SessionNotFound
from pykoclaw_acp.model.events import TitleChanged
from pykoclaw_acp.model.listing import Archived, ListedSession, ListQuery, Place
from pykoclaw_acp.sessions.ports import ListStore
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.turns import titles

PAGE: Final = 50  # sessions


@dataclass(frozen=True, slots=True)
class ListSettings:
    """Which sessions lists have, by the settings of these names."""

    data: str = "/"
    hide_channels: tuple[str, ...] = ()


class Registry(Protocol):
    """What is needed of the registry of sessions."""

    async def find(self, session_id: str) -> Session | None:
        """The session with this id or alias; None if there is none."""

    async def adopt(self, session_id: str, cwd: str | None, client: str | None) -> Session:
        """The session of a conversation that another program began; raises SessionNotFound."""

    async def close(self, session: Session) -> None:
        """End turns and worker."""

    async def delete(self, session: Session) -> None:
        """Close the session and delete its log."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of the list; `end`: what the next one begins after, None if there is none."""

    sessions: list[ListedSession]
    end: Place | None


class Catalogue:
    """Lists, names, archives and deletes sessions."""

    def __init__(self, sessions: Registry, store: ListStore) -> None:
        self.settings = ListSettings()
        self._sessions = sessions
        self._store = store

    async def page(
        self,
        after: Place | None = None,
        cwd: str | None = None,
        archived: Archived = Archived.EXCLUDE,
    ) -> Page:
        """The next sessions, newest first; `cwd`: of this directory only."""
        query = ListQuery(
            PAGE + 1,
            after,
            None if cwd is None else await asyncio.to_thread(_spellings, cwd),
            archived,
            self.settings.hide_channels,
        )
        found = await self._store.listed(query)
        more = len(found) > PAGE
        shown = [one if one.cwd else replace(one, cwd=self._folder(one)) for one in found[:PAGE]]
        return Page(shown, shown[-1].place if more else None)

    async def set_title(self, session_id: str, title: str) -> str:
        """Set the title, cut to one line of at most 80 characters, and tell clients; returns it.

        Raises SessionNotFound, and InvalidParams for a title without words.
        """
        session = await self._get(session_id)
        line = titles.shorten(title)
        if line is None:
            raise InvalidParams("`title`: must not be empty.")
        if line != session.record.title:
            await session.log.tell([TitleChanged(line)])
        return line

    async def archive(self, session_id: str, *, archived: bool) -> None:
        """Close the session and leave it out of lists, or take it back. Raises SessionNotFound."""
        session = await self._get(session_id)
        if archived and not session.record.closed:
            await self._sessions.close(session)
        try:
            await self._store.set_archived(session.id, archived=archived)
        except Conflict:
            raise SessionNotFound(session_id) from None

    async def delete(self, session_id: str) -> None:
        """Delete the session, if there is one: end its turns, remove what was said. Its id is not
        found again.
        """
        try:
            session = await self._get(session_id)
        except SessionNotFound:
            return
        await self._sessions.delete(session)

    async def _get(self, session_id: str) -> Session:
        """The session of whatever a list has under this id; raises SessionNotFound."""
        session = await self._sessions.find(session_id)
        return await self._sessions.adopt(session_id, None, None) if session is None else session

    def _folder(self, listed: ListedSession) -> str:
        """Where other programs run a conversation that no client has opened."""
        return str(Path(self.settings.data, "conversations", listed.conversation or ""))


def _spellings(cwd: str) -> tuple[str, ...]:
    """A directory as it was given, and without symbolic links, as Claude names it."""
    return tuple(dict.fromkeys((cwd, os.path.realpath(cwd))))
