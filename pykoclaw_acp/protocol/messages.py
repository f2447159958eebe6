"""Parameters and results of the ACP methods that clients call."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pykoclaw_acp.protocol.content import ContentBlock
from pykoclaw_acp.protocol.limits import Count, Name
from pykoclaw_acp.protocol.wire import Params, Wire

# --- client to agent


class Implementation(Wire, frozen=True, kw_only=True):
    """Name and version of a client, decoded leniently; values that are too long are dropped."""

    name: Name = "unknown"
    version: Name = "unknown"
    title: Name | None = None


class InitializeParams(Params, frozen=True, kw_only=True):
    """`clientInfo` and `clientCapabilities` are decoded leniently. Healthchecks of pykoclaw's users
    name no version.
    """

    protocol_version: Count = 1
    client_info: msgspec.Raw = msgspec.Raw(b"{}")
    client_capabilities: msgspec.Raw = msgspec.Raw(b"{}")


class AuthenticateParams(Params, frozen=True, kw_only=True):
    method_id: Name


class ElicitationCapabilities(Wire, frozen=True, kw_only=True):
    """Supported modes: a mode that is present is supported, whatever its object holds."""

    form: dict[str, Any] | None = None
    url: dict[str, Any] | None = None


class ClientConfigOptionCapabilities(Wire, frozen=True, kw_only=True):
    """Types of config options besides `select`: one that is present is taken."""

    boolean: dict[str, Any] | None = None


class ClientSessionCapabilities(Wire, frozen=True, kw_only=True):
    """Updates and config options that the client takes: one that is present is taken, whatever its
    object holds.
    """

    notices: dict[str, Any] | None = None
    compaction: dict[str, Any] | None = None
    config_options: ClientConfigOptionCapabilities = ClientConfigOptionCapabilities()


class ClientCapabilities(Wire, frozen=True, kw_only=True):
    """Capabilities that this agent uses."""

    elicitation: ElicitationCapabilities = ElicitationCapabilities()
    session: ClientSessionCapabilities = ClientSessionCapabilities()
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class EnvVariable(Wire, frozen=True, kw_only=True):
    name: str
    value: str


class HttpHeader(Wire, frozen=True, kw_only=True):
    name: str
    value: str


class StdioServer(Params, frozen=True, kw_only=True):
    """An MCP server on stdio: the transport without a `type` (every agent must support it)."""

    name: str
    command: str
    args: list[str]
    env: list[EnvVariable]
    type: Literal["stdio"] = "stdio"


class WebServer(Params, frozen=True, kw_only=True):
    """An MCP server over streamable http, or sse."""

    name: str
    url: str
    headers: list[HttpHeader]
    type: Literal["http", "sse"]


class NewSessionParams(Params, frozen=True, kw_only=True):
    cwd: str
    mcp_servers: list[msgspec.Raw]
    additional_directories: list[str] | None = None
    system_prompt: dict[str, Any] | None = None


class LoadSessionParams(NewSessionParams, frozen=True, kw_only=True):
    session_id: Name


class ResumeSessionParams(Params, frozen=True, kw_only=True):
    session_id: Name
    cwd: str
    mcp_servers: list[msgspec.Raw] | None = None
    additional_directories: list[str] | None = None
    system_prompt: dict[str, Any] | None = None


class ForkSessionParams(ResumeSessionParams, frozen=True, kw_only=True):
    """Unstable in ACP."""


class SessionParams(Params, frozen=True, kw_only=True):
    """Parameters of methods that need the session's id only."""

    session_id: Name


class ListSessionsParams(Params, frozen=True, kw_only=True):
    """`archived` is unstable in ACP: `exclude` (the default), `include` or `only`."""

    cwd: str | None = None
    cursor: str | None = None
    archived: str | None = None


class SetTitleParams(SessionParams, frozen=True, kw_only=True):
    """Parameters of `session/set_title`, which is unstable in ACP."""

    title: str


class PromptParams(Params, frozen=True, kw_only=True):
    session_id: Name
    prompt: list[ContentBlock]


class SetModeParams(SessionParams, frozen=True, kw_only=True):
    mode_id: Name


class SetModelParams(SessionParams, frozen=True, kw_only=True):
    """Parameters of `session/set_model`, which was unstable in ACP and was removed; Mitto calls it."""

    model_id: Name


class SetConfigOptionParams(SessionParams, frozen=True, kw_only=True):
    config_id: Name
    value: Name | bool  # a boolean with `type` `boolean`, as the schema has it, or without


class CancelRequestParams(Params, frozen=True, kw_only=True):
    request_id: str | int | None


# --- answers


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
    """Available models, as ACP had them before config options."""

    current_model_id: str
    available_models: list[ModelInfo]


class ConfigValue(Wire, frozen=True, kw_only=True):
    value: str
    name: str
    description: str | None = None


class ConfigOption(Wire, frozen=True, kw_only=True, tag_field="type", tag="select"):
    """A config option that has one of several values."""

    id: str
    name: str
    description: str | None = None
    category: str
    current_value: str
    options: list[ConfigValue]


class BooleanConfigOption(Wire, frozen=True, kw_only=True, tag_field="type", tag="boolean"):
    """A config option that is on or off, for clients that take this type; Mitto fails at it."""

    id: str
    name: str
    description: str | None = None
    category: str
    current_value: bool


ConfigOptions = list[ConfigOption | BooleanConfigOption]


class OpenedState(Wire, frozen=True, kw_only=True):
    """Result of load and resume: selected values and choices; `modes` and `models` repeat the
    config options. `models` is no longer in ACP.
    """

    modes: ModeState | None = None
    models: ModelState | None = None
    config_options: ConfigOptions
    meta: dict[str, Any] | None = msgspec.field(default=None, name="_meta")


class NewSessionResult(OpenedState, frozen=True, kw_only=True):
    session_id: str


class SessionInfo(Wire, frozen=True, kw_only=True):
    """A session in a list. `updated_at`: ISO 8601; None if it is not known."""

    session_id: str
    cwd: str
    archived: bool
    additional_directories: tuple[str, ...] = ()
    title: str | None = None
    updated_at: str | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class ListSessionsResult(Wire, frozen=True, kw_only=True):
    sessions: list[SessionInfo]
    next_cursor: str | None = None


class SetTitleResult(Wire, frozen=True, kw_only=True):
    title: str


class ForkSessionResult(NewSessionResult, frozen=True, kw_only=True):
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class SetConfigOptionResult(Wire, frozen=True, kw_only=True):
    config_options: ConfigOptions


class AuthAccount(Wire, frozen=True, kw_only=True):
    """A credential, for display: nothing of it but where it comes from."""

    label: str
    active: bool


class AuthStatusResult(Wire, frozen=True, kw_only=True):
    """Whether new sessions of the client have a credential, and the credentials that are known."""

    state: Literal["authenticated", "unauthenticated"]
    accounts: tuple[AuthAccount, ...] = ()


class Empty(Wire, frozen=True, kw_only=True):
    """An empty object."""


class TokenUsage(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """Tokens used by one turn."""

    total_tokens: int
    input_tokens: int
    output_tokens: int
    cached_read_tokens: int = 0
    cached_write_tokens: int = 0


class PromptResult(Wire, frozen=True, kw_only=True):
    stop_reason: str
    usage: TokenUsage | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)


class SteeringResult(Wire, frozen=True, kw_only=True):
    """Result of `_session/steering`."""

    outcome: str
    reason: str | None = None
    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)
