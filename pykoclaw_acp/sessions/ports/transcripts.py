"""The transcripts of Claude sessions, which other programs continue."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.turns import SessionRecord


class Standing(StrEnum):
    """How the Claude session that a conversation's row names relates to what its session's log
    holds.
    """

    SAME = "same"
    """The Claude session that the session follows, with no turns of others since the last look."""
    MOVED_ON = "moved_on"
    """Another program has continued it, under its id or under another one that holds its
    history."""
    SIDE = "side"
    """Another Claude session, which does not hold the session's history."""
    MISSING = "missing"
    """No transcript is found for it."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What a look at a session's transcripts has found.

    `logged`: events that are in the log from now on, in order; subscribers have not got them yet.
    `digest`: what another branch or Claude session holds and the followed one lacks, as bounded
    text for Claude; None if there is nothing new of that kind.
    """

    standing: Standing
    logged: list[Logged] = field(default_factory=list)
    digest: str | None = None


class Transcripts(Protocol):
    """Transcripts, looked at from a session."""

    async def take_in(
        self, record: SessionRecord, row_session_id: str | None, *, own: Collection[str]
    ) -> Imported:
        """Import what the transcripts hold and the log lacks.

        `row_session_id`: the Claude session in the conversation's row; `own`: ids of this session's
        turns that have not ended. Nothing is parsed if no file has changed. Patient.
        """

    def watch(self, session_id: str, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` on the loop whenever a transcript of the session changes; returns what
        ends the watching.
        """
