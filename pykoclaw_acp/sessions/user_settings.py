"""What the user's own Claude settings say of new sessions."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from pykoclaw_acp.trust import settings
from pykoclaw_acp.trust.looking import Looking


@dataclass(frozen=True, slots=True)
class UserSettings:
    """The model and the permission mode; None: not said."""

    model: str | None = None
    mode: str | None = None


def read(directory: str) -> UserSettings:
    """Those of `settings.json` in Claude's configuration directory, as far as it can be read."""
    found = Looking().read(os.path.join(directory, "settings.json"))
    if found is None or found.data is None:
        return UserSettings()
    try:
        value = settings.parse(found.data)
    except settings.Unreadable:
        return UserSettings()
    permissions = value.get("permissions")
    mode = permissions.get("defaultMode") if isinstance(permissions, dict) else None
    return UserSettings(_text(value.get("model")), _text(mode))


def _text(value: Any) -> str | None:
    return value.strip() or None if isinstance(value, str) else None
