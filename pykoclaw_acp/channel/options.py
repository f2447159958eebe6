"""The options of a worker: how Claude runs for a session."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

TRUSTED: Final = "trusted:"  # prefix of a `workspace` whose active content takes effect
WITHOUT: Final = "without:"  # prefix of one whose active content does not


class McpStdio(msgspec.Struct, frozen=True):
    """A stdio MCP server that the client asked for; `env` may hold secrets and is never logged or
    stored.
    """

    name: str
    command: str
    args: list[str]
    env: dict[str, str]


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one worker. An option that has a setting's name is that setting unless the session
    has its own.

    The server makes a template from the settings (`Settings.fill`); a session replaces what is its
    own, and the pool hands the options to the worker unchanged.
    """

    model: str | None
    permission_mode: str
    setting_sources: tuple[str, ...]
    cli_path: str | None
    log_level: Literal["debug", "info", "warning", "error"]
    bypass: bool  # whether the mode bypassPermissions may be chosen
    profile: Literal["editor", "pykoclaw"] = "editor"
    conversation: str = ""  # its name, to which pykoclaw's tools are bound
    cwd: str = ""
    additional_directories: tuple[str, ...] = ()
    mcp_servers: tuple[McpStdio, ...] = ()
    brave_api_key: str | None = None  # never logged or stored
    # its active content: TRUSTED or WITHOUT, and a fingerprint; empty: there is none
    workspace: str = ""

    @property
    def restricted(self) -> bool:
        """Whether active content of its directories must not take effect."""
        return is_restricted(self.workspace)


def is_restricted(workspace: str | None) -> bool:
    """Whether a worker with this `workspace` runs without active content."""
    return workspace is not None and workspace.startswith(WITHOUT)
