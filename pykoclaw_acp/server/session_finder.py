"""The session that a command means: by its id, the beginning of one, or a conversation's name."""

from __future__ import annotations

from pykoclaw_acp.errors import InvalidParams, SessionNotFound
from pykoclaw_acp.model import conversations
from pykoclaw_acp.sessions import adopting
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.store import summaries
from pykoclaw_acp.store.database import Database


class SessionFinder:
    """Finds sessions, and makes one of a transcript; `create`: begin a conversation of this name if
    there is none.
    """

    def __init__(self, sessions: Sessions, database: Database) -> None:
        self._sessions = sessions
        self._database = database

    async def id_of(self, word: str, *, create: bool = False) -> str:
        """The id of the session; raises SessionNotFound, InvalidParams."""
        if not word.strip():
            raise InvalidParams(
                "The session is empty. Give an id, the beginning of one, or a name."
            )
        found = await summaries.matching(self._database, word)
        if not found:
            if create and not conversations.is_made_of_name(word):
                session = await self._sessions.of_name(word, create=True)
            else:
                session = await self._sessions.of_conversation(word)
            if session is None:  # or one that only Claude knows
                terminals = await summaries.of_terminals(self._database, word)
                if len(terminals) > 1:
                    raise adopting.ambiguous(word)
                session = await self._sessions.catalogue.open(*terminals or (word,))
            return session.id
        if len(found) > 1:
            raise adopting.ambiguous(word)
        return found[0]

    async def find(self, word: str, *, create: bool = False) -> Session:
        """The session; raises SessionNotFound, InvalidParams."""
        session = await self._sessions.find(await self.id_of(word, create=create))
        if session is None:
            raise SessionNotFound(word)
        return session
