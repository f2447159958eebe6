"""Which processes workers are: plain data that a daemon writes down for the next one."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from pykoclaw_acp.channel.spec import WorkerIdentity


@dataclass(frozen=True, slots=True)
class WorkerProcess:
    """Which process a worker is: a pid alone could be another one's tomorrow."""

    pid: int
    start_time: int
    boot_id: str


@dataclass(frozen=True, slots=True)
class LeftWorker:
    """A worker that another daemon launched, as its row says: its frames up to `acked_frame` are committed."""

    identity: WorkerIdentity
    process: WorkerProcess
    acked_frame: int


class Forked(msgspec.Struct):
    """The answer to a launch: the worker's pid and start time, or what went wrong."""

    pid: int = 0
    start_time: int = 0
    error: str | None = None
    kind: str = "start_failed"
