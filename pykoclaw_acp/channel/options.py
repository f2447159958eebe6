"""What a session wants of its worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pykoclaw_acp.channel.spec import McpStdio


@dataclass(frozen=True, slots=True)
class WorkerWish:
    """What a session wants of its worker; which Claude session it resumes is `set_resume`'s business."""

    session_id: str
    cwd: str
    additional_directories: tuple[str, ...]
    mcp_servers: tuple[McpStdio, ...]
    model: str | None
    permission_mode: str
    setting_sources: tuple[str, ...]
    cli_path: str | None
    log_level: Literal["debug", "info", "warning", "error"]
    bypass: bool = False  # the mode bypassPermissions may be chosen
    workspace: str = ""  # what counts of what acts in its directories: `trusted:` or `without:` and which content
