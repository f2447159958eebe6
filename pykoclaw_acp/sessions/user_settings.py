"""What the user's own Claude settings say of new sessions, and that Claude does without them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import uuid4

import structlog

from pykoclaw_acp.model.events import Event, Text
from pykoclaw_acp.model.surroundings import House
from pykoclaw_acp.neutral import neutral
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.system import disks
from pykoclaw_acp.trust import settings
from pykoclaw_acp.trust.looking import Looking

log: Final = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class UserSettings:
    """The model and the permission mode; None: not said."""

    model: str | None = None
    mode: str | None = None


class BrokenSettings:
    """Tells the user of a session, once as long as it lasts, that Claude does without the user's own
    settings: the CLI says nothing of it (measured with CLI 2.1.327).
    """

    def __init__(self, state: SessionState, house: House) -> None:
        self._state = state
        self._house = house
        self._told = False

    async def look(self) -> list[Event]:
        """What the log says, before a prompt."""
        path = self._path()
        if not path or self._state.record.auxiliary:  # a helper session: nobody reads its answer
            return []
        try:
            wrong = await disks.call(path, partial(trouble, path))
        except OSError:  # also if the disk does not answer
            return []
        told, self._told = self._told, bool(wrong)
        if not wrong or told:
            return []
        log.warning("The user's Claude settings are broken", action="settings_broken", path=path)
        words = (
            f"**Your Claude settings in `{neutral(path, 'command')}` cannot be understood: {wrong}.** Claude goes on"
            " without them, also without what they forbid. They count again as soon as the file is corrected."
        )
        return [Text(f"settings-{uuid4()}", f"{words}\n\n", note=True)]

    def _path(self) -> str:
        """Of the file; empty if the session's Claude does not read it."""
        account = self._state.record.surroundings.account
        directory = self._house.configuration(account) or self._house.claudes
        if not directory or "user" not in self._state.options.setting_sources:
            return ""
        return os.path.abspath(os.path.join(directory, "settings.json"))


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


def trouble(path: str) -> str:
    """Why the CLI leaves out what this settings file says; empty if it does not, or there is none."""
    found = Looking().read(path)
    text = "" if found is None else (found.data or b"").decode("utf-8-sig", "replace")
    if not text.strip():
        return ""  # it says nothing
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        return f"no JSON from line {error.lineno}, column {error.colno}"
    except (ValueError, RecursionError):
        return "no JSON"
    return "" if isinstance(value, dict) else "no JSON object"


def _text(value: Any) -> str | None:
    return value.strip() or None if isinstance(value, str) else None
