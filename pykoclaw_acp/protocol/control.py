"""Control methods of the daemon, `_pykoclaw.dev/…`, used by the command line. Times are
milliseconds since 1970, sizes bytes.

They may be called before `initialize`, by any connection that does not come from inside a session.
They are not part of ACP.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

import msgspec

from pykoclaw_acp.protocol.content import Diff, ShownContent
from pykoclaw_acp.protocol.limits import Count, Name, Path
from pykoclaw_acp.protocol.updates import Update
from pykoclaw_acp.protocol.wire import Params, Wire

EVENT: Final = "_pykoclaw.dev/event"
QUESTION: Final = "_pykoclaw.dev/question"
SETTLED: Final = "_pykoclaw.dev/settled"
MAX_SESSIONS: Final = 10_000  # in one answer, which must fit into a line

WorkerState = Literal["working", "asking", "idle"]
OperatorDecision = Literal["allow_once", "allow_always", "deny"]


class _Full(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """Base of answers; every field is encoded, also one with its default."""


# --- parameters


class SessionParams(Params, frozen=True, kw_only=True):
    """`session`: an id, a unique prefix of one, or a conversation's name."""

    session: Name


class ResolveParams(Params, frozen=True, kw_only=True):
    """`conversation`: a conversation's name, or what `SessionParams.session` may be; `create`:
    begin a conversation of this name if there is none.
    """

    conversation: Annotated[Name, msgspec.Meta(min_length=1)]
    create: bool = False


class ListParams(Params, frozen=True, kw_only=True):
    """`all`: include unused sessions and clients' helper sessions. At most the `limit` newest."""

    all: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_SESSIONS)] = 1000


class RenameParams(SessionParams, frozen=True, kw_only=True):
    title: str  # of which the first words count


class QuestionsParams(Params, frozen=True, kw_only=True):
    """`question`: only requests whose id has this prefix; `whole`: with all details."""

    question: Name = ""
    whole: bool = False


class AnswerParams(Params, frozen=True, kw_only=True):
    """`question`: the id of a pending request, or a unique prefix of one."""

    question: Name
    decision: OperatorDecision


class StopParams(Params, frozen=True, kw_only=True):
    """One session's worker, or `all`; `now`: do not let turns end in order."""

    session: Name | None = None
    all: bool = False
    now: bool = False


class TrustParams(Params, frozen=True, kw_only=True):
    """`path`: absolute path of a directory. `tree`: trust it and everything below, whatever it
    holds.
    """

    path: Path
    tree: bool = False


class TrustListParams(Params, frozen=True, kw_only=True):
    """`without`: also the directories in which Claude runs without active content."""

    without: bool = False


class PromptParams(SessionParams, frozen=True, kw_only=True):
    """A prompt of a command; `session` may also be a conversation's name. `idempotency_key`: the
    prompt runs once, however often it comes.

    `detach`: answer as soon as it is in the journal. `present`: somebody is there who may answer
    questions. `after`: the last `seq` that the caller has seen, when it comes again.
    """

    text: str
    idempotency_key: Name | None = None
    detach: bool = False
    present: bool = False
    after: Count | None = None


