"""Permission requests, their decisions and settlements: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from pykoclaw_acp.model.events import Location, ToolPart
from pykoclaw_acp.model.questions import Question

REASON = "reason"
"""Key of the user's words in the content of a refusal."""


class RequestPolicy(StrEnum):
    """Policy of a pending request; values of `acp_permissions.policy`."""

    ATTENDED = "attended"  # a client that can decide is connected
    WAIT = "wait"  # nobody connected; ends as `timeout` at its deadline
    DENY = "deny"  # nobody connected; refused at its deadline
    ALLOW = "allow"  # nobody connected; allowed once at its deadline
    PARK = "park"  # nobody connected; parked at its deadline
    PARKED = "parked"  # its worker was freed; pending without a limit


class RequestOutcome(StrEnum):
    """Outcome of a request, in `acp_permissions.outcome`; unknown ones of clients are kept as they
    are.
    """

    SELECTED = "selected"  # an option was chosen (ACP)
    CANCELLED = "cancelled"  # the client did not choose (ACP)
    ACCEPT = "accept"  # a form was filled in (ACP)
    DECLINE = "decline"  # a form was declined (ACP)
    CANCEL = "cancel"  # a form was dismissed (ACP)
    TIMEOUT = "timeout"  # nobody decided in time
    DENIED = "denied"  # the away policy refused it
    UNANSWERED = "unanswered"  # the client's answer was an error, or none
    UNSUPPORTED = "unsupported"  # no connected client can show a form
    UNRECORDED = "unrecorded"  # the decision could not be stored, so it does not count; in no row
    WITHDRAWN = "withdrawn"  # withdrawn by the worker
    INTERRUPTED = "interrupted"  # worker or turn ended


class Form(msgspec.Struct, frozen=True):
    """Form of an MCP server: its name, its message, and MCP's `requestedSchema`; or, with a `url`,
    a page that the user should open.
    """

    server: str
    message: str
    schema: dict[str, Any]
    url: str | None = None


class Workspace(msgspec.Struct, frozen=True):
    """A directory with active content, described by `found`.

    `content`: fingerprint of the active content; empty if not all of it could be read. `files`:
    digests of the files with it, by path; empty if there are too many.
    """

    path: str
    content: str
    found: tuple[str, ...] = ()
    files: dict[str, str] = {}


class PermissionRequest(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="frame", tag="ask", omit_defaults=True
):
    """Request to allow a tool call. `call` identifies tool and arguments.

    `input` and `content` hold all arguments, so that whoever decides sees what runs; older workers
    cut long ones, and mark that. With a `form` it is an elicitation, without a known tool call.
    With `workspaces` it asks for trust in these directories, and no worker waits for it. With
    `questions` it has no options: they are answered. `plan`: whether Claude may carry out its plan,
    which is the content; `former`: the mode used before planning, which is offered again. `rules`:
    rules of Claude that an allowance may leave to the session, or to later ones. `parent_id`: the
    call of the subagent that asks; None for Claude itself. `mode`: "always" turns on a mode, and
    allows nothing else.

    It is also the frame of a worker: `epoch` and `n` are its head.
    """

    epoch: int
    n: int = 0
    ask_id: str
    turn_id: str
    tool_call_id: str
    title: str
    tool_kind: str
    always: str | None = None  # what "always" would allow, in words; None: not offered
    content: tuple[ToolPart, ...] = ()
    input: dict[str, Any] | None = None
    locations: tuple[Location, ...] = ()
    call: str = ""
    tool: str = ""  # name of the tool
    form: Form | None = None
    workspaces: tuple[Workspace, ...] = ()
    questions: tuple[Question, ...] = ()
    plan: bool = False
    former: str = ""
    rules: tuple[str, ...] = ()
    parent_id: str | None = None
    mode: bool = False

    @property
    def filled_in(self) -> bool:
        """Whether it is settled by values rather than by an option."""
        return self.form is not None or bool(self.questions)

    @property
    def kept(self) -> bool:
        """Whether the session keeps what "always" allows, and not Claude's process alone."""
        return bool(self.rules) or self.mode


@dataclass(frozen=True, slots=True)
class Settlement:
    """Outcome of a request, for its row; `content` as in Decision. `rules` allow from now on what
    they name: in the directory `path`, or if that is empty in the session.
    """

    permission_id: str
    outcome: str
    option_id: str | None = None
    answered_by: str | None = None
    content: dict[str, Any] | None = None
    rules: tuple[str, ...] = ()
    path: str = ""


@dataclass(frozen=True, slots=True)
class Deadline:
    """Deadline of an away policy: `shown` to people (ms since 1970), `clock` (ms, data directory's
    clock).
    """

    shown: int
    clock: int


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A request with its row; `asked_at` and `deadline` are milliseconds since 1970, for people.

    `asked_clock` and `deadline_clock` (ms, data directory's clock; None in rows of older daemons)
    decide. `deadline`: when the policy acts. `turn_id`: the turn that asks, or that continues with
    the decision on a parked request.
    """

    session_id: str
    request: PermissionRequest
    turn_id: str | None
    policy: RequestPolicy
    deadline: int | None
    asked_at: int
    asked_clock: int | None
    deadline_clock: int | None
    outcome: str | None = None
    option: str | None = None
    answered_by: str | None = None
    content: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision on a request: ACP's outcome and option, and who made it (a client's name, `cli`,
    `policy`…).

    For a form and for questions, `outcome` is ACP's `action`, and `content` holds the values. A
    refusal may have a `reason` there, in the user's words.
    """

    outcome: str
    option: str | None = None
    by: str | None = None
    content: dict[str, Any] | None = None

    @property
    def reason(self) -> str:
        """Why it was refused, in the user's words; empty if that was not said."""
        said = (self.content or {}).get(REASON)
        return said.strip() if isinstance(said, str) else ""
