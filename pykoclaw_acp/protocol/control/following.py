"""`_pykoclaw.dev/follow`: the log of a session, as notifications on the caller's connection."""

from __future__ import annotations

from typing import Any, Final

from pykoclaw_acp.protocol.content import ToolContent
from pykoclaw_acp.protocol.control.answers import FullAnswer
from pykoclaw_acp.protocol.control.decisions import OperatorDecision
from pykoclaw_acp.protocol.control.permissions import AskedQuestion
from pykoclaw_acp.protocol.control.sessions import NamedSessionParams
from pykoclaw_acp.protocol.limits import Count
from pykoclaw_acp.protocol.updates import Update

EVENT: Final = "_pykoclaw.dev/event"
QUESTION: Final = "_pykoclaw.dev/question"
SETTLED: Final = "_pykoclaw.dev/settled"
TAKEN: Final = "_pykoclaw.dev/taken"
WAITS: Final = "_pykoclaw.dev/waits"


class FollowParams(NamedSessionParams, frozen=True, kw_only=True):
    """Events after `after`, or of the newest `turns` turns; `live`: continue with new events.

    `present`: a person is there who may answer permission requests. `events`: with the events
    of the log themselves, where the updates do not say all of them, and with times. `as_shown`:
    without what the settings hide, as `live` is in any case.
    """

    after: Count = 0
    turns: Count | None = None
    live: bool = False
    present: bool = False
    events: bool = False
    as_shown: bool = False


class FollowResult(FullAnswer, frozen=True, kw_only=True):
    """Result of `follow`: the last position."""

    seq: int


class EventNotification(FullAnswer, frozen=True, kw_only=True):
    """An event of the log, as ACP update; `event` as it is in the log, without images, which the
    update has. Null: the update says all of it, or it was not asked for. `at`: with `events`, when
    the prompt came that a user's message belongs to; null for other programs' prompts.
    """

    session: str
    seq: int
    turn_id: str | None
    update: Update
    event: dict[str, Any] | None = None
    at: int | None = None


class QuestionNotification(FullAnswer, frozen=True, kw_only=True):
    """A permission request is pending; fields as in `QuestionInfo`."""

    id: str
    session: str
    title: str
    always: bool
    tool: str
    input: dict[str, Any] | None
    content: list[ToolContent] | None
    always_allows: str | None
    choices: dict[str, str]
    form: str | None
    questions: list[AskedQuestion] | None = None


class TakenNotification(FullAnswer, frozen=True, kw_only=True):
    """The prompt of a command is stored, in this session."""

    session: str


class WaitsNotification(FullAnswer, frozen=True, kw_only=True):
    """The turn of a prompt has ended; what it has left in the background is waited for."""

    session: str


class SettledNotification(FullAnswer, frozen=True, kw_only=True):
    """A permission request is no longer pending. `outcome`: as in `acp_permissions`; null: it was
    withdrawn. `decision`: what was chosen. `by`: a client's name, `cli`, `policy` or `timeout`.
    """

    id: str
    outcome: str | None = None
    decision: OperatorDecision | None = None
    by: str | None = None