class TasksParams(Params, frozen=True, kw_only=True):
    """At most `limit`, the newest."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_SESSIONS)] = 1000


class TaskParams(Params, frozen=True, kw_only=True):
    """`task`: an id, or the beginning of one that no other task has."""

    task: Name


class FollowParams(SessionParams, frozen=True, kw_only=True):
    """Events after `after`, or of the newest `turns` turns; `live`: continue with new events.

    `present`: a person is there who may answer permission requests.
    """

    after: Count = 0
    turns: Count | None = None
    live: bool = False
    present: bool = False


# --- answers


class DaemonInfo(_Full, frozen=True, kw_only=True):
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


class Resolved(_Full, frozen=True, kw_only=True):
    """The id under which a client opens a conversation. `cwd`: where; null as long as any directory
    is taken.
    """

    session: str
    conversation: str
    channel: str
    cwd: str | None


class WorkerInfo(_Full, frozen=True, kw_only=True):
    """`memory`: PSS of the worker and its descendants; `protocol`: version of its channel.

    `workspace`: whether active content of its directories takes effect; null if there is none.
    """

    session: str
    title: str | None
    epoch: int
    pid: int
    state: WorkerState
    protocol: int
    started_at: int
    memory: int | None
    workspace: Literal["trusted", "without"] | None = None


class SessionCounts(_Full, frozen=True, kw_only=True):
    """`conversations`: prompted by a person; `helpers`: only by a client for itself; `unused`:
    never prompted.
    """

    conversations: int
    helpers: int
    unused: int


class DatabaseInfo(_Full, frozen=True, kw_only=True):
    """The database. The engine is the daemon's SQLite library; `at_risk`: see
    `store.engine.wal_reset_affected`.

    `condition`: see `store.condition.StoreCondition`; `reason`: why it cannot be written.
    """

    path: str
    condition: Literal["writable", "locked", "blocked", "gone"]
    reason: str | None
    size: int
    journal_mode: str
    engine: str
    engine_version: str
    at_risk: bool


class Conversion(_Full, frozen=True, kw_only=True):
    """Conversion of logs of an older version: events in the old form at the daemon's start, and
    now.
    """

    events: int
    left: int


class SchedulerInfo(_Full, frozen=True, kw_only=True):
    """Who runs scheduled tasks: this daemon, if it is `on` and does not stand by for pykoclaw's
    scheduler (`other`: its pid). `running`: tasks that this daemon runs.
    """

    state: Literal["on", "off", "stands_by"]
    other: int | None
    running: int


class QuestionInfo(_Full, frozen=True, kw_only=True):
    """A pending permission request. `always`: it may be allowed for the rest of the session.

    The other fields are set only if the whole request was asked for: tool, input, content as shown
    to clients, what "always" would also allow, labels of the decisions, and the text of a form,
    which has none of these.
    """

    id: str
    session: str
    title: str
    always: bool
    asked_at: int
    deadline: int | None
    parked: bool
    tool: str | None = None
    input: dict[str, Any] | None = None
    content: list[ShownContent | Diff] | None = None
    always_allows: str | None = None
    choices: dict[str, str] | None = None
    form: str | None = None


class UnacceptedNotices(_Full, frozen=True, kw_only=True):
    """Notices that a target has not accepted, and why; `target`: its name, without secrets."""

    target: str
    notices: int
    reason: str


class Status(_Full, frozen=True, kw_only=True):
    """State of the daemon. `clients`: those with an open session; `running`, `waiting`: numbers of
    turns.

    `conversion`: null when all logs are in the new form. `damaged`: files kept of damaged spools.
    `unaccepted`: targets of PYKOCLAW_NOTIFY that have not accepted notices.
    """

    daemon: DaemonInfo
    workers: list[WorkerInfo]
    sessions: SessionCounts
    clients: int
    running: int
    waiting: int
    questions: list[QuestionInfo]
    database: DatabaseInfo
    damaged: list[str]
    conversion: Conversion | None = None
    unaccepted: tuple[UnacceptedNotices, ...] = ()
    scheduler: SchedulerInfo | None = None


class SessionSummary(_Full, frozen=True, kw_only=True):
    """A session in a list, or a conversation that another program began and no client has opened;
    `busy`: a turn of it runs or waits.

    `channel`: of the conversation, such as `acp` or `wa`; `cwd`: null as long as any directory is
    taken; `elsewhere`: other programs prompted it, and nobody here.
    """

    id: str
    conversation: str
    channel: str
    title: str | None
    cwd: str | None
    client: str | None
    created_at: int
    updated_at: int
    prompted_at: int | None
    closed_at: int | None
    pruned_at: int | None
    auxiliary: bool
    elsewhere: bool
    busy: bool


class SessionList(_Full, frozen=True, kw_only=True):
    """Sessions, newest first; `more`: there are others."""

    sessions: list[SessionSummary]
    more: bool


class TurnInfo(_Full, frozen=True, kw_only=True):
    """A turn; `error` has `kind` and `message`."""

    id: str
    origin: str
    state: str
    stop_reason: str | None
    error: dict[str, Any] | None
    created_at: int
    started_at: int | None
    ended_at: int | None


class SessionDetails(_Full, frozen=True, kw_only=True):
    """A session with its newest turns, newest first; `turn_count` counts all turns."""

    summary: SessionSummary
    additional_directories: list[str]
    mode: str | None
    model: str | None
    away_policy: str | None
    claude_session: str | None
    events: int
    turn_count: int
    turns: list[TurnInfo]
    worker: WorkerInfo | None


class Prompted(_Full, frozen=True, kw_only=True):
    """How a prompt's turn ended, or that it is queued. `error` has `kind` and `message`; `text` is
    the whole answer; `seq`: where the turn ended in the log.

    `joined`: the prompt had come before.
    """

    session: str
    turn_id: str
    state: str
    stop_reason: str | None
    error: dict[str, Any] | None
    text: str
    seq: int
    joined: bool


class TaskInfo(_Full, frozen=True, kw_only=True):
    """A scheduled task, with the times and words of pykoclaw's table; `running`: this daemon runs
    it. `delivers_to`: the conversation that gets the result.
    """

    id: str
    conversation: str
    prompt: str
    schedule_type: str
    schedule_value: str
    context_mode: str
    target_conversation: str | None
    delivers_to: str
    next_run: str | None
    last_run: str | None
    last_result: str | None
    status: str
    created_at: str
    running: bool


class TaskList(_Full, frozen=True, kw_only=True):
    """Newest first; `more`: there are others. `scheduler`: see `SchedulerInfo`."""

    tasks: list[TaskInfo]
    more: bool
    scheduler: SchedulerInfo


class TaskRunInfo(_Full, frozen=True, kw_only=True):
    """A run of a task, by any program; `status` is `success` or `error`."""

    run_at: str
    duration_ms: int
    status: str
    result: str | None
    error: str | None


class TaskDetails(_Full, frozen=True, kw_only=True):
    """A task with its newest runs, newest first."""

    task: TaskInfo
    runs: list[TaskRunInfo]


class TaskStarted(_Full, frozen=True, kw_only=True):
    """A run that was asked for: the task, and the turn that the run is."""

    task: str
    turn_id: str


class TrustedDirectory(_Full, frozen=True, kw_only=True):
    """A trusted directory. `tree`: includes everything below; `pending`: what it holds is trusted
    at the next prompt there.

    `dotenv`: its `.env` is read. `by`: a client's name, `cli`, or `upgrade`; empty if nobody chose.
    `trusted`: false if the last choice was to run without what acts there.
    """

    path: str
    tree: bool
    pending: bool
    dotenv: bool
    by: str
    at: int
    trusted: bool = True


class RunWithout(_Full, frozen=True, kw_only=True):
    """Claude runs without what acts in a directory; `by`: empty if nobody chose."""

    by: str
    at: int


class Looked(_Full, frozen=True, kw_only=True):
    """Active content of a directory, in words; `complete`: nothing was left out. `trusted`: all of
    it is trusted.

    `dotenv`: its `.env` has settings of this program. `changes`: what has changed since it was
    trusted, in lines. `without`: who chose last to run without it, and when.
    """

    path: str
    found: list[str]
    complete: bool
    trusted: bool
    dotenv: list[str]
    changes: list[str]
    without: RunWithout | None = None


class Answered(_Full, frozen=True, kw_only=True):
    """`done`: the effect of a decision that is not about a tool; else null."""

    done: str | None


class Stopped(_Full, frozen=True, kw_only=True):
    """`workers`: number of workers that were stopped."""

    workers: int


class Followed(_Full, frozen=True, kw_only=True):
    """Result of `follow`: the last position."""

    seq: int


# --- notifications of `follow`


class EventNotification(_Full, frozen=True, kw_only=True):
    """An event of the log, as ACP update."""

    session: str
    seq: int
    turn_id: str | None
    update: Update


class QuestionNotification(_Full, frozen=True, kw_only=True):
    """A permission request is pending; fields as in `QuestionInfo`."""

    id: str
    session: str
    title: str
    always: bool
    tool: str
    input: dict[str, Any] | None
    content: list[ShownContent | Diff] | None
    always_allows: str | None
    choices: dict[str, str]
    form: str | None


class SettledNotification(_Full, frozen=True, kw_only=True):
    """A permission request is no longer pending."""

    id: str
