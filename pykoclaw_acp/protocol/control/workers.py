"""`_pykoclaw.dev/workers/…`: workers, and how they are stopped."""

from __future__ import annotations

from typing import Literal

from pykoclaw_acp.model.workers import WorkerState
from pykoclaw_acp.protocol.control.answers import FullAnswer
from pykoclaw_acp.protocol.limits import Name
from pykoclaw_acp.protocol.wire import Params


class StopParams(Params, frozen=True, kw_only=True):
    """One session's worker, or `all`; `now`: do not let turns end in order."""

    session: Name | None = None
    all: bool = False
    now: bool = False


class WorkerInfo(FullAnswer, frozen=True, kw_only=True):
    """`memory`: PSS of the worker and its descendants; `protocol`: version of its channel.

    `workspace`: whether active content of its directories takes effect; null if there is none.
    """

    session: str
    title: str | None
    epoch: int
    pid: int
    state: WorkerState
    protocol: int
    started_at: int
    memory: int | None
    workspace: Literal["trusted", "without"] | None = None


class Stopped(FullAnswer, frozen=True, kw_only=True):
    """`workers`: number of workers that were stopped."""

    workers: int
