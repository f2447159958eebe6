"""A session's title: words of its first prompt, which Claude may replace by one of its own.

A title that a person has set stays, whenever it was set.
"""

from __future__ import annotations

import time
from typing import Final

import structlog

from pykoclaw_acp.errors import InvalidRequest, StoreClosed, StoreUnavailable
from pykoclaw_acp.model.events import BY_CLAUDE, BY_CONTENT, BY_WORDS, Event, TitleChanged
from pykoclaw_acp.model.turns import SessionRecord, Turn, TurnState
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.sessions.turns import titles
from pykoclaw_acp.sessions.turns.plain_words import without_markdown
from pykoclaw_acp.sessions.worker_requests import WorkerRequests
from pykoclaw_acp.tasks import Tasks

MOST_WORDS: Final = 4000  # characters of a prompt that Claude names the session after
TRIES: Final = 3  # of one daemon; the next answer brings the next one

log: Final = structlog.get_logger()


class Titling:
    """Gives one session its title."""

    def __init__(self, state: SessionState, requests: WorkerRequests) -> None:
        self._state = state
        self._requests = requests
        self._tries = 0
        self._tasks = Tasks()

    def __bool__(self) -> bool:
        """Whether Claude is being asked."""
        return bool(self._tasks)

    def after(self, turn: Turn) -> None:
        """Ask Claude for a title, after an answer, if the setting allows it and the session has
        none but words.
        """
        allowed = self._state.options.titles == "claude" and self._tries < TRIES
        if not allowed or self._tasks or not self._wanted:
            return
        if turn.ended.result()[0].state == TurnState.DONE and (words := titles.words(turn.content)):
            self._tries += 1
            self._tasks.start(self._replace(words), name="make-title")

    @property
    def _wanted(self) -> bool:
        record = self._state.record
        return record.title_by == BY_WORDS and not record.auxiliary

    async def _replace(self, words: str) -> None:
        try:
            made = await self._requests.make_title(words[:MOST_WORDS])
            title = titles.shorten(without_markdown(made or ""))
            if title is not None and self._wanted and title != self._state.record.title:
                await self._state.log.tell([changed(title, BY_CLAUDE)])
        except (InvalidRequest, StoreUnavailable, StoreClosed) as error:
            log.info("Claude has made no title", action="title_not_made", reason=str(error))


def first(record: SessionRecord, turn: Turn) -> list[Event]:
    """The title from the words of a prompt that the log gets, if the session has none; until a prompt
    has words, one from what it has else.
    """
    if record.auxiliary or not lacks_words(record):
        return []
    if (title := titles.title(turn.content)) is not None:
        return [changed(title, BY_WORDS)]
    title = titles.of_content(turn.content) if record.title is None else None
    return [] if title is None else [changed(title, BY_CONTENT)]


def lacks_words(record: SessionRecord) -> bool:
    """Whether a session has no title yet, or only one of a prompt without words."""
    return record.title is None or record.title_by == BY_CONTENT


def changed(title: str, by: str) -> TitleChanged:
    """The event of a title that a program has made just now."""
    return TitleChanged(title, by, time.time_ns() // 1_000_000)
