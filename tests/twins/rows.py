"""Rows of the in-memory database that other programs, a pool or a teller of notices would write."""

from __future__ import annotations

from dataclasses import dataclass, field

from pykoclaw_acp.model.conversations import OWN
from pykoclaw_acp.model.deliveries import SENT
from pykoclaw_acp.model.found_transcripts import FoundTranscript
from pykoclaw_acp.model.notices import Notice, NotificationOutcome
from pykoclaw_acp.model.schedule import now_text
from pykoclaw_acp.model.scheduled import TaskRun


@dataclass(frozen=True)
class QueuedDelivery:
    """A row of `delivery_queue`."""

    delivery_id: str | None
    conversation: str
    message: str
    channel: str = OWN
    task_id: str = SENT
    status: str = "pending"
    created_at: str = field(default_factory=now_text)


@dataclass(frozen=True)
class RunRow:
    """A run of a task by this program, and whether it has a result."""

    run: TaskRun
    ended: bool = False


@dataclass(frozen=True)
class RunLog:
    """A row of `task_run_logs`."""

    status: str
    result: str | None
    error: str | None


@dataclass(frozen=True)
class NoticeRow:
    """A notice, and when it was made (ms, own clock)."""

    notice: Notice
    body: str
    made: int


@dataclass(frozen=True)
class NotificationRow:
    """A notice for a target, and when it is to be tried (ms, own clock)."""

    due: int
    attempts: int = 0
    outcome: NotificationOutcome | None = None


@dataclass(frozen=True)
class FoundRow:
    """A transcript in the index; an empty `mtime` is no file's."""

    folder: str
    found: FoundTranscript
    listed: bool
    mtime: str
