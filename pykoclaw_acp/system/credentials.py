"""Credentials for Claude: where one is found, and the CLI that logs in. Nothing of them is shown."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, Final

from pykoclaw_acp.system import shortage
from pykoclaw_acp.system.environment import KEYS, SWITCHES
from pykoclaw_acp.system.regular_files import opened

LOGIN: Final = ".credentials.json"  # in Claude's configuration directory
# Logins at MCP servers, in that file
_SERVERS: Final = frozenset({"mcpOAuth", "mcpOAuthClientConfig"})
_HEADERS: Final = "ANTHROPIC_CUSTOM_HEADERS"  # besides a key, not instead of one
_MOST: Final = 4 * 1024 * 1024  # bytes of a file; more than the CLI reads
KEY: Final = "anthropic_api_key"  # its name in the units of deploy/
_HANDED: Final = "CREDENTIALS_DIRECTORY"  # systemd's LoadCredential


def in_environment(environment: Mapping[str, str]) -> str | None:
    """The variable that has a key or a token, or that names a cloud with its own way to log in."""
    names = (*sorted(KEYS - {_HEADERS}), *sorted(SWITCHES))
    return next((name for name in names if environment.get(name)), None)


def key_of_service(environment: Mapping[str, str]) -> str:
    """The API key that systemd holds for the service (`LoadCredential=`, systemd.exec(5)); empty:
    none. Raises OSError if it is there and cannot be read.
    """
    directory = environment.get(_HANDED)
    if not directory:
        return ""
    try:
        with opened(os.path.join(directory, KEY)) as descriptor:
            return os.read(descriptor, _MOST).decode(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""


def is_handed(environment: Mapping[str, str]) -> bool:
    """Whether the service gets a key from systemd; other credentials of its are not for Claude.
    Raises as `login`.
    """
    try:
        return bool(key_of_service(environment))
    except OSError as error:
        if shortage.of(error) is not None:
            raise
        return False


def configuration(environment: Mapping[str, str], home: str | os.PathLike[str]) -> str:
    """Claude's own configuration directory."""
    return environment.get("CLAUDE_CONFIG_DIR") or os.path.join(home, ".claude")


def login(directory: str | os.PathLike[str]) -> str | None:
    """The file with a login, or the settings that name a helper for keys; None: neither is there.

    Raises OSError or MemoryError if there may be one that cannot be read for a shortage
    (`shortage.of`).
    """
    file = os.path.join(directory, LOGIN)
    if _dict(file).keys() - _SERVERS:
        return file
    settings = os.path.join(directory, "settings.json")
    return settings if _dict(settings).get("apiKeyHelper") else None


def expires_at(directory: str | os.PathLike[str]) -> int | None:
    """When the login of a subscription expires (ms since 1970); None if that is not known. Raises as
    `login`.
    """
    found = _dict(os.path.join(directory, LOGIN)).get("claudeAiOauth")
    value = found.get("expiresAt") if isinstance(found, dict) else None
    return value if isinstance(value, int) else None


def bundled_cli() -> str | None:
    """Path of the SDK's bundled CLI, found without importing the SDK."""
    spec = find_spec("claude_agent_sdk")
    if spec is None or not spec.submodule_search_locations:
        return None
    return os.path.join(spec.submodule_search_locations[0], "_bundled", "claude")


def _dict(path: str) -> dict[str, Any]:
    try:
        with opened(path) as descriptor:
            value = json.loads(os.read(descriptor, _MOST))
    except (OSError, ValueError, RecursionError) as error:
        if shortage.of(error) is not None:
            raise
        return {}
    return value if isinstance(value, dict) else {}
