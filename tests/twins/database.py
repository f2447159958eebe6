"""An in-memory database: plain rows, with the rules that the real one enforces. Shared by the twins
of its parts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pykoclaw_acp.channel.processes import WorkerRecord
from pykoclaw_acp.errors import Conflict, RowRefused, StaleEpoch, StoreClosed
from pykoclaw_acp.model.branches import ForkedAt, Rewound
from pykoclaw_acp.model.choices import Configuration, Offer
from pykoclaw_acp.model.cursors import Cursor
from pykoclaw_acp.model.events import ConfigChanged, Event, ModeChanged, TitleChanged
from pykoclaw_acp.model.imports import TranscriptRow, TranscriptTurn
from pykoclaw_acp.model.limit_waits import LimitWait
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.permissions import (
    PermissionRequest,
    RequestOutcome,
    RequestPolicy,
    StoredRequest,
    Workspace,
)
from pykoclaw_acp.model.scheduled import Task
from pykoclaw_acp.model.trust import Trusted
from pykoclaw_acp.model.turns import UNFINISHED, Outcome, PromptKeys, SessionRecord, Turn, TurnState
from pykoclaw_acp.store.condition import StoreCondition
from pykoclaw_acp.system.clock import Clock
from tests.twins.rows import (
    FoundRow,
    NoticeRow,
    NotificationRow,
    QueuedDelivery,
    RunLog,
    RunRow,
)

T = TypeVar("T")


@dataclass
class SessionRow:
    """A session; `record.last_seq` is where its log ends, also when its events are gone."""

    record: SessionRecord
    used_clock: int
    epoch: int = 0
    alias_of: str | None = None
    prompt_hash: str | None = None
    pruned: bool = False
    deleted: bool = False
    hidden: bool = False  # deleted for now, because it is being made
    archived: bool = False
    updated_at: int = 0  # ms since 1970; by turns, not by opening it

    @property
    def gone(self) -> bool:
        """Whether it was deleted for good."""
        return self.deleted and not self.hidden


@dataclass
class TurnRow:
    """A turn; `client` is None for one that Claude began by itself, if `background`."""

    turn_id: str
    session_id: str
    content: list[dict[str, Any]] = field(default_factory=list)
    keys: PromptKeys = field(default_factory=PromptKeys)
    position: int = 0  # given as it is inserted
    created_at: int = 0
    client: str | None = None
    client_process: str | None = None
    background: bool = False
    task_id: str | None = None
    detached: bool = False
    state: TurnState = TurnState.QUEUED
    dispatched: bool = False
    cancel_asked: bool = False
    started: bool = False
    taken_by: str | None = None
    attempts: int = 0
    answered: bool = False
    lost: bool = False
    unsaid: bool = False
    rewound: bool = False
    outcome: Outcome | None = None
    ended_clock: int | None = None
    ended_at: int = 0
    last_seq: int = 0  # where the log stood at its end

    @property
    def unfinished(self) -> bool:
        return self.state in UNFINISHED


@dataclass
class MemoryDatabase:
    """The tables. `write` changes them as one transaction: if the change raises, its caller has
    changed nothing.
    """

    clock: Clock = field(default_factory=lambda: Clock(None))
    condition: StoreCondition = field(default_factory=StoreCondition)
    closed: bool = False
    rules: set[tuple[str, str]] = field(default_factory=set)  # path or session, and rule
    begun: dict[str, str] = field(default_factory=dict)  # sessions, by Claude session
    inherited: dict[str, int] = field(default_factory=dict)  # ends of logs before the first write
    buried: set[str] = field(default_factory=set)  # Claude sessions that make no session any more
    to_remove: set[str] = field(default_factory=set)  # those whose transcripts are to be removed
    sessions: dict[str, SessionRow] = field(default_factory=dict)
    claude_sessions: dict[str, str | None] = field(default_factory=dict)  # by conversation
    folders: dict[str, str | None] = field(default_factory=dict)  # by conversation
    hashes: dict[str, str | None] = field(default_factory=dict)  # by conversation
    turns: dict[str, TurnRow] = field(default_factory=dict)
    logs: dict[str, list[Logged]] = field(default_factory=dict)
    requests: dict[str, StoredRequest] = field(
        default_factory=dict
    )  # in the order in which they came
    trust: dict[tuple[str, str], Trusted] = field(default_factory=dict)  # by path and content
    cursors: dict[tuple[str, str, str, str], Cursor] = field(default_factory=dict)
    ended_cursors: dict[tuple[str, str, str, str], int] = field(
        default_factory=dict
    )  # since when (ms, own clock)
    notes: dict[str, tuple[str, str]] = field(default_factory=dict)  # session and text
    carriers: dict[str, str] = field(default_factory=dict)  # turn, by note
    delivered_after: dict[str, int] = field(default_factory=dict)  # seq, by note of a delivery
    limit_waits: dict[str, LimitWait] = field(default_factory=dict)  # by session
    # by directory and configuration, the newest last
    offers: dict[tuple[str, Configuration], Offer] = field(default_factory=dict)
    acknowledged: dict[tuple[str, int], int] = field(
        default_factory=dict
    )  # frame, by session and epoch

    followed: dict[str, str] = field(default_factory=dict)  # Claude session, by session
    transcripts: dict[tuple[str, str], TranscriptRow] = field(default_factory=dict)
    transcript_turns: dict[tuple[str, str], TranscriptTurn] = field(default_factory=dict)
    rewound_turns: dict[tuple[str, str], None] = field(default_factory=dict)  # of others
    told_by: dict[tuple[str, str], str] = field(default_factory=dict)  # note, by session and turn
    sources: dict[tuple[str, str], int] = field(default_factory=dict)  # seqs of imported events
    blobs: dict[str, bytes] = field(default_factory=dict)  # by hash
    delivery_queue: dict[int, QueuedDelivery] = field(
        default_factory=dict
    )  # in the order of their insertion
    attempts: dict[str, int] = field(default_factory=dict)  # to show a delivery
    tasks: dict[str, Task] = field(default_factory=dict)
    run_logs: dict[str, tuple[RunLog, ...]] = field(default_factory=dict)  # by task
    runs: dict[str, RunRow] = field(default_factory=dict)  # by turn
    noticing_since: int | None = None  # ms, own clock; None: notices are off
    notices: dict[str, NoticeRow] = field(default_factory=dict)
    notifications: dict[tuple[str, str], NotificationRow] = field(
        default_factory=dict
    )  # by notice and target
    found: dict[str, FoundRow] = field(default_factory=dict)  # by path
    found_folders: dict[str, str] = field(default_factory=dict)  # digests
    workers: dict[tuple[str, int], WorkerRecord] = field(default_factory=dict)  # by epoch
    rewinds: dict[str, Rewound] = field(default_factory=dict)  # by request
    begun_rewinds: dict[str, Rewound] = field(default_factory=dict)  # by session
    forks: dict[str, ForkedAt] = field(default_factory=dict)  # by session

    async def write(self, change: Callable[[], T], *, patient: bool = False) -> T:
        """What the change returns; refused, or `patient`, while the database cannot be written."""
        self._require_open()
        if patient:
            await self.condition.writable()
            self._require_open()
        else:
            self.condition.require()
        before = self._snapshot()
        try:
            return change()
        except BaseException:
            vars(self).update(before)
            raise

    def _snapshot(self) -> dict[str, Any]:
        tables = {
            name: dict(value) for name, value in vars(self).items() if isinstance(value, dict)
        }
        logs = {key: list(log) for key, log in self.logs.items()}
        return tables | {
            "sessions": deepcopy(self.sessions),
            "turns": deepcopy(self.turns),
            "logs": logs,
        }

    def read(self) -> MemoryDatabase:
        """The tables, unless they are closed."""
        self._require_open()
        return self

    def close(self) -> None:
        self.closed = True
        self.condition.give_up()

    def _require_open(self) -> None:
        if self.closed:
            raise StoreClosed("the database was closed")

    # --- rules

    def session(self, session_id: str) -> SessionRow:
        """Raises Conflict if there is no such session."""
        if session_id not in self.sessions:
            raise Conflict(f"no session {session_id}")
        return self.sessions[session_id]

    def taking(self, session_id: str) -> SessionRow:
        """The session, which something is written to; raises Conflict also if it was deleted."""
        if self.session(session_id).gone:
            raise Conflict(f"the session {session_id} was deleted")
        return self.sessions[session_id]

    def owner(self, session_id: str) -> SessionRow | None:
        """The session that an id stands for, unless it was deleted."""
        row = self.sessions.get(session_id)
        if row is not None and row.alias_of is not None:
            row = self.sessions[row.alias_of]
        return None if row is None or row.deleted else row

    def is_ours(self, claude_session_id: str) -> bool:
        """Whether a session, which may be deleted, has this Claude session."""
        return (
            claude_session_id in self.sessions
            or claude_session_id in self.begun
            or claude_session_id in self.followed.values()
            or any(claude == claude_session_id for _, claude in self.transcripts)
        )

    def enqueue(self, row: QueuedDelivery) -> None:
        """Another program, or a task's run, delivers something."""
        self.delivery_queue[len(self.delivery_queue)] = row

    def log_run(self, task_id: str, row: RunLog) -> None:
        self.run_logs[task_id] = (*self.run_logs.get(task_id, ()), row)

    def require_newest(self, session_id: str, epoch: int) -> None:
        if self.taking(session_id).epoch != epoch:
            raise StaleEpoch(f"frames of the epoch {epoch} of the session {session_id}")

    def next_epoch(self, session_id: str) -> int:
        """A worker is about to be launched."""
        row = self.session(session_id)
        row.epoch += 1
        return row.epoch

    def log(self, session_id: str, turn_id: str | None, events: Sequence[Event]) -> list[int]:
        """Append events under the next seqs; the session's row follows them."""
        row = self.taking(session_id) if events else self.session(session_id)
        if events:
            self.inherited.setdefault(session_id, row.record.last_seq)
        seqs: list[int] = []
        for event in events:
            row.record.last_seq += 1
            seqs.append(row.record.last_seq)
            self.logs.setdefault(session_id, []).append(Logged(row.record.last_seq, turn_id, event))
            if isinstance(event, ModeChanged):
                row.record.mode = event.mode
            elif isinstance(event, ConfigChanged):
                model = event.selection.model
                if row.record.model is not None or model != "default":
                    row.record.model = model
                row.record.config = event.selection.config or row.record.config
            elif isinstance(event, TitleChanged):
                row.record.title, row.record.title_by = event.title, event.by
        return seqs

    def give_notes_again(self, turn_id: str) -> None:
        """The notes that the prompt of this turn carried are pending again."""
        for note_id in [one for one, carrier in self.carriers.items() if carrier == turn_id]:
            del self.carriers[note_id]

    def interrupt_parked(self, session_id: str) -> None:
        """What parked requests of rewound turns were about is taken back."""
        for ask_id, one in self.requests.items():
            mine = one.session_id == session_id and one.policy == RequestPolicy.PARKED
            turn = self.turns.get(one.request.turn_id)
            if mine and one.outcome is None and (turn is None or turn.rewound):
                self.requests[ask_id] = replace(one, outcome=RequestOutcome.INTERRUPTED)

    def used(self, session_id: str) -> None:
        if session_id in self.sessions:
            self.sessions[session_id].used_clock = self.clock.now()
            self.sessions[session_id].updated_at = time.time_ns() // 1_000_000

    def turn_ended(self, session_id: str, claude_session_id: str) -> None:
        """The session has a turn more in this Claude session."""
        row = self.session(session_id)
        name, cwd = row.record.conversation_name, row.record.cwd
        known, folder = self.claude_sessions.get(name), self.folders.get(name)
        if not known or known in (claude_session_id, self.followed.get(session_id)):
            self.claude_sessions[name] = claude_session_id
            own = name.startswith("acp-")
            self.folders[name] = (cwd or folder) if own else (folder or cwd)
        seen = (session_id, claude_session_id) in self.transcripts
        if not seen and self.followed.get(session_id) != claude_session_id:
            self.all_told(session_id, but=claude_session_id)
        self.followed[session_id] = claude_session_id
        row.record.branch = None

    def all_told(self, session_id: str, *, but: str) -> None:
        """Claude has to be told of no turn but by pending notes, and of those of this Claude session."""
        for key, one in self.transcript_turns.items():
            if key[0] == session_id and one.claude_session_id != but:
                self.transcript_turns[key] = replace(one, told=True)
                if self.told_by.get(key, "") in self.carriers:
                    del self.told_by[key]

    def place_run(self, turn_id: str, row: RunRow) -> None:
        """Put the row in the place of that of `turn_id`, in the order of claims."""
        rows = (row if one == turn_id else known for one, known in self.runs.items())
        self.runs = {one.run.turn_id: one for one in rows}

    def insert_turn(self, row: TurnRow) -> None:
        """Raises RowRefused if its id or a unique key exists, Conflict without such a session, or
        for a task's run that has ended.
        """
        self.session(row.session_id)
        run = self.runs.get(row.turn_id)
        if run is not None and run.ended:
            raise Conflict(f"the run {row.turn_id} has ended")
        others = self.turns.values()
        refused = (
            row.turn_id in self.turns
            or any(
                row.keys.request is not None and one.keys.request == row.keys.request
                for one in others
            )
            or any(
                row.keys.idempotency is not None
                and (one.session_id, one.keys.idempotency) == (row.session_id, row.keys.idempotency)
                for one in others
            )
        )
        if refused:
            raise RowRefused(f"the turn {row.turn_id}")
        row.position = 1 + max(
            (one.position for one in others if one.session_id == row.session_id), default=0
        )
        self.turns[row.turn_id] = row

    def queue(self, turn: Turn) -> None:
        """Insert a prompt."""
        if turn.task_id is not None and turn.task_id not in self.tasks:
            raise Conflict(f"the task {turn.task_id} was deleted")
        row = TurnRow(turn.turn_id, turn.session_id, turn.content, turn.keys)
        row.created_at, row.client, row.attempts = turn.created_at, turn.client, int(turn.begun)
        row.task_id, row.client_process, row.detached = (
            turn.task_id,
            turn.client_process,
            turn.detached,
        )
        self.insert_turn(row)

    def insert_request(self, session_id: str, ask: PermissionRequest) -> None:
        """A request is pending from now on."""
        if ask.ask_id in self.requests:
            raise RowRefused(ask.ask_id)
        self.requests[ask.ask_id] = StoredRequest(
            session_id,
            ask,
            ask.turn_id,
            RequestPolicy.ATTENDED,
            None,
            _now(),
            self.clock.now(),
            None,
        )

    def trust_content(self, one: Workspace, by: str) -> None:
        """Who trusted it first is kept."""
        row = Trusted(one.path, one.content, None, by, _now(), one.files or None)
        before = self.trust.setdefault((one.path, one.content), row)
        if one.files:
            self.trust[one.path, one.content] = replace(before, files=one.files)

    def clear(self, session_id: str) -> None:
        """Delete what was said in a session."""
        self.logs.pop(session_id, None)
        self.turns = {key: one for key, one in self.turns.items() if one.session_id != session_id}
        self.requests = {
            key: one for key, one in self.requests.items() if one.session_id != session_id
        }
        self.cursors = {key: one for key, one in self.cursors.items() if key[0] != session_id}


def _now() -> int:
    return time.time_ns() // 1_000_000
