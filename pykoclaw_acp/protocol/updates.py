"""Updates: the content of `session/update`."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from pykoclaw_acp.protocol.content import TextContent, ToolContent
from pykoclaw_acp.protocol.messages import ConfigOptions
from pykoclaw_acp.protocol.wire import Wire


class ToolLocation(Wire, frozen=True, kw_only=True):
    path: str
    line: int | None = None


class Cost(Wire, frozen=True, kw_only=True):
    amount: float
    currency: str


class Update(Wire, frozen=True, kw_only=True, tag_field="sessionUpdate"):
    """Base of what `session/update` carries."""

    live_only: ClassVar[bool] = False  # never part of a replay

    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class UserMessageChunk(Update, frozen=True, kw_only=True, tag="user_message_chunk"):
    message_id: str
    content: dict[str, Any]  # as the client sent it


class AgentMessageChunk(Update, frozen=True, kw_only=True, tag="agent_message_chunk"):
    message_id: str
    content: TextContent


class AgentThoughtChunk(Update, frozen=True, kw_only=True, tag="agent_thought_chunk"):
    message_id: str
    content: TextContent


class ToolCall(Update, frozen=True, kw_only=True, tag="tool_call"):
    tool_call_id: str
    title: str
    kind: str
    status: str
    name: str | None = None
    content: list[ToolContent] | None = None
    locations: list[ToolLocation] | None = None
    raw_input: dict[str, Any] | None = None


class ToolCallUpdate(Update, frozen=True, kw_only=True, tag="tool_call_update"):
    tool_call_id: str
    status: str
    content: list[ToolContent] | None = None
    locations: list[ToolLocation] | None = None
    raw_input: dict[str, Any] | None = None
    raw_output: dict[str, Any] | None = None
    title: str | None = None


class UsageUpdate(Update, frozen=True, kw_only=True, tag="usage_update"):
    used: int
    size: int
    cost: Cost | None = None


class NoticeUpdate(Update, frozen=True, kw_only=True, tag="notice"):
    """Only to clients with the capability `session.notices`."""

    live_only = True
    severity: str
    title: str


class CompactionUpdate(Update, frozen=True, kw_only=True, tag="compaction_update"):
    """Only to clients with the capability `session.compaction`."""

    compaction_id: str
    status: str
    summary: list[TextContent] | None = None
    error: str | None = None


class PlanEntryUpdate(Wire, frozen=True, kw_only=True, omit_defaults=False):
    content: str
    status: str
    priority: str = "medium"  # Claude has none


class PlanUpdate(Update, frozen=True, kw_only=True, tag="plan"):
    entries: list[PlanEntryUpdate]


class CurrentModeUpdate(Update, frozen=True, kw_only=True, tag="current_mode_update"):
    current_mode_id: str


class ConfigOptionUpdate(Update, frozen=True, kw_only=True, tag="config_option_update"):
    config_options: ConfigOptions


class SessionInfoUpdate(Update, frozen=True, kw_only=True, tag="session_info_update"):
    title: str
    updated_at: str | None = None


class CommandInput(Wire, frozen=True, kw_only=True):
    hint: str


class AvailableCommand(Wire, frozen=True, kw_only=True):
    name: str
    description: str
    input: CommandInput | None = None


class AvailableCommandsUpdate(Update, frozen=True, kw_only=True, tag="available_commands_update"):
    available_commands: list[AvailableCommand]


class SessionNotification(Wire, frozen=True, kw_only=True):
    session_id: str
    update: Update
