"""Sessions in the database."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.sessions.ports.store import Store

if TYPE_CHECKING:
    from pykoclaw_acp.model.away import AwayPolicy


class SessionStore(Store, Protocol):
    """Session rows: created, found, closed, pruned, deleted."""

    async def create(self, record: SessionRecord) -> None:
        """Insert a session and its conversation. Raises RowRefused if its id or its request key
        exists.
        """

    async def find(self, session_id: str) -> SessionRecord | None:
        """The session that this id, which may be an alias, stands for; None if there is none or it
        was deleted.
        """

    async def find_created(self, request_key: str) -> str | None:
        """Id of the session that this `session/new` request has created."""

    async def was_taken(self, request_key: str) -> bool:
        """Whether this request has made a session or a turn."""

    async def id_taken(self, session_id: str) -> bool:
        """Whether a session has or had this id, or a conversation a Claude session of it."""

    async def name_taken(self, name: str) -> bool:
        """Whether a conversation of any channel has this name."""

    async def current_seq(self, session_id: str, seq: int) -> int:
        """The `seq` that an event of this id's log has now: another one if logs were
        merged since.
        """

    async def inherited_end(self, session_id: str) -> int | None:
        """Where the session's log ended before this process wrote to it; None: it has not."""

    async def reopen(self, record: SessionRecord, said: Sequence[Event] = ()) -> list[int]:
        """Reopen the session with the record's directories and environment, and log with it events
        that belong to no turn, whose seqs are returned. Waits while the database cannot be written.
        """

    async def outdate_worker(self, session_id: str, *, spare: bool) -> None:
        """The next prompt is not for the worker that the session has, also under the next daemon;
        `spare`: until then its background commands go on. Waits while the database cannot be
        written.
        """

    async def mark_closed(self, session_id: str) -> None:
        """The client has closed the session."""

    async def set_away_policy(
        self, session_id: str, policy: AwayPolicy | None, *, patient: bool = False
    ) -> None:
        """The session's own away policy; None: that of the settings."""

    async def set_steering(self, session_id: str, *, steers: bool) -> None:
        """Whether prompts go into the running turn unless they say otherwise."""

    async def delete(
        self,
        session_id: str,
        hidden: Callable[[], object] = lambda: None,
        transcripts: Collection[str] = (),
    ) -> None:
        """Delete the session: its id is never found or used again. From when `hidden` is called it is
        deleted whatever happens; its contents follow, as soon as the database can be written. The
        `transcripts` of these Claude sessions are noted as to be removed.
        """

    async def unused(self, before: int) -> list[str]:
        """Sessions never prompted by a person and not used since `before` (ms, own clock)."""

    async def prune(
        self, session_id: str, before: int, hidden: Callable[[], object] = lambda: None
    ) -> bool:
        """Hide the session, if it is still unused, and delete the contents; it can be reopened, empty.
        `hidden` is called as soon as it is: the contents may take a while.
        """
