"""Input and result of a check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from pykoclaw_acp.link.places import Places
from pykoclaw_acp.model.session_environment import DaemonEnvironment

Level = Literal["ok", "warning", "problem"]

TOOL_WAIT: Final = 60.0  # s; for another program's version or state, on a busy machine
DAEMON_WAIT: Final = 60.0  # s; for the daemon's answer, when it is busy


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of a check; `advice`: what to do unless the level is ok."""

    check: str
    level: Level
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Context:
    """Input of the checks. `status`: the daemon's answer, None if none answers. Settings are those of
    the daemon, and those here if none answers.
    """

    places: Places
    environment: Mapping[str, str]
    home: Path
    status: dict[str, Any] | None = None
    unreachable: str | None = None
    """Why the daemon could not be asked, if that was for another reason than that none runs."""
    cli_path: str | None = None
    bad_settings: str | None = None
    group: int | None = None
    """Whose members may use the database, too."""
    unread_settings: Sequence[str] = ()
    """Settings of a `./.env` that is not read, as the directory is not trusted."""
    why_unread: str | None = None
    """Which `./.env` is not read, and why."""
    here_settings: Sequence[str] = ()
    """Settings that come from a `./.env`."""
    unknown_settings: Sequence[tuple[str, str | None]] = ()
    """Variables that look like settings and are none, each with the setting whose name is near."""
    profile: str = "editor"
    permission_mode: str = "default"
    setting_sources: Sequence[str] = ("user", "project", "local")
    trusted: Sequence[tuple[str, bool]] | None = None
    """Trusted directories, each with whether all below it is; None: not known, or none needs trust."""
    daemon_environment: DaemonEnvironment = field(default_factory=DaemonEnvironment)
    """Account of new sessions, and where accounts are, by the settings here."""
    notify: str | None = None
    """PYKOCLAW_NOTIFY without what may be secret, if it is valid."""
    proc: Path = field(default=Path("/proc"))

    @property
    def daemon_pid(self) -> int | None:
        """Pid of the running daemon."""
        return None if self.status is None else int(self.status["daemon"]["pid"])
