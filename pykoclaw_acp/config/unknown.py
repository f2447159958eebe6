"""Variables that look like settings and are none, as a mistyped name makes them."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Final

from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.config.sources import PREFIX, layers, variable

# Of processes that read the environment themselves; the second one is the earlier plugin's.
_ELSEWHERE: Final = frozenset({"PYKOCLAW_DAEMON_TIMEOUT", "PYKOCLAW_ACP_LOG_LEVEL"})
# What the daemon and its workers give to the processes that they start.
_INTERNAL: Final = frozenset(
    {
        "PYKOCLAW_CLAUDE",
        "PYKOCLAW_CLAUDE_UMASK",
        "PYKOCLAW_PYTHON",
        "PYKOCLAW_READY_FD",
        "PYKOCLAW_START_LOCK_FD",
        "PYKOCLAW_WORKER",
    }
)
_WHATSAPP: Final = "PYKOCLAW_WA_"  # the beginning of settings of pykoclaw's WhatsApp bot
_NEAR: Final = 0.7  # of difflib's ratio, from 0 to 1


def unknown() -> list[tuple[str, str | None]]:
    """Names of variables that begin as settings do, each with the setting whose name is near.

    Raises as `layers`, if a file of settings cannot be read.
    """
    known = {variable(Settings, name) for name in Settings.model_fields} | _ELSEWHERE
    given = {
        name.upper()
        for _, source in layers(Settings)
        for name, value in source.env_vars.items()
        if value and name.upper().startswith(PREFIX)
    }
    others = {name for name in given - known - _INTERNAL if not name.startswith(_WHATSAPP)}
    return [(name, _near(name, known)) for name in sorted(others)]


def _near(name: str, known: set[str]) -> str | None:
    endings = {one.removeprefix(PREFIX): one for one in sorted(known)}
    found = get_close_matches(name.removeprefix(PREFIX), endings, 1, _NEAR)
    return endings[found[0]] if found else None
