"""What a worker is told when it is launched."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal, Self

import msgspec

TRUSTED: Final = "trusted:"  # how a `workspace` begins under which what acts counts
WITHOUT: Final = "without:"


class McpStdio(msgspec.Struct, frozen=True):
    """A stdio MCP server that the client asked for; `env` may hold secrets and is never logged or stored."""

    name: str
    command: str
    args: list[str]
    env: dict[str, str]


class WorkerIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Which worker it is, and where its things are: all that a daemon needs that did not launch it."""

    instance: str  # of the database: the name of the directory that its workers share
    session_id: str
    epoch: int
    socket: str  # path of the unix socket that the fork server binds and the worker serves
    temporary: str  # the worker's own temporary directory
    spool: str  # path of the file for its frames while no daemon takes them
    workspace: str | None = ""  # as in WorkerWish; None: launched by a version that does not know

    @classmethod
    def at(cls, directory: Path, name: str, session_id: str, epoch: int, workspace: str | None = "") -> Self:
        """The worker of this name, which is that of its socket, below the instance's directory."""
        return cls(
            instance=directory.name,
            session_id=session_id,
            epoch=epoch,
            socket=str(directory / "sockets" / name),
            temporary=str(directory / "tmp" / name),
            spool=str(directory / "spool" / f"{name}.ndjson"),
            workspace=workspace,
        )

    @property
    def cookie(self) -> str:
        """Value of `PYKOCLAW_WORKER` in the environment of everything that this worker starts."""
        return f"{self.instance}:{self.session_id}:{self.epoch}"


class LaunchSpec(WorkerIdentity, frozen=True, kw_only=True):
    """One worker: which session, which Claude session to resume, and under which settings.

    `resume_session_id` comes from `WorkerPool.set_resume` alone; None begins a Claude session under the ACP id.
    """

    cwd: str
    additional_directories: list[str] = []
    resume_session_id: str | None = None
    model: str | None = None
    permission_mode: str = "default"
    bypass: bool = False  # it may be switched to bypassPermissions
    setting_sources: list[str]
    cli_path: str | None = None
    mcp_servers: list[McpStdio] = []
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    orphan_grace: float  # s that what runs may go on without a daemon; 0: the worker ends with its daemon
    spool_limit: int  # bytes
    data: str = ""  # the data directory that it works for

    @property
    def restricted(self) -> bool:
        """What acts in its directories must not: they are not trusted."""
        return is_restricted(self.workspace)


def is_restricted(workspace: str | None) -> bool:
    """Whether a worker of this `workspace` runs without what acts there."""
    return workspace is not None and workspace.startswith(WITHOUT)
