"""What a session is made of. Each part is given those below that it uses, and none knows the session:
it returns what follows from its work, or notes it in the state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import AbstractContextManager

from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.model.session_environment import DaemonEnvironment
from pykoclaw_acp.model.turns import SessionRecord, Turn, TurnTimes
from pykoclaw_acp.model.work import Work
from pykoclaw_acp.sessions.background import BackgroundTurns
from pykoclaw_acp.sessions.choosing import Choosing
from pykoclaw_acp.sessions.directories import Directories
from pykoclaw_acp.sessions.early_start import EarlyStart
from pykoclaw_acp.sessions.limit_waiting import LimitWaiting
from pykoclaw_acp.sessions.next_worker import NextWorker
from pykoclaw_acp.sessions.other_programs import OtherPrograms
from pykoclaw_acp.sessions.parking import Parking
from pykoclaw_acp.sessions.permissions.broker import Broker
from pykoclaw_acp.sessions.permissions.trusted_elsewhere import TrustedElsewhere
from pykoclaw_acp.sessions.ports import (
    Client,
    Journal,
    Transcripts,
    TurnLocks,
    Workers,
    Workspaces,
)
from pykoclaw_acp.sessions.rows_only import RowsOnly
from pykoclaw_acp.sessions.session_environment import SessionEnvironment
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.sessions.turns.deduplication import Deduplication
from pykoclaw_acp.sessions.turns.early_launcher import EarlyLauncher
from pykoclaw_acp.sessions.turns.endings import Endings
from pykoclaw_acp.sessions.turns.intake import Intake
from pykoclaw_acp.sessions.turns.overdue import Overdue
from pykoclaw_acp.sessions.turns.queue import AllWaiting, TurnQueue
from pykoclaw_acp.sessions.turns.runner import TurnRunner
from pykoclaw_acp.sessions.turns.slow_start import SlowStart
from pykoclaw_acp.sessions.turns.steering import Steering
from pykoclaw_acp.sessions.turns.titling import Titling
from pykoclaw_acp.sessions.turns.unclaimed import Unclaimed
from pykoclaw_acp.sessions.worker_reports import WorkerReports
from pykoclaw_acp.sessions.worker_requests import WorkerRequests
from pykoclaw_acp.sessions.workspace_gate import WorkspaceGate
from pykoclaw_acp.tasks import Tasks


class SessionParts:
    """The parts of one session, and what can be seen of it."""

    def __init__(
        self,
        record: SessionRecord,
        options: WorkerOptions,
        journal: Journal,
        workers: Workers,
        times: TurnTimes,
        *,
        daemon_environment: DaemonEnvironment | None = None,
        workspaces: Workspaces | None = None,
        transcripts: Transcripts | None = None,
        locks: TurnLocks | None = None,
        all_waiting: AllWaiting,
        trusted_elsewhere: TrustedElsewhere,
    ) -> None:
        self.id = record.session_id
        self.record = record
        self._state = state = SessionState(record, options, journal)
        self.log = state.log
        self.subscriptions = state.subscriptions
        self.closed_for: set[Client | None] = set()
        """Who has closed it since it was opened last; None: it is closed for all."""
        self.held: dict[asyncio.Task[None], Turn] = {}
        """Turns that are answered, with their `answered_with`, when all that these lead to has ended; by
        the call that does.
        """
        self._journal = journal
        self._workers = workers
        self._tasks = Tasks()
        self._queue = queue = TurnQueue(all_waiting)
        self._background = background = BackgroundTurns(state, workers)
        self.requests = WorkerRequests(state, workers)
        self.limit_wait = LimitWaiting(state, journal)
        self._titling = Titling(state, self.requests)
        self.permissions = Broker(state, journal, workers, times)
        self.unclaimed = Unclaimed(record, times.rejoin_window)
        self.others = OtherPrograms(
            state, journal, workers, transcripts or RowsOnly(), queue=queue, background=background,
            permissions=self.permissions, locks=locks, policy=times.lost_context,
        )  # fmt: skip
        self.early = EarlyStart(state, workers)
        self.next_worker = NextWorker(state, journal, workers, background, self.early)
        self.choosing = Choosing(state, journal, workers, self.next_worker, self.early)
        directories = Directories(state, workers, daemon_environment or DaemonEnvironment())
        self.environment = SessionEnvironment(
            state, workers, daemon_environment or DaemonEnvironment(), journal.clock
        )
        self.gate = gate = WorkspaceGate(
            state, journal, workers, self.permissions, workspaces,
            trusted_elsewhere=trusted_elsewhere,
        )  # fmt: skip
        self._endings = Endings(state, journal, queue, gate)
        self.early_launcher = EarlyLauncher(
            state, workers, self.early, gate=gate, environment=self.environment,
            choosing=self.choosing, directories=directories, others=self.others,
        )  # fmt: skip
        self.runner = TurnRunner(
            state, journal, workers,
            overdue=Overdue(self.id, journal, workers, queue, times.cancel_grace),
            unclaimed=self.unclaimed, gate=gate, endings=self._endings, choosing=self.choosing,
            environment=self.environment, titling=self._titling, directories=directories,
            others=self.others, early=self.early,
            slow=SlowStart(state, journal, workers, background),
        )  # fmt: skip
        self.steering = Steering(
            state,
            journal,
            workers,
            queue=queue,
            runner=self.runner,
            endings=self._endings,
            gate=gate,
        )
        self.reports = WorkerReports(
            state, journal, workers, queue=queue, runner=self.runner, endings=self._endings,
            background=background, permissions=self.permissions, choosing=self.choosing,
            others=self.others, next_worker=self.next_worker, usage_limit=times.usage_limit,
        )  # fmt: skip
        self.parking = Parking(
            state, journal, workers, permissions=self.permissions, queue=queue,
            background=background, runner=self.runner, requests=self.requests,
        )  # fmt: skip
        self.deduplication = Deduplication(record, journal, queue, times.rejoin_window)
        self.intake = Intake(record, self.deduplication, self.unclaimed, queue, journal)

    @property
    def options(self) -> WorkerOptions:
        """What its next worker is launched with."""
        return self._state.options

    @property
    def last_seq(self) -> int:
        """The newest event's place in the log."""
        return self._state.last_seq

    @property
    def busy(self) -> bool:
        """Whether a turn runs or waits."""
        return self._state.busy

    @property
    def background(self) -> bool:
        """Whether a turn runs that Claude began by itself."""
        return bool(self._background)

    async def background_over(self) -> None:
        """Wait until no turn runs that Claude began by itself."""
        await self._background.over()

    async def led_to(self, turn_id: str, tools: Collection[str] | None = None) -> Work:
        """What a turn of it has led to; `tools`: as in `model.work.led_to`."""
        return await self._journal.work(turn_id, tools)

    @property
    def turns(self) -> list[Turn]:
        """Turns that run, wait, or have ended without the journal knowing it yet."""
        return self._queue.turns

    def _unanswered(self, turn: Turn | None) -> list[Turn]:
        """This turn, or all, if it has not ended or its response is held."""
        held = [one for host in self.held.values() for one in host.with_answered()]
        every = dict.fromkeys([*self.turns, *held]) if turn is None else [turn]
        return [one for one in every if one in held or not one.ended.done()]

    def hold(self) -> AbstractContextManager[None]:
        """Begin no turn meanwhile; the one that runs goes on."""
        return self._queue.hold()

    def untold(self, turn_ids: set[str]) -> set[str]:
        """Which of these turns have messages that are not in the log yet."""
        return {one.turn_id for one in self.turns if one.untold and one.turn_id in turn_ids}
