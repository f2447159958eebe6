"""What tests launch workers with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.channel.spec import LaunchSpec, WorkerIdentity

OPTIONS = WorkerOptions(
    model=None, permission_mode="default", setting_sources=("user",), cli_path=None, log_level="info", bypass=False,
    cwd="/",
)  # fmt: skip


def spec(directory: Path, *, session: str = "session", epoch: int = 1, **more: Any) -> LaunchSpec:
    """A worker below an instance's directory."""
    identity = WorkerIdentity.at(directory, "worker", session, epoch)
    limits = {"orphan_grace": 0, "spool_limit": 10_000}
    return LaunchSpec(**msgspec.structs.asdict(identity), options=OPTIONS, **{**limits, **more})
