"""Variables of a client's environment that its own sessions have, and those that are the daemon's.

Standard library only: the front sends them in its introduction.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` would cost the front half of its start-up time
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

MODEL: Final = "PYKOCLAW_MODEL"
CLAUDES_MODEL: Final = "ANTHROPIC_MODEL"  # Claude's own name of it
MODE: Final = "PYKOCLAW_PERMISSION_MODE"
ACCOUNT: Final = "PYKOCLAW_ACCOUNT"
CONFIGURATION: Final = "CLAUDE_CONFIG_DIR"
SETTINGS: Final = frozenset({MODEL, CLAUDES_MODEL, MODE, ACCOUNT})

# Whose account is used, and through which service. Always replaced together: a key must not be sent
# to the gateway of another environment.
KEYS: Final = frozenset(
    {
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_AUTH_TOKEN",
        "ANTHROPIC_CUSTOM_HEADERS",
        "CLAUDE_CODE_OAUTH_TOKEN",
    }
)
SWITCHES: Final = frozenset(
    {"CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_FOUNDRY", "CLAUDE_CODE_USE_VERTEX"}
)
# Of use to Claude only with a switch; without one they are those of the user's own tools.
CLOUD_KEYS: Final = frozenset(
    {
        "ANTHROPIC_FOUNDRY_API_KEY",
        "AWS_ACCESS_KEY_ID",
        "AWS_BEARER_TOKEN_BEDROCK",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
    }
)
CLOUD: Final = CLOUD_KEYS | {
    "ANTHROPIC_BEDROCK_BASE_URL",
    "ANTHROPIC_FOUNDRY_BASE_URL",
    "ANTHROPIC_FOUNDRY_RESOURCE",
    "ANTHROPIC_VERTEX_BASE_URL",
    "ANTHROPIC_VERTEX_PROJECT_ID",
    "AWS_DEFAULT_REGION",
    "AWS_PROFILE",
    "AWS_REGION",
    "CLAUDE_CODE_SKIP_BEDROCK_AUTH",
    "CLAUDE_CODE_SKIP_FOUNDRY_AUTH",
    "CLAUDE_CODE_SKIP_VERTEX_AUTH",
    "CLOUD_ML_REGION",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_CLOUD_PROJECT",
}
# One of them is a credential of its own, or says how Claude finds one.
CREDENTIALS: Final = KEYS | SWITCHES
PROVIDER: Final = KEYS | SWITCHES | CLOUD | {"ANTHROPIC_BASE_URL"}

_PROXIES: Final = frozenset({"ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"})
KEY_LENGTH: Final = 24  # characters; a shorter word is taken for a name
_CLIENT_KEY: Final = "CLAUDE_CODE_CLIENT_KEY"
# The way to the service; replaced together as well.
NETWORK: Final = (
    _PROXIES
    | {name.lower() for name in _PROXIES}
    | {
        "CLAUDE_CODE_CLIENT_CERT",
        _CLIENT_KEY,
        f"{_CLIENT_KEY}_PASSPHRASE",
        "NODE_EXTRA_CA_CERTS",
    }
)
TUNING: Final = frozenset(
    {
        "ANTHROPIC_DEFAULT_HAIKU_MODEL",
        "ANTHROPIC_DEFAULT_OPUS_MODEL",
        "ANTHROPIC_DEFAULT_SONNET_MODEL",
        "ANTHROPIC_SMALL_FAST_MODEL",
        "API_TIMEOUT_MS",
        "BASH_DEFAULT_TIMEOUT_MS",
        "BASH_MAX_OUTPUT_LENGTH",
        "BASH_MAX_TIMEOUT_MS",
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS",
        "CLAUDE_CODE_SUBAGENT_MODEL",
        "MAX_MCP_OUTPUT_TOKENS",
        "MAX_THINKING_TOKENS",
        "MCP_TIMEOUT",
        "MCP_TOOL_TIMEOUT",
    }
)
# They only withhold something from others: a daemon keeps those of the client that has started it.
_PRIVACY: Final = frozenset(
    {
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC",
        "DISABLE_ERROR_REPORTING",
        "DISABLE_TELEMETRY",
        "DO_NOT_TRACK",
    }
)

_ALWAYS: Final = SETTINGS | KEYS | {"ANTHROPIC_BASE_URL"} | NETWORK | TUNING | _PRIVACY
_WITH_CLOUD: Final = _ALWAYS | SWITCHES | CLOUD
_OURS: Final = "PYKOCLAW_"
# Where the daemon is, and what only the process that has them reads.
NOT_COMPARED: Final = SETTINGS | {
    "PYKOCLAW_ACP_LOG_LEVEL",
    "PYKOCLAW_CRASH_AT",
    "PYKOCLAW_DAEMON_TIMEOUT",
    "PYKOCLAW_DATA",
    "PYKOCLAW_READY_FD",
    "PYKOCLAW_SOCKET",
    "PYKOCLAW_START_LOCK_FD",
    "PYKOCLAW_STATE",
    "PYKOCLAW_WORKER",
}


def of_sessions(environment: Mapping[str, str]) -> dict[str, str]:
    """What of this environment is a session's matter; an empty variable counts as absent."""
    wanted = _WITH_CLOUD if any(environment.get(name) for name in SWITCHES) else _ALWAYS
    return {name: value for name, value in environment.items() if name in wanted and value}


def is_text(value: str) -> bool:
    """Whether it is Unicode: what is not UTF-8 in a variable becomes lone surrogates, which no message
    may have.
    """
    return value.encode(errors="replace").decode() == value


def of_one_client(environment: Mapping[str, str]) -> frozenset[str]:
    """Names of what no process must have that also works for other clients."""
    return frozenset(of_sessions(environment)) - _PRIVACY


def of_daemon(environment: Mapping[str, str]) -> dict[str, str]:
    """What holds for all clients of a daemon: its settings, and Claude's own configuration."""
    return {
        name: value
        for name, value in environment.items()
        if (name.startswith(_OURS) or name == CONFIGURATION) and name not in NOT_COMPARED and value
    }


def is_secret(name: str, value: str) -> bool:
    """Whether the variable may be in memory only: a key, or an address that may hold one."""
    if name in KEYS | CLOUD_KEYS or name == f"{_CLIENT_KEY}_PASSPHRASE":
        return True
    place = value.partition("://")[2]
    return "@" in value or "?" in place or any(map(_is_key, place.split("/")[1:]))


def _is_key(word: str) -> bool:
    """Whether a part of an address looks like a key, as some gateways want it there."""
    mixed = any(map(str.isdigit, word)) and any(map(str.isalpha, word))
    return word.startswith("sk-") or (len(word) >= KEY_LENGTH and mixed)
