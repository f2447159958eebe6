"""Where the files of a worker on this machine are."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Self

import msgspec

from pykoclaw_acp.channel.spec import WorkerIdentity


class WorkerFiles(msgspec.Struct, frozen=True):
    """Paths of a worker's files, below the directory of its instance."""

    socket: str  # bound by the fork server, served by the worker
    temporary: str  # the worker's own temporary directory
    spool: str  # its frames while no daemon takes them

    @classmethod
    def of(cls, directory: Path, worker: WorkerIdentity) -> Self:
        """Return the paths for a new worker. The session's id is hashed, so it cannot name a
        path.
        """
        return cls._at(
            directory,
            f"{hashlib.sha256(worker.session_id.encode()).hexdigest()[:16]}-{worker.epoch}",
        )

    @classmethod
    def beside(cls, socket: str) -> Self:
        """Return the paths of the worker with this socket, in the state directory of its launch."""
        path = Path(socket)
        return cls._at(path.parents[1], path.name)

    @property
    def name(self) -> str:
        """What the files have in common."""
        return Path(self.socket).name

    @classmethod
    def plugins(cls, temporary: str) -> Path:
        """What all workers of the instance know of plugins, by the temporary directory of one."""
        return Path(temporary).parents[1] / "plugins.json"

    @classmethod
    def _at(cls, directory: Path, name: str) -> Self:
        return cls(
            socket=str(directory / "sockets" / name),
            temporary=str(directory / "tmp" / name),
            spool=str(directory / "spool" / f"{name}.ndjson"),
        )
