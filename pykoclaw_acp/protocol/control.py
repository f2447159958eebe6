"""Our own methods, `_pykoclaw.dev/…`: how the command line asks the daemon. Times are milliseconds
since 1970.

Whoever may connect to the socket, and does not run inside of a session, may call them, before
`initialize` too; they are no part of ACP. Sizes are bytes.
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
    """An answer for programs: every field is there."""


# --- parameters


class SessionParams(Params, frozen=True, kw_only=True):
    """`session`: an id, the beginning of one that no other id has, or a conversation's name."""

    session: Name


class ListParams(Params, frozen=True, kw_only=True):
    """`all`: also sessions that nobody used, and clients' own helpers. At most `limit`,
    the newest.
    """

    all: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_SESSIONS)] = 1000


class RenameParams(SessionParams, frozen=True, kw_only=True):
    title: str  # of which the first words count


class QuestionsParams(Params, frozen=True, kw_only=True):
    """`question`: only those whose id begins so; `whole`: with all that would run, not what fits a
    list alone.
    """

    question: Name = ""
    whole: bool = False


class AnswerParams(Params, frozen=True, kw_only=True):
    """`question`: an id, or the beginning of one that no other open question has."""

    question: Name
    decision: OperatorDecision


class StopParams(Params, frozen=True, kw_only=True):
    """A session's worker, or `all`; `now`: without time for their turns to end in order."""

    session: Name | None = None
    all: bool = False
    now: bool = False


class TrustParams(Params, frozen=True, kw_only=True):
    """`path`: of a directory, absolute. `tree`: it and those below, whatever they hold."""

    path: Path
    tree: bool = False


class FollowParams(SessionParams, frozen=True, kw_only=True):
    """The events after `after`, or those of the newest `turns` turns; `live`: and what comes later,
    without an end.

    `present`: somebody is there who may answer questions.
    """

    after: Count = 0
    turns: Count | None = None
    live: bool = False
    present: bool = False


# --- answers


class DaemonInfo(_Full, frozen=True, kw_only=True):
    """`memory`: proportional set size (PSS) of the daemon and its fork server; null where the
    kernel does not say.

    `loop_lag` (ms): the longest that the event loop has kept everybody waiting in the last minute.
    `instance`: the id of the database; `copied_from`: the data directory that this one was found to
    be a copy of, at `copied_at`.
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


class WorkerInfo(_Full, frozen=True, kw_only=True):
    """`memory`: PSS of the worker and everything below it; `protocol`: of the channel that it
    speaks.
    """

    session: str
    title: str | None
    epoch: int
    pid: int
    state: WorkerState
    protocol: int
    started_at: int
    memory: int | None


class SessionCounts(_Full, frozen=True, kw_only=True):
    """`conversations` were prompted by a person; `helpers` only by a client for itself; `unused`
    never.
    """

    conversations: int
    helpers: int
    unused: int


class DatabaseInfo(_Full, frozen=True, kw_only=True):
    """The engine is the SQLite library of the daemon; `at_risk`: see
    `store.engine.wal_reset_affected`.

    `condition`: whether it can be written, see `store.condition.StoreCondition`; `reason` says in
    words why it cannot.
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
    """Logs that an older version wrote: how many events were in the old form as the daemon began,
    and still are.
    """

    events: int
    left: int


class QuestionInfo(_Full, frozen=True, kw_only=True):
    """A permission question that waits. `always`: it may be allowed for the rest of the session.

    The rest is there only where the whole question was asked for: the tool, its input, what clients
    are shown of it, what "always" would allow besides, what each decision is called, and the text
    of a form, which has none of these.
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


class Status(_Full, frozen=True, kw_only=True):
    """`clients` are those that have a session open; `running` and `waiting` count turns.

    `conversion`: null once every log is in the new form. `damaged` are files: what is left of
    damaged spools.
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


class SessionSummary(_Full, frozen=True, kw_only=True):
    """A session in a list; `busy`: a turn of it runs or waits."""

    id: str
    conversation: str
    title: str | None
    cwd: str | None
    client: str | None
    created_at: int
    updated_at: int
    prompted_at: int | None
    closed_at: int | None
    pruned_at: int | None
    auxiliary: bool
    busy: bool


class SessionList(_Full, frozen=True, kw_only=True):
    """Newest first; `more`: there are others."""

    sessions: list[SessionSummary]
    more: bool


class TurnInfo(_Full, frozen=True, kw_only=True):
    """`error` has `kind` and `message`."""

    id: str
    origin: str
    state: str
    stop_reason: str | None
    error: dict[str, Any] | None
    created_at: int
    started_at: int | None
    ended_at: int | None


class SessionDetails(_Full, frozen=True, kw_only=True):
    """A session with its newest turns, newest first; `turn_count` counts all."""

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


class TrustedDirectory(_Full, frozen=True, kw_only=True):
    """`tree`: with those below, whatever they hold; `pending`: with what it holds when a prompt
    comes there next.

    `dotenv`: its `.env` is read. `by`: a client's name, `cli`, or `upgrade`.
    """

    path: str
    tree: bool
    pending: bool
    dotenv: bool
    by: str
    at: int


class Looked(_Full, frozen=True, kw_only=True):
    """What a directory holds that acts, in words; not `complete`: there may be more. `trusted`: all
    of it.

    `dotenv`: settings of this program in its `.env`.
    """

    path: str
    found: list[str]
    complete: bool
    trusted: bool
    dotenv: list[str]


class Answered(_Full, frozen=True, kw_only=True):
    """`done`: what the decision means, of a question that is not about a tool; null of others."""

    done: str | None


class Stopped(_Full, frozen=True, kw_only=True):
    """`workers`: how many were ended."""

    workers: int


class Followed(_Full, frozen=True, kw_only=True):
    """The end of `follow`: where it ended."""

    seq: int


# --- notifications of `follow`


class EventNotification(_Full, frozen=True, kw_only=True):
    """An event of the log, as ACP's update."""

    session: str
    seq: int
    turn_id: str | None
    update: Update


class QuestionNotification(_Full, frozen=True, kw_only=True):
    """Somebody must decide; the fields are those of `QuestionInfo`."""

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
    """Nobody needs to decide any more."""

    id: str
