"""The journal of turns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, Protocol

from pykoclaw_acp.channel.frames import Numbered
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.model.turns import Outcome, PromptKeys, Turn
from pykoclaw_acp.model.work import Work
from pykoclaw_acp.sessions.ports.store import Store


class TurnJournal(Store, Protocol):
    """Turns and their states, which only move forward. Each change is committed with the events
    that tell of it.
    """

    async def accept(self, turn: Turn) -> None:
        """Insert a prompt as `queued`, durably. Raises RowRefused if its id or one of its unique
        keys exists, Conflict if there is no such session, or if it is a task's run that has ended.
        """

    async def begin_attempt(self, turn_id: str) -> None:
        """This daemon starts to prepare a `queued` turn; the count survives if it dies doing so.
        Waits while the database cannot be written.
        """

    async def undo_attempt(self, turn_id: str) -> None:
        """Undo `begin_attempt` for a turn that is still `queued`."""

    async def detach(self, turn_id: str) -> None:
        """Nobody waits for the turn any more: it runs whoever is there."""

    async def ask_cancel(self, turn_id: str) -> None:
        """The worker was told to stop the turn: whatever ends it from now on, it ends `cancelled`.
        Waits while the store cannot be written; raises DamageMet.
        """

    async def in_transcript(self, session_id: str, turn_id: str) -> bool:
        """Whether a transcript of the session that was looked at has the turn's prompt."""

    async def dispatch(
        self, turn: Turn, epoch: int, events: Sequence[Event], notes: Sequence[Note] = ()
    ) -> list[int]:
        """`queued` to `dispatched`, durably, with the user's message; returns the events' seqs.
        Waits while the database cannot be written. The prompt carries these notes from then on.

        Raises Conflict if the turn is not `queued`.
        """

    async def record(
        self, session_id: str, epoch: int, frames: Sequence[Numbered], outcomes: dict[str, Outcome]
    ) -> list[Logged]:
        """A worker's frames in one transaction: events, turn states, permission requests, its
        acknowledged frame. Waits while the database cannot be written.

        `outcomes`: of the turns that end in these frames, by turn. Returns the logged events.
        Raises StaleEpoch if the worker is not the session's newest, Conflict if the session was
        deleted.
        """

    async def finish(
        self,
        session_id: str,
        turn_id: str,
        outcome: Outcome,
        events: Sequence[Event],
        *,
        silent: bool = False,
    ) -> tuple[Outcome, list[int]]:
        """End a turn that no worker can end; returns its outcome and the events' seqs. Waits while
        the database cannot be written.

        A turn that has ended keeps its outcome, and the events are dropped. `silent`: nothing but the end
        is written, as the log is damaged. Raises NoPlaceForEnd if there is no such turn.
        """

    async def say_cancelled(
        self, session_id: str, turn_id: str, events: Sequence[Event]
    ) -> list[int]:
        """Log, as events of no turn, what a prompt was that has ended `unsaid`; returns their seqs.
        Waits while the database cannot be written. Raises Conflict if the log has it already, or
        there is no such turn.
        """

    async def mark_answered(self, turn_id: str) -> None:
        """A client has received the turn's response. Waits while the database cannot be written."""

    async def ended_turns(
        self, session_id: str, column: Literal["request_key", "idempotency_key"], value: str
    ) -> list[tuple[Turn, Outcome]]:
        """Ended turns of clients, by one of their unique keys; without their content."""

    async def is_rewound(self, turn_id: str) -> bool:
        """Whether Claude was made to forget the turn."""

    async def newest_turn(self, session_id: str, since: int) -> tuple[Turn, Outcome] | None:
        """The session's last prompt of a client, if it ended at or after `since` (ms,
        own clock).
        """

    async def work(self, turn_id: str, tools: Collection[str] | None = None) -> Work:
        """What a turn has led to; `tools`: as in `led_to`."""

    async def has_unfinished(self, session_id: str, keys: PromptKeys) -> bool:
        """Whether a turn without an end has this request key or idempotency key."""

    async def find_unfinished(self, session_id: str, keys: PromptKeys) -> Turn | None:
        """The turn without an end that has this request key."""

    async def turns_of_front(self, session_id: str, front: str) -> dict[str, str]:
        """Ids of the turns that came through a front, with their request keys."""
