"""Forks and rewinding in the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from pykoclaw_acp.model.branches import Fork, ForkedAt, ForkPoint, RewindPoint, Rewound
from pykoclaw_acp.model.events import Event, OpenTools
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.sessions.ports.making import MakingStore


class BranchStore(MakingStore, Protocol):
    """Places between turns at which a session can be forked, and its forks."""

    async def point(
        self, record: SessionRecord, last_seq: int, message_id: str | None
    ) -> ForkPoint:
        """The end of the turn of a message; without one, that of the last turn that has ended.

        Raises InvalidParams for an unknown message, InvalidRequest if its turn runs, was rewound, or
        if it is not known what Claude remembers there.
        """

    async def rewind_point(self, record: SessionRecord, message_id: str | None) -> RewindPoint:
        """The beginning of the turn of a message; without one, of the newest prompt that Claude
        knows. Raises as `point`.
        """

    async def rewound(self, request_key: str) -> Rewound | None:
        """What the rewind of this request has changed; None if there was none."""

    async def begin_rewind(self, session_id: str, planned: Rewound) -> None:
        """Keep, durably, what a rewind is about to change, until one of the session is done."""

    async def begun_rewind(self, session_id: str) -> Rewound | None:
        """What a rewind of the session that is not done was about to change; None if there is none."""

    async def rewind(
        self,
        session_id: str,
        point: RewindPoint,
        said: Sequence[Event],
        done: Rewound,
        *,
        note: Note | None,
        request_key: str | None,
    ) -> list[int]:
        """Let Claude forget what came from there on, when it is prompted next, and tell it of the
        note; logs these events and returns their seqs. `done` is kept for the request. Parked requests
        of the turns that were rewound are settled. Waits while the database cannot be written: files
        may have been put back.
        """

    async def parked(self, session_id: str, before: str) -> set[str]:
        """Ids of the session's parked requests that a rewind to the beginning of this turn leaves pending."""

    async def open_tools(self, session_id: str, upto: int) -> OpenTools:
        """Tool calls up to this place that end later, or not at all."""

    async def find_created(self, request_key: str) -> str | None:
        """Id of the session that this request has created."""

    async def forked_at(self, session_id: str) -> ForkedAt | None:
        """Where this fork was made; None for one of a version that did not note it."""

    async def fork(self, fork: Fork) -> None:
        """Make a fork; it is there whole when this returns. Otherwise it is hidden, and to be given up.

        Raises Conflict if its source was deleted.
        """
