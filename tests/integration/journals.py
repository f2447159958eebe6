"""Both implementations of the journal, for the contract tests: what holds for one holds for the
other.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pykoclaw_acp.channel.frames import EventFrame, Numbered, TurnEnded, TurnStarted
from pykoclaw_acp.model.events import Event, Text
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.permissions import PermissionRequest
from pykoclaw_acp.model.turns import Outcome, PromptKeys, SessionRecord, Turn, TurnState
from pykoclaw_acp.notify.ports import NoticeStore
from pykoclaw_acp.pool.ports import WorkerStore
from pykoclaw_acp.sessions.ports import DeliveryStore, Journal
from pykoclaw_acp.sessions.ports.branches import BranchStore
from pykoclaw_acp.sessions.ports.restoring import RestoreStore
from pykoclaw_acp.sessions.ports.tasks import TaskStore
from pykoclaw_acp.store.condition import StoreCondition
from pykoclaw_acp.store.journal.branches import SqlBranchStore
from pykoclaw_acp.store.journal.deliveries import SqlDeliveryStore
from pykoclaw_acp.store.journal.notices import SqlNoticeStore
from pykoclaw_acp.store.journal.restoring import SqlRestoreStore
from pykoclaw_acp.store.journal.tasks import SqlTaskStore
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.store.workers import SqlWorkerStore
from pykoclaw_acp.transcripts.ports import FoundStore, ImportStore
from tests import databases
from tests.integration.programs import MemoryPrograms, OtherPrograms, SqlPrograms
from tests.twins.branches import MemoryBranchStore
from tests.twins.deliveries import MemoryDeliveryStore
from tests.twins.journal import MemoryJournal
from tests.twins.notices import MemoryNoticeStore
from tests.twins.restoring import MemoryRestoreStore
from tests.twins.tasks import MemoryTaskStore
from tests.twins.worker_rows import MemoryWorkerStore

BOTH = ("memory", "sqlite")
DONE = Outcome(TurnState.DONE, stop_reason="end_turn", usage={"inputTokens": 1})
CANCELLED = Outcome(TurnState.CANCELLED, stop_reason="cancelled")


@dataclass(frozen=True)
class Subject:
    """One implementation, and what a test needs beside it."""

    journal: Journal
    imports: ImportStore
    found: FoundStore
    branches: BranchStore
    deliveries: DeliveryStore
    tasks: TaskStore
    restoring: RestoreStore
    notices: NoticeStore
    workers: WorkerStore
    others: OtherPrograms
    condition: StoreCondition
    close: Callable[[], Awaitable[None]]
    attempts: Callable[[str], Awaitable[int]]
    """How many daemons have begun to prepare a turn."""

    async def session(self, name: str = "one", **fields: Any) -> str:
        """A session with this id."""
        await self.journal.create(SessionRecord(name, f"acp-{name}", "/work", **fields))
        return name

    async def running(self, session: str, turn_id: str = "turn", **fields: Any) -> tuple[Turn, int]:
        """A turn that Claude has taken up, and the epoch of its worker."""
        turn = prompt(session, turn_id, **fields)
        await self.journal.accept(turn)
        epoch = await self.workers.next_epoch(session)
        await self.journal.dispatch(turn, epoch, [])
        await self.journal.record(
            session, epoch, [TurnStarted(epoch=epoch, n=1, turn_id=turn_id)], {}
        )
        return turn, epoch

    async def ended(
        self, session: str, turn_id: str, outcome: Outcome = DONE, **fields: Any
    ) -> None:
        """A turn that has ended."""
        await self.journal.accept(prompt(session, turn_id, **fields))
        await self.journal.finish(session, turn_id, outcome, [])

    async def texts(self, session: str, after: int = 0) -> str:
        """What the log says after a cursor."""
        logged = await self.journal.read(session, after, 1000)
        return "".join(one.event.text for one in logged if isinstance(one.event, Text))

    async def state(self, session: str, turn_id: str) -> TurnState | None:
        """State of a turn that has ended, by its request key, which `prompt` makes of its id."""
        found = await self.journal.ended_turns(session, "request_key", f"front:{turn_id}")
        return found[0][0].state if found else None


def prompt(
    session: str, turn_id: str = "turn", *, keys: PromptKeys | None = None, **fields: Any
) -> Turn:
    """A prompt that waits; its request key is made of its id."""
    keys = keys or PromptKeys(request=f"front:{turn_id}")
    return Turn(turn_id, session, [{"type": "text", "text": "Hello"}], keys, **fields)


def said(epoch: int, first: int, turn_id: str, *texts: str) -> list[Numbered]:
    """Frames with pieces of a message, from the number `first` on."""
    return [
        EventFrame(epoch=epoch, n=n, turn_id=turn_id, event=Text("message", text))
        for n, text in zip(itertools.count(first), texts, strict=False)
    ]


def end(epoch: int, n: int, turn_id: str) -> TurnEnded:
    """A worker says that a turn has ended."""
    return TurnEnded(
        epoch=epoch, n=n, turn_id=turn_id, stop_reason="end_turn", claude_session_id="claude"
    )


def request(name: str, turn_id: str = "turn", **fields: Any) -> PermissionRequest:
    """A worker asks for permission."""
    fields = {"epoch": 1, "n": 2} | fields
    return PermissionRequest(
        ask_id=name,
        turn_id=turn_id,
        tool_call_id="tool",
        title="Bash: make",
        tool_kind="execute",
        **fields,
    )


def places(logged: Sequence[Logged]) -> list[int]:
    """The seqs that these events cover."""
    return [seq for one in logged for seq in range(one.first, one.seq + 1)]


def events(logged: Sequence[Logged]) -> list[Event | None]:
    return [one.event for one in logged]


@asynccontextmanager
async def subject(kind: str, path: Path) -> AsyncIterator[Subject]:
    """The implementation of this name."""
    if kind == "memory":
        journal = MemoryJournal()
        memory = journal.database

        async def close() -> None:
            memory.close()

        async def attempts(turn_id: str) -> int:
            return memory.turns[turn_id].attempts

        yield Subject(
            journal, journal, journal,
            MemoryBranchStore(memory), MemoryDeliveryStore(memory), MemoryTaskStore(memory),
            MemoryRestoreStore(memory), MemoryNoticeStore(memory), MemoryWorkerStore(memory),
            MemoryPrograms(memory), memory.condition, close, attempts,
        )  # fmt: skip
        return
    database = await databases.open_new(path / "pykoclaw.db")

    async def counted(turn_id: str) -> int:
        ((count,),) = await database.read(
            "SELECT attempts FROM acp_turns WHERE turn_id = ?", (turn_id,)
        )
        return int(count)

    try:
        stored = SessionJournal(database)
        yield Subject(
            stored, stored, stored,
            SqlBranchStore(database), SqlDeliveryStore(database), SqlTaskStore(database),
            SqlRestoreStore(database), SqlNoticeStore(database), SqlWorkerStore(database),
            SqlPrograms(database), database.condition, database.close, counted,
        )  # fmt: skip
    finally:
        await database.close()
