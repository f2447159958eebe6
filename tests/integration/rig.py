"""Sessions and a pool on a real database, with workers in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from pykoclaw_acp.channel.frames import EventFrame, TurnStarted
from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.model import prompt_text
from pykoclaw_acp.model.choices import Command, Selection
from pykoclaw_acp.model.events import PlanEntry, Text, UserMessage
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.permissions import Decision, PermissionRequest
from pykoclaw_acp.model.turns import Outcome, Turn, TurnTimes
from pykoclaw_acp.pool.pool import WorkerPool
from pykoclaw_acp.pool.ports import PoolLimits
from pykoclaw_acp.sessions.catalogue import ListSettings
from pykoclaw_acp.sessions.forking import Forks
from pykoclaw_acp.sessions.ports import Transcripts, TurnLocks, Workspaces
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.hinting_journal import HintingJournal
from pykoclaw_acp.store.journal.branches import SqlBranchStore
from pykoclaw_acp.store.workers import SqlWorkerStore
from tests import databases
from tests.integration.memory_launcher import MemoryChannel, MemoryLauncher
from tests.integration.scripted_transcripts import ScriptedTranscripts
from tests.waiting import eventually
from tests.workers import OPTIONS

TIMES = Settings().fill(TurnTimes, cancel_grace=0.5)
LISTS = Settings().fill(ListSettings, data="/", list_transcripts="off")


class Client:
    """Keeps what it was shown; slow by a turn of the loop, so that it falls behind."""

    name = "test"
    present = True
    forms = False
    pages = False
    asks_together = False
    only_declines = False
    cancels_when_absent = False
    drops_plan = False

    def __init__(self) -> None:
        self.shown: list[Logged] = []

    async def deliver(self, session_id: str, logged: Logged) -> None:
        await asyncio.sleep(0)
        self.shown.append(logged)

    async def request_permission(
        self, session_id: str, request: PermissionRequest
    ) -> dict[str, Any]:
        return {"outcome": "cancelled"}

    async def start_updates(self, session_id: str, seq: int, number: int) -> None:
        pass

    def recall(self, session_id: str, logged: Logged) -> None:
        pass

    async def offer(self, session_id: str, commands: tuple[Command, ...]) -> None:
        pass

    async def show_choices(self, session_id: str, selection: Selection) -> None:
        pass

    async def skip_own(self, session_id: str, seq: int) -> None:
        pass

    async def insert(self, session_id: str, message_id: str, text: str) -> None:
        pass

    async def show(self, session_id: str, message_id: str, text: str) -> None:
        pass

    async def show_plan(self, session_id: str, entries: tuple[PlanEntry, ...]) -> None:
        pass

    def stop_updates(self, session_id: str) -> None:
        pass

    async def repeat_request(self, ask_id: str) -> None:
        pass

    def close_request(self, ask_id: str, decision: Decision | None = None) -> None:
        pass

    @property
    def text(self) -> str:
        return "".join(one.event.text for one in self.shown if isinstance(one.event, Text))

    @property
    def places(self) -> list[int]:
        """The places in the log that were shown."""
        return [seq for one in self.shown for seq in range(one.first, one.seq + 1)]


class Rig:
    journal: HintingJournal

    def __init__(
        self, database: Database, sessions: Sessions, pool: WorkerPool, launcher: MemoryLauncher
    ) -> None:
        self.database, self.sessions, self.pool, self.launcher = database, sessions, pool, launcher

    async def session(self) -> Session:
        return await self.sessions.create("/", (), ())

    async def prompt(self, session: Session, text: str, *, helper: bool = False) -> Turn:
        turn = Turn(str(uuid4()), session.id, [{"type": "text", "text": text}])
        turn.helper = helper or prompt_text.by_client_itself(turn.content, None)
        if not session.subscriptions:
            session.subscribe(Client(), 0)
        await session.submit(turn)
        return turn

    async def run(self, session: Session, text: str) -> Outcome:
        turn = await self.prompt(session, text)
        return (await asyncio.wait_for(turn.ended, 30))[0]

    async def states(self) -> dict[str, str]:
        return dict(await self.database.read("SELECT turn_id, state FROM acp_turns"))

    async def seqs(self, session: Session) -> list[int]:
        """The places that the log's rows cover."""
        rows = await self.database.read(
            "SELECT first_seq, seq FROM acp_log JOIN acp_sessions USING (log_key) WHERE acp_session_id = ?"
            " UNION ALL SELECT seq, seq FROM acp_events WHERE acp_session_id = ? ORDER BY 2",
            (session.id, session.id),
        )
        return [seq for first, last in rows for seq in range(first, last + 1)]


@asynccontextmanager
async def rig(
    path: Path,
    transcripts: Transcripts | None = None,
    locks: TurnLocks | None = None,
    *,
    options: WorkerOptions = OPTIONS,
    times: TurnTimes = TIMES,
    workspaces: Workspaces | None = None,
    launcher: MemoryLauncher | None = None,
    **limits: Any,
) -> AsyncIterator[Rig]:
    """`launcher`: that of a daemon before, whose workers live."""
    database = await databases.open_new(path / "pykoclaw.db")
    journal = HintingJournal(database)
    sessions = Sessions(
        journal, options, times, LISTS, workspaces=workspaces, transcripts=transcripts, locks=locks
    )
    if isinstance(transcripts, ScriptedTranscripts):
        transcripts.store = journal
    launcher = launcher or MemoryLauncher(path.parent)
    numbers = {
        "max_workers": 100,
        "idle_timeout": 100.0,
        "worker_start_timeout": 30.0,
        "stall_timeout": 30.0,
        "stop_grace": 1.0,
        "orphan_grace": 0.0,
        "spool_limit": 1024 * 1024,
        "scheduler": "off",
    }
    pool = WorkerPool(
        launcher,
        SqlWorkerStore(database),
        sessions.worker_events,
        PoolLimits(instance=path.name, data="", **{**numbers, **limits}),
    )
    sessions.workers = pool
    sessions.forks = Forks(SqlBranchStore(database), sessions.names, sessions.find)
    try:
        made = Rig(database, sessions, pool, launcher)
        made.journal = journal
        yield made
    finally:
        for session in sessions.live.values():
            for subscription in list(session.subscriptions):
                subscription.close()
        await pool.close(1.0)
        await database.close()


async def unreadable(*_: object) -> list[dict[str, Any]]:
    """In the place of `contents.whole`: an image of the prompt cannot be read."""
    raise OSError("Input/output error")


async def hanging(r: Rig) -> tuple[Session, Turn, MemoryChannel]:
    """A session in whose turn nothing happens by itself, and its worker."""
    session = await r.session()
    turn = await r.prompt(session, "hang")
    await eventually(lambda: r.launcher.launched and r.launcher.launched[-1].acked)
    return session, turn, r.launcher.launched[-1]


def claim_all(session: Session) -> None:
    """Somebody stands behind each prompt that waits."""
    for turn in session.turns:
        session.unclaimed.claim(turn)


def take_up(worker: MemoryChannel, turn: Turn, into: Turn) -> None:
    """The running turn takes up a steered prompt."""
    worker.last += 2
    event = UserMessage(turn.turn_id, turn.content[0])
    worker.say(
        TurnStarted(epoch=1, n=worker.last - 1, turn_id=turn.turn_id, into=into.turn_id),
        EventFrame(epoch=1, n=worker.last, turn_id=into.turn_id, event=event),
    )
