"""What a client asks of Claude when it opens a session, besides directories and MCP servers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec.structs import asdict, replace

# Variables that a client may set for Claude and its tools. None of them is a secret, makes another
# program run, or says where requests go: values are stored with the session.
ENVIRONMENT: Final = frozenset(
    {
        "ANTHROPIC_DEFAULT_HAIKU_MODEL",
        "ANTHROPIC_DEFAULT_OPUS_MODEL",
        "ANTHROPIC_DEFAULT_SONNET_MODEL",
        "ANTHROPIC_SMALL_FAST_MODEL",
        "BASH_DEFAULT_TIMEOUT_MS",
        "BASH_MAX_OUTPUT_LENGTH",
        "BASH_MAX_TIMEOUT_MS",
        "CI",
        "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE",
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS",
        "CLAUDE_CODE_ENABLE_TODO_TOOLS",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
        "CLAUDE_CODE_SUBAGENT_MODEL",
        "DISABLE_AUTO_COMPACT",
        "FORCE_COLOR",
        "GIT_AUTHOR_EMAIL",
        "GIT_AUTHOR_NAME",
        "GIT_COMMITTER_EMAIL",
        "GIT_COMMITTER_NAME",
        "LANG",
        "LANGUAGE",
        "LC_ALL",
        "LC_COLLATE",
        "LC_CTYPE",
        "LC_MESSAGES",
        "LC_NUMERIC",
        "LC_TIME",
        "MAX_MCP_OUTPUT_TOKENS",
        "MAX_THINKING_TOKENS",
        "MCP_TIMEOUT",
        "MCP_TOOL_TIMEOUT",
        "NO_COLOR",
        "TZ",
    }
)


class SystemPrompt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A text for the system prompt: added to Claude's own, or in its place (`replaces`)."""

    text: str
    replaces: bool = False


class SessionOptions(msgspec.Struct, frozen=True, omit_defaults=True):
    """Options of a session's Claude; None: not asked for. They are stored, so none is a secret.

    `tools`: all that there are; `allowed_tools` are used unasked, but for those that `ask_tools`
    names as well; `max_turns` is the limit of requests to the model in one turn. `forbids_bypass`: the
    mode bypassPermissions may not be chosen, and is `default` if the settings begin with it.
    `unchecked_model`: a model that was asked for and that Claude has not listed; its worker looks
    whether Claude knows it.
    """

    system_prompt: SystemPrompt | None = None
    tools: tuple[str, ...] | None = None
    allowed_tools: tuple[str, ...] | None = None
    disallowed_tools: tuple[str, ...] | None = None
    setting_sources: tuple[str, ...] | None = None
    max_turns: int | None = None
    env: dict[str, str] | None = None
    unchecked_model: str | None = None
    forbids_bypass: bool | None = None
    ask_tools: tuple[str, ...] | None = None

    def over(self, earlier: SessionOptions) -> SessionOptions:
        """These options, and the earlier ones where nothing is asked for."""
        return replace(
            earlier, **{name: one for name, one in asdict(self).items() if one is not None}
        )


@dataclass(frozen=True, slots=True)
class RequestedOptions:
    """What a client asks for when it opens a session; None: not asked for.

    `session_id`: of a new session. `begins_in`: the mode of a new session if `mode` is None, and
    `default` if it does not have that. `effort` is a level or `default`. `given`: by field, where
    in its parameters the client has said it.
    """

    session_id: str | None = None
    mode: str | None = None
    begins_in: str | None = None
    model: str | None = None
    effort: str | None = None
    fast: str | None = None
    options: SessionOptions = field(default_factory=SessionOptions)
    given: dict[str, str] = field(default_factory=dict)


NOTHING_REQUESTED: Final = RequestedOptions()
