"""What a check looks at, and what it found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from pykoclaw_acp.link.places import Places

Level = Literal["ok", "warning", "problem"]

TOOL_WAIT: Final = 60.0  # s; for a program that is asked for its version or its state, on a busy machine too
START_WAIT: Final = 15.0  # s; for a daemon that starts to have a socket
DAEMON_WAIT: Final = 60.0  # s; for the daemon: to have much to do is not to hang


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found; `advice` says what to do, unless all is well."""

    check: str
    level: Level
    found: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Context:
    """What the checks look at. `status`: the daemon's own answer, None without a daemon that answers."""

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
    proc: Path = field(default=Path("/proc"))

    @property
    def daemon_pid(self) -> int | None:
        """The running daemon's."""
        return None if self.status is None else int(self.status["daemon"]["pid"])
