"""What a worker is told when it is launched."""

from __future__ import annotations

from typing import Literal

import msgspec


class McpStdio(msgspec.Struct, frozen=True):
    """A stdio MCP server that the client asked for; `env` may hold secrets and is never logged or stored."""

    name: str
    command: str
    args: list[str]
    env: dict[str, str]


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One worker: which session, which Claude session to resume, and under which settings.

    `resume_session_id` comes from `WorkerPool.set_resume` alone; None begins a Claude session under the ACP id.
    """

    instance: str  # of the server: the name of its runtime directory
    session_id: str
    epoch: int
    cwd: str
    additional_directories: list[str] = []
    resume_session_id: str | None = None
    model: str | None = None
    permission_mode: str = "default"
    setting_sources: list[str]
    cli_path: str | None = None
    mcp_servers: list[McpStdio] = []
    socket: str  # path of the unix socket that the fork server binds and the worker serves
    temporary: str  # the worker's own temporary directory
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @property
    def cookie(self) -> str:
        """Value of `PYKOCLAW_WORKER` in the environment of everything that this worker starts."""
        return f"{self.instance}:{self.session_id}:{self.epoch}"
