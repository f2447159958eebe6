"""Which processes workers are: plain data that a daemon records for the next one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from pykoclaw_acp.channel.files import WorkerFiles
from pykoclaw_acp.channel.spec import LaunchSpec, WorkerIdentity
from pykoclaw_acp.error_kinds import ErrorKind


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """Which process a worker is: a pid alone could be another one's tomorrow."""

    pid: int
    start_time: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class WorkerHandle:
    """What a launcher finds its worker by. Kept in the worker's row, column by column; nobody else
    looks into it.

    The directory of `socket` is below one that has the name of the worker's instance.
    """

    process: WorkerProcess
    socket: str

    @property
    def instance(self) -> str:
        """The instance that the worker was launched for."""
        return Path(self.socket).parents[1].name


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A worker of another daemon, as its row says: its frames up to `acked_frame` are committed.

    `workspace` is that of its options; None: it was launched by a version that does not know.
    `outdated`: its session has other options, or fewer rules, by now; `spared`: as long as commands of
    its run in the background.
    """

    identity: WorkerIdentity
    handle: WorkerHandle
    acked_frame: int
    workspace: str | None = None
    outdated: bool = False
    spared: bool = True

    @property
    def session_id(self) -> str:
        """The session that it works for."""
        return self.identity.session_id

    @property
    def epoch(self) -> int:
        """The epoch of its launch."""
        return self.identity.epoch


class ForkRequest(msgspec.Struct, frozen=True):
    """A request to the fork server."""

    spec: LaunchSpec
    files: WorkerFiles


class Forked(msgspec.Struct):
    """The answer: the worker's pid and start time, or what went wrong."""

    pid: int = 0
    start_time: int = 0
    error: str | None = None
    kind: ErrorKind = ErrorKind.START_FAILED
