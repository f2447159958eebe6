"""`_pykoclaw.dev/status`: the state of the daemon, its database and its notices."""

from __future__ import annotations

from typing import Literal

from msgspec import field

from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.protocol.control.answers import FullAnswer
from pykoclaw_acp.protocol.control.permissions import QuestionInfo
from pykoclaw_acp.protocol.control.tasks import SchedulerInfo
from pykoclaw_acp.protocol.control.workers import WorkerInfo


class DaemonInfo(FullAnswer, frozen=True, kw_only=True):
    """`memory`: proportional set size (PSS) of the daemon and its fork server; null if the kernel
    does not report it.

    `loop_lag`: longest delay (ms) of the event loop in the last minute. `instance`: id of the
    database; `copied_from`: the data directory of which this one was found to be a copy, at
    `copied_at`.
    """

    pid: int
    version: str
    started_at: int
    socket: str
    data: str
    state: str
    loop_lag: float
    memory: int | None
    instance: str | None
    copied_from: str | None
    copied_at: int | None


class SessionCounts(FullAnswer, frozen=True, kw_only=True):
    """`conversations`: prompted by a person; `helpers`: only by a client for itself; `unused`:
    never prompted.
    """

    conversations: int
    helpers: int
    unused: int


class DatabaseInfo(FullAnswer, frozen=True, kw_only=True):
    """The database. The engine is the daemon's SQLite library; `at_risk`: see
    `store.engine.wal_reset_affected`.

    `reason`: why it cannot be written.
    """

    path: str
    condition: DatabaseState
    reason: str | None
    size: int
    journal_mode: str
    engine: str
    engine_version: str
    at_risk: bool


class ConversionInfo(FullAnswer, frozen=True, kw_only=True):
    """Conversion of logs of an older version: events in the old form at the daemon's start, and
    now.
    """

    events: int
    left: int


class UnacceptedNotices(FullAnswer, frozen=True, kw_only=True):
    """Notices that a target has not accepted, and why; `target`: its key in the database; `name`:
    what it is called, without what may be secret.
    """

    target: str
    name: str
    notices: int
    reason: str


Credential = Literal["login", "environment", "unread"] | None


class AccountInfo(FullAnswer, frozen=True, kw_only=True):
    """An account of Claude. `directory`: its configuration; `chosen`: of new sessions whose client
    names none.

    `credential`: `login`, `environment` (the daemon's own), `unread` (the machine lacks memory or
    descriptors to look), or null: there is none, as far as the daemon knows.
    """

    name: str
    directory: str
    chosen: bool
    credential: Credential


class OtherSettings(FullAnswer, frozen=True, kw_only=True):
    """Settings that a connected client has in its environment with other values than the daemon's."""

    client: str
    settings: list[str]


class LimitWaitInfo(FullAnswer, frozen=True, kw_only=True):
    """A session that resumes by itself when a usage limit ends, at `due` (ms since 1970)."""

    session: str
    due: int


class Status(FullAnswer, frozen=True, kw_only=True):
    """State of the daemon. `clients`: those with an open session; `running`, `waiting`: numbers of
    turns.

    `sessions`, `running` and `waiting` are null while the database cannot be read, which
    `database` says; `workers` and the like are empty then. `conversion`: null when all logs are in
    the new form. `damaged`: files kept of damaged spools. `unaccepted`: targets of PYKOCLAW_NOTIFY
    that have not accepted notices. `settings`: those of the daemon, without what is secret.
    """

    daemon: DaemonInfo
    workers: list[WorkerInfo]
    sessions: SessionCounts | None
    clients: int
    running: int | None
    waiting: int | None
    questions: list[QuestionInfo]
    database: DatabaseInfo
    damaged: list[str]
    conversion: ConversionInfo | None = None
    unaccepted: tuple[UnacceptedNotices, ...] = ()
    scheduler: SchedulerInfo | None = None
    accounts: tuple[AccountInfo, ...] = ()
    other_settings: tuple[OtherSettings, ...] = ()
    limit_waits: tuple[LimitWaitInfo, ...] = ()
    settings: dict[str, str | int | float | list[str] | None] = field(default_factory=dict)
