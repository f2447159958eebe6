"""What a worker is told when it is launched."""

from __future__ import annotations

from pathlib import Path
from typing import Self

import msgspec

from pykoclaw_acp.channel.options import WorkerOptions


class WorkerIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Which worker it is, and where its things are: all that a daemon needs that did not launch it."""

    instance: str  # of the database: the name of the directory that its workers share
    session_id: str
    epoch: int
    socket: str  # path of the unix socket that the fork server binds and the worker serves
    temporary: str  # the worker's own temporary directory
    spool: str  # path of the file for its frames while no daemon takes them
    workspace: str | None = ""  # as in WorkerOptions; None: launched by a version that does not know

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
    """A worker to launch: which one, its options, the Claude session that it resumes, and its limits.

    `resume_session_id` comes from `WorkerPool.set_resume` alone; None begins a Claude session under the ACP id.
    """

    options: WorkerOptions
    resume_session_id: str | None = None
    orphan_grace: float  # s that what runs may go on without a daemon; 0: the worker ends with its daemon
    spool_limit: int  # bytes
    data: str = ""  # the data directory that it works for
