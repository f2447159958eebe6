"""What Claude remembers of a session, as the database knows it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from pykoclaw_acp.model.branches import Branch, RewindPoint
from pykoclaw_acp.model.contexts import TurnEnd
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.sessions.ports.store import Store


class ContextStore(Store, Protocol):
    """What the database knows of Claude's memory of a session, and how a loss of it is recorded."""

    async def newest_ends(self, session_id: str, claude_id: str, limit: int) -> list[TurnEnd]:
        """The newest turns that this Claude session must hold, the newest first: complete ones of
        clients that were no slash commands, which have entries of their own,
        and of which it was not told that they are lost.
        """

    async def forgotten(self, session_id: str) -> set[str]:
        """Ids of the prompts of turns that were rewound, as the log's messages have them."""

    async def doubtful_carriers(self, session_id: str) -> list[str]:
        """Turns whose prompts left with notes and which did not end well, the newest first; at most
        20. Not those that were rewound, or that Claude was told it does not remember, nor those
        before another turn that ended well and that Claude remembers.
        """

    async def give_notes_again(self, turn_ids: Collection[str]) -> None:
        """The notes that the prompts of these turns carried are pending again. Waits while the
        database cannot be written.
        """

    async def has_note(self, note_id: str) -> bool:
        """Whether there is a note with this id, given to Claude or not."""

    async def refused(self, record: SessionRecord) -> RewindPoint | None:
        """The beginning of the newest turn, if Claude has refused its prompt, which a client has sent,
        and nothing came after it. None also where it is not known what Claude remembers there.
        """

    async def forget_refused(
        self, session_id: str, point: RewindPoint, note: Note | None, said: Sequence[Event]
    ) -> list[int]:
        """Let Claude forget that turn when it is prompted next, and tell it of the note; logs these
        events and returns their seqs. What was told with the prompt is pending again without a
        note. One transaction. Waits while the database cannot be written.
        """

    async def lose_context(
        self,
        session_id: str,
        branch: Branch | None,
        note: Note | None,
        said: Sequence[Event],
        lost: Collection[str] = (),
    ) -> list[int]:
        """Let the next Claude session begin at `branch`, give it the note with the next prompt, log
        these events, and keep that the turns `lost` are; with a branch, that all are. What was told
        with a prompt of `lost` is pending again. Returns the events' seqs. One transaction. Waits
        while the database cannot be written.
        """
