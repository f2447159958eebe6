"""`_pykoclaw.dev/sessions/…` and `_pykoclaw.dev/conversations/resolve`: sessions and their turns."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from pykoclaw_acp.protocol.control.answers import MAX_ITEMS, CutAnswer, FullAnswer
from pykoclaw_acp.protocol.control.workers import WorkerInfo
from pykoclaw_acp.protocol.limits import Name
from pykoclaw_acp.protocol.wire import Params


class NamedSessionParams(Params, frozen=True, kw_only=True):
    """`session`: an id, a unique prefix of one, or a conversation's name."""

    session: Name


class ResolveParams(Params, frozen=True, kw_only=True):
    """`conversation`: a conversation's name, or what `NamedSessionParams.session` may be; `create`:
    begin a conversation of this name if there is none.
    """

    conversation: Annotated[Name, msgspec.Meta(min_length=1)]
    create: bool = False


class ListParams(Params, frozen=True, kw_only=True):
    """`all`: include unused and archived sessions, and clients' helper sessions. At most the `limit` newest."""

    all: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_ITEMS)] = 1000


class RenameParams(NamedSessionParams, frozen=True, kw_only=True):
    title: str  # of which the first words count


class ArchiveResult(FullAnswer, frozen=True, kw_only=True):
    """Result of `sessions/archive`: how many turns that ran or waited were cancelled; `changed`: it was
    not archived before.
    """

    cancelled: int
    changed: bool


class UnarchiveResult(FullAnswer, frozen=True, kw_only=True):
    """Result of `sessions/unarchive`; `changed`: it was archived before."""

    changed: bool


class Deleted(FullAnswer, frozen=True, kw_only=True):
    """Result of `sessions/delete`: whether Claude's own transcript is deleted, too; null if it is to be,
    and there is none. `undeleted`: paths of what could not be deleted of it.
    """

    transcript_deleted: bool | None
    undeleted: tuple[str, ...] = ()


class Resolved(CutAnswer, frozen=True, kw_only=True):
    """The id under which a client opens a conversation. `cwd`: where; null as long as any directory
    is taken.
    """

    session: str
    conversation: str
    channel: str
    cwd: str | None


class SessionSummary(CutAnswer, frozen=True, kw_only=True):
    """A session in a list, or a conversation that another program began and no client has opened, which
    has no name if a terminal did; `busy`: a turn of it runs or waits; `background`: no turn runs, but a
    subagent or a command.

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
    archived_at: int | None
    auxiliary: bool
    elsewhere: bool
    busy: bool
    background: bool = False


class TurnInfo(FullAnswer, frozen=True, kw_only=True):
    """A turn; `error` has `kind` and `message`. `prompt`: the first words, without Markdown, or what is
    attached; null if there is none, or it is longer than 64 Ki characters. `rewound_at`: when Claude was
    made to forget it, by a rewind or as it has refused the prompt.
    """

    id: str
    prompt: str | None
    origin: str
    state: str
    stop_reason: str | None
    error: dict[str, Any] | None
    created_at: int
    started_at: int | None
    ended_at: int | None
    rewound_at: int | None = None


class RunningCall(FullAnswer, frozen=True, kw_only=True):
    """A tool call that has not ended, in a turn or in the background."""

    id: str
    title: str


class SessionDetails(CutAnswer, frozen=True, kw_only=True):
    """A session with its newest turns, newest first; `turn_count` counts all turns, `other_turns` those
    that other programs have run, which are not among them. `running`: what has
    not ended, the newest 100. `mode` is its own or that of the settings, as far as it may have that;
    `model` None: Claude's default. `account`: empty for Claude's own configuration.
    """

    summary: SessionSummary
    account: str
    additional_directories: list[str]
    mode: str
    model: str | None
    away_policy: str | None
    claude_session: str | None
    events: int
    turn_count: int
    other_turns: int
    turns: list[TurnInfo]
    running: list[RunningCall]
    worker: WorkerInfo | None
