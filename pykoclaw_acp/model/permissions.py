"""Permission requests, how they are decided and settled, and what decides while nobody is there: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from pykoclaw_acp.model.events import ToolPart


class RequestPolicy(StrEnum):
    """What applies to a pending request while it waits. The values are those of `acp_permissions.policy`."""

    ATTENDED = "attended"  # a client is there that can answer
    WAIT = "wait"  # nobody is there; it ends as `timeout` at its deadline
    DENY = "deny"  # nobody is there; it is refused at its deadline
    ALLOW = "allow"  # nobody is there; it is allowed at its deadline, this once
    PARK = "park"  # nobody is there; it is parked at its deadline
    PARKED = "parked"  # its worker was given up; it waits without a limit


class RequestOutcome(StrEnum):
    """How a request ended, in `acp_permissions.outcome`; a client may say something else, which is kept as it came."""

    SELECTED = "selected"  # an option was chosen (ACP)
    CANCELLED = "cancelled"  # the client did not choose (ACP)
    ACCEPT = "accept"  # a form was filled in (ACP)
    DECLINE = "decline"  # a form was declined (ACP)
    CANCEL = "cancel"  # a form was dismissed (ACP)
    TIMEOUT = "timeout"  # nobody answered in time
    DENIED = "denied"  # the away policy refused it
    UNANSWERED = "unanswered"  # the client's answer was an error, or none
    UNSUPPORTED = "unsupported"  # no client that is there can show a form
    UNRECORDED = "unrecorded"  # the answer could not be written down, so it counts as none; in no row
    WITHDRAWN = "withdrawn"  # the worker does not want to know it any more
    INTERRUPTED = "interrupted"  # the worker, or the turn, is gone


class Form(msgspec.Struct, frozen=True):
    """What an MCP server wants to know: its name, its words, and MCP's `requestedSchema`."""

    server: str
    message: str
    schema: dict[str, Any]


class Workspace(msgspec.Struct, frozen=True):
    """A directory that holds something that acts: `found` says in words what.

    `content` is the fingerprint of all that acts there; empty if not all of it could be looked at.
    """

    path: str
    content: str
    found: tuple[str, ...] = ()


class PermissionRequest(msgspec.Struct, frozen=True, kw_only=True, tag_field="frame", tag="ask", omit_defaults=True):
    """May this tool run? `call` is the same for the same tool with the same arguments, and for nothing else.

    `input` and `content` hold all of the arguments: whoever answers must be able to see what runs. A worker of a
    version before has cut long ones, and says so in them.

    With a `form`: will the user fill it in? It belongs to no tool call that is known. With `workspaces`: are these
    directories trusted? That is asked by no worker.

    It is a frame of the worker's as it stands: `epoch` and `n` are its head.
    """

    epoch: int
    n: int = 0
    ask_id: str
    turn_id: str
    tool_call_id: str
    title: str
    tool_kind: str
    always: str | None = None  # what "always" would allow, in words; None where it cannot be offered
    content: tuple[ToolPart, ...] = ()
    input: dict[str, Any] | None = None
    call: str = ""
    tool: str = ""  # its name
    form: Form | None = None
    workspaces: tuple[Workspace, ...] = ()


@dataclass(frozen=True, slots=True)
class Settlement:
    """How a question ended, for its row; `content` is what a form was filled in with."""

    permission_id: str
    outcome: str
    option_id: str | None = None
    answered_by: str | None = None
    content: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Deadline:
    """When an away policy acts: `shown` to people (ms since 1970), and `clock` (ms, the data directory's own clock)."""

    shown: int
    clock: int


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A question as its row keeps it; `asked_at` and `deadline` are milliseconds since 1970, for people.

    What decides are `asked_clock` and `deadline_clock` (ms, own clock; None: a daemon without one wrote the row).
    `policy`: `attended` while a client is there, the away policy while none is, `parked` once its worker was given up.
    `deadline`: when the policy acts. `turn_id`: the turn that asks, or that goes on with the answer to a parked one.
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
    """How a question was answered: ACP's outcome and option, and who did it (a client's name, `cli`, `policy`…).

    The outcome of a form is ACP's `action`, and `content` is what was filled in.
    """

    outcome: str
    option: str | None = None
    by: str | None = None
    content: dict[str, Any] | None = None
