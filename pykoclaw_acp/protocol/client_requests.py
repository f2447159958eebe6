"""Requests of the agent to a client: `session/request_permission` and `elicitation/create`."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pykoclaw_acp.protocol.content import ToolContent
from pykoclaw_acp.protocol.updates import ToolLocation
from pykoclaw_acp.protocol.wire import Params, Wire

# --- session/request_permission

PermissionKind = Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class PermissionOption(Wire, frozen=True, kw_only=True):
    option_id: str
    name: str
    kind: PermissionKind


class AskedToolCall(Wire, frozen=True, kw_only=True):
    """The tool call that waits for permission."""

    tool_call_id: str
    title: str
    kind: str
    status: str
    name: str | None = None
    content: list[ToolContent] | None = None
    locations: list[ToolLocation] | None = None
    raw_input: dict[str, Any] | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class RequestPermission(Wire, frozen=True, kw_only=True):
    session_id: str
    tool_call: AskedToolCall
    options: list[PermissionOption]


class PermissionOutcome(Params, frozen=True, kw_only=True):
    outcome: str
    option_id: str | None = None


class PermissionResult(Params, frozen=True, kw_only=True):
    outcome: PermissionOutcome


# --- elicitation/create


class CreateElicitation(Wire, frozen=True, kw_only=True):
    """A form, or a page that the user should open, shown in a session."""

    session_id: str
    tool_call_id: str | None = None
    message: str
    mode: Literal["form", "url"]
    requested_schema: dict[str, Any] | None = None
    elicitation_id: str | None = None
    url: str | None = None


class ElicitationResult(Params, frozen=True, kw_only=True):
    action: str
    content: dict[str, Any] | None = None
