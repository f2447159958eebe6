"""What a launcher is told to launch."""

from __future__ import annotations

import msgspec

from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.model.branches import Branch


class WorkerIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Which worker it is."""

    instance: str  # of the database
    session_id: str
    epoch: int

    @property
    def cookie(self) -> str:
        """Value of `PYKOCLAW_WORKER` in the environment of everything that this worker starts."""
        return f"{self.instance}:{self.session_id}:{self.epoch}"


class LaunchSpec(WorkerIdentity, frozen=True, kw_only=True):
    """A worker to launch: which one, its options, the Claude session that it resumes, and its
    limits.

    `resume_session_id` comes from `WorkerPool.set_resume` alone; None begins a Claude session under
    the ACP id. With a `branch` it begins one that branches off another. `told` identifies what an
    earlier worker of the session has said to the user about plugins and MCP servers; `windows` are
    sizes of context windows, in tokens, as far as workers with this model have learned them.
    """

    options: WorkerOptions
    resume_session_id: str | None = None
    branch: Branch | None = None
    orphan_grace: (
        float  # s that what runs may go on without a daemon; 0: the worker ends with its daemon
    )
    spool_limit: int  # bytes
    data: str = ""  # the data directory that it works for
    told: str = ""
    windows: dict[str, int] = {}

    @property
    def identity(self) -> WorkerIdentity:
        """Which worker it is, alone."""
        return WorkerIdentity(instance=self.instance, session_id=self.session_id, epoch=self.epoch)
