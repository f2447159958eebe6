"""ACP version 1 messages as typed Structs (https://agentclientprotocol.com, schema 1.x).

Field names are Python's; on the wire they are camelCase, and `meta` is `_meta`. Unknown fields are ignored, as the
schema demands, and `_meta` is never merged into parameters.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pykoclaw_acp.protocol.limits import Count, Name


class Wire(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """Base of everything on the wire."""


class Params(Wire, frozen=True, kw_only=True):
    """Base of what clients send."""

    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


# --- content -------------------------------------------------------------------------------------------------------


class TextContent(Wire, frozen=True, kw_only=True, tag_field="type", tag="text"):
    text: str
    annotations: dict[str, Any] | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class ResourceLink(Wire, frozen=True, kw_only=True, tag_field="type", tag="resource_link"):
    uri: str
    name: str
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: Count | None = None
    annotations: dict[str, Any] | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class ImageContent(Wire, frozen=True, kw_only=True, tag_field="type", tag="image"):
    data: str
    mime_type: str
    uri: str | None = None
    annotations: dict[str, Any] | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class AudioContent(Wire, frozen=True, kw_only=True, tag_field="type", tag="audio"):
    data: str
    mime_type: str
    annotations: dict[str, Any] | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class EmbeddedResource(Wire, frozen=True, kw_only=True, tag_field="type", tag="resource"):
    resource: dict[str, Any]
    annotations: dict[str, Any] | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


ContentBlock = TextContent | ResourceLink | ImageContent | AudioContent | EmbeddedResource


# --- client to agent -----------------------------------------------------------------------------------------------


class Implementation(Wire, frozen=True, kw_only=True):
    """Decoded leniently: what is longer than it may be is not taken."""

    name: Name = "unknown"
    version: Name = "unknown"
    title: Name | None = None


class InitializeParams(Params, frozen=True, kw_only=True):
    """`clientInfo` and `clientCapabilities` are decoded leniently."""

    protocol_version: Count
    client_info: msgspec.Raw = msgspec.Raw(b"{}")
    client_capabilities: msgspec.Raw = msgspec.Raw(b"{}")


class ElicitationCapabilities(Wire, frozen=True, kw_only=True):
    """A mode that is there is supported, whatever its object holds."""

    form: dict[str, Any] | None = None


class ClientCapabilities(Wire, frozen=True, kw_only=True):
    """Those that this agent makes use of."""

    elicitation: ElicitationCapabilities = ElicitationCapabilities()


class EnvVariable(Wire, frozen=True, kw_only=True):
    name: str
    value: str


class McpServer(Params, frozen=True, kw_only=True):
    """A stdio MCP server: the transport without a `type` (every agent must support it)."""

    name: str
    command: str
    args: list[str]
    env: list[EnvVariable]
    type: Literal["stdio"] = "stdio"


class NewSessionParams(Params, frozen=True, kw_only=True):
    cwd: str
    mcp_servers: list[msgspec.Raw]
    additional_directories: list[str] | None = None


class LoadSessionParams(NewSessionParams, frozen=True, kw_only=True):
    session_id: Name


class ResumeSessionParams(Params, frozen=True, kw_only=True):
    session_id: Name
    cwd: str
    mcp_servers: list[msgspec.Raw] | None = None
    additional_directories: list[str] | None = None


class SessionParams(Params, frozen=True, kw_only=True):
    """`session/close` and `session/cancel`."""

    session_id: Name


class PromptParams(Params, frozen=True, kw_only=True):
    session_id: Name
    prompt: list[ContentBlock]


class SetModeParams(SessionParams, frozen=True, kw_only=True):
    mode_id: Name


class SetModelParams(SessionParams, frozen=True, kw_only=True):
    """`session/set_model` was never stable in ACP, and is gone from it; Mitto calls it."""

    model_id: Name


class SetConfigOptionParams(SessionParams, frozen=True, kw_only=True):
    config_id: Name
    value: Name | bool


class CancelRequestParams(Params, frozen=True, kw_only=True):
    request_id: str | int | None


# --- answers -------------------------------------------------------------------------------------------------------


class SessionMode(Wire, frozen=True, kw_only=True):
    id: str
    name: str
    description: str | None = None


class ModeState(Wire, frozen=True, kw_only=True):
    current_mode_id: str
    available_modes: list[SessionMode]


class ModelInfo(Wire, frozen=True, kw_only=True):
    model_id: str
    name: str
    description: str | None = None


class ModelState(Wire, frozen=True, kw_only=True):
    """What ACP had before models became config options."""

    current_model_id: str
    available_models: list[ModelInfo]


class ConfigValue(Wire, frozen=True, kw_only=True):
    value: str
    name: str
    description: str | None = None


class ConfigOption(Wire, frozen=True, kw_only=True, tag_field="type", tag="select"):
    """Only `select`: Mitto fails at a type that it does not know, and not every client takes `boolean`."""

    id: str
    name: str
    category: str
    current_value: str
    options: list[ConfigValue]


class SessionState(Wire, frozen=True, kw_only=True):
    """The answer of load and resume: what is chosen, and what can be; `modes` and `models` say what the options say."""

    modes: ModeState | None = None
    models: ModelState | None = None
    config_options: list[ConfigOption]


class NewSessionResult(SessionState, frozen=True, kw_only=True):
    session_id: str


class SetConfigOptionResult(Wire, frozen=True, kw_only=True):
    config_options: list[ConfigOption]


class Empty(Wire, frozen=True, kw_only=True):
    """`{}`."""


class Usage(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """Tokens of one turn."""

    total_tokens: int
    input_tokens: int
    output_tokens: int
    cached_read_tokens: int = 0
    cached_write_tokens: int = 0


class PromptResult(Wire, frozen=True, kw_only=True):
    stop_reason: str
    usage: Usage | None = None


# --- session/update ------------------------------------------------------------------------------------------------


class ShownContent(Wire, frozen=True, kw_only=True, tag_field="type", tag="content"):
    """A content block that a tool shows."""

    content: TextContent | ImageContent


class Diff(Wire, frozen=True, kw_only=True, tag_field="type", tag="diff", omit_defaults=False):
    """A change to a file; `old_text` is None for a new one."""

    path: str
    old_text: str | None
    new_text: str


class ToolLocation(Wire, frozen=True, kw_only=True):
    path: str
    line: int | None = None


class Cost(Wire, frozen=True, kw_only=True):
    amount: float
    currency: str


class Update(Wire, frozen=True, kw_only=True, tag_field="sessionUpdate"):
    """Base of what `session/update` carries."""

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
    content: list[ShownContent | Diff] | None = None
    locations: list[ToolLocation] | None = None
    raw_input: dict[str, Any] | None = None


class ToolCallUpdate(Update, frozen=True, kw_only=True, tag="tool_call_update"):
    tool_call_id: str
    status: str
    content: list[ShownContent | Diff] | None = None


class UsageUpdate(Update, frozen=True, kw_only=True, tag="usage_update"):
    used: int
    size: int
    cost: Cost | None = None


class PlanEntry(Wire, frozen=True, kw_only=True, omit_defaults=False):
    content: str
    status: str
    priority: str = "medium"  # Claude has none


class PlanUpdate(Update, frozen=True, kw_only=True, tag="plan"):
    entries: list[PlanEntry]


class CurrentModeUpdate(Update, frozen=True, kw_only=True, tag="current_mode_update"):
    current_mode_id: str


class ConfigOptionUpdate(Update, frozen=True, kw_only=True, tag="config_option_update"):
    config_options: list[ConfigOption]


class SessionInfoUpdate(Update, frozen=True, kw_only=True, tag="session_info_update"):
    title: str


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


# --- session/request_permission ------------------------------------------------------------------------------------


class PermissionOption(Wire, frozen=True, kw_only=True):
    option_id: str
    name: str
    kind: Literal["allow_once", "allow_always", "reject_once", "reject_always"]


class AskedToolCall(Wire, frozen=True, kw_only=True):
    """The tool call that waits for permission."""

    tool_call_id: str
    title: str
    kind: str
    status: str
    content: list[ShownContent | Diff] | None = None
    raw_input: dict[str, Any] | None = None


class RequestPermission(Wire, frozen=True, kw_only=True):
    session_id: str
    tool_call: AskedToolCall
    options: list[PermissionOption]


class PermissionOutcome(Wire, frozen=True, kw_only=True):
    outcome: str
    option_id: str | None = None


class PermissionResult(Params, frozen=True, kw_only=True):
    outcome: PermissionOutcome


# --- elicitation/create --------------------------------------------------------------------------------------------


class CreateElicitation(Wire, frozen=True, kw_only=True):
    """A form, of an MCP server's making, that belongs to a session."""

    session_id: str
    message: str
    requested_schema: dict[str, Any]
    mode: Literal["form", "url"]


class ElicitationResult(Params, frozen=True, kw_only=True):
    action: str
    content: dict[str, Any] | None = None
