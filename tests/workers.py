"""What tests launch workers with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.channel.spec import LaunchSpec

OPTIONS = WorkerOptions(
    model=None, permission_mode="default", setting_sources=("user",), cli_path=None, log_level="info", bypass=False,
    cwd="/",
)  # fmt: skip


def spec(directory: Path, *, session: str = "session", epoch: int = 1, **more: Any) -> LaunchSpec:
    """A worker of the instance that has this directory."""
    limits = {"orphan_grace": 0, "spool_limit": 10_000}
    return LaunchSpec(
        instance=directory.name,
        session_id=session,
        epoch=epoch,
        options=OPTIONS,
        **{**limits, **more},
    )
