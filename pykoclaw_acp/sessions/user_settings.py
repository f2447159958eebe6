"""What the user's own Claude settings say of new sessions, and that Claude does without them."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Never
from uuid import uuid4

import structlog

from pykoclaw_acp.model import choices
from pykoclaw_acp.model.events import Event, note_event
from pykoclaw_acp.model.session_environment import DaemonEnvironment
from pykoclaw_acp.neutral import neutral
from pykoclaw_acp.sessions.state import SessionState
from pykoclaw_acp.system import disks
from pykoclaw_acp.trust import settings
from pykoclaw_acp.trust.looking import Looking

log: Final = structlog.get_logger()

LARGEST: Final = 2 * 1024 * 1024  # bytes of a file that the CLI reads (measured with CLI 2.1.327)
_KINDS: Final = (
    ("permissions", dict, "no object"),
    ("model", str, "no text"),
    ("env", dict, "no object"),
)
_LISTS: Final = ("allow", "deny", "ask", "additionalDirectories")
_MODES: Final = frozenset({*(one.id for one in choices.MODES), choices.BYPASS.id, "manual"})
_GATES: Final = ("PreToolUse", "PermissionRequest")  # hooks of others are left out one by one


@dataclass(frozen=True, slots=True)
class UserSettings:
    """The model and the permission mode; None: not said."""

    model: str | None = None
    mode: str | None = None


class BrokenSettings:
    """Tells the user of a session, once as long as it lasts, that Claude does without the user's own
    settings: the CLI says nothing of it (measured with CLI 2.1.327), or asks for a new start, which is
    not shown (`worker/status_lines.py`).
    """

    def __init__(self, state: SessionState, daemon_environment: DaemonEnvironment) -> None:
        self._state = state
        self._daemon_environment = daemon_environment
        self._told = False

    async def check(self) -> list[Event]:
        """Check the settings before a prompt; returns what the log is to say."""
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
            f"**Your Claude settings are ignored: `{neutral(path, 'command')}` {wrong}.** From its next start at the"
            " latest, Claude runs without them, and what they forbid is no longer forbidden. They take effect again as"
            " soon as the file is corrected."
        )
        return [note_event(f"settings-{uuid4()}", words)]

    def _path(self) -> str:
        """Return the path of the user's settings; empty if the session's Claude does not read
        them.
        """
        account = self._state.record.environment.account
        directory = (
            self._daemon_environment.configuration(account) or self._daemon_environment.claudes
        )
        if not directory or "user" not in self._state.options.setting_sources:
            return ""
        return os.path.abspath(os.path.join(directory, "settings.json"))


def read(directory: str) -> UserSettings:
    """Read `settings.json` in Claude's configuration directory, as far as that can be read."""
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
    """What is wrong with this settings file, so that the CLI leaves out all that it says; empty if it
    does not, if that cannot be told, or if there is none.
    """
    found = Looking().read(path, LARGEST)
    if found is None:
        return ""
    if found.data is None:
        return found.trouble
    text = found.data.decode("utf-8-sig", "replace")
    if not text.strip():
        return ""  # it says nothing
    try:
        value = json.loads(text, parse_int=float, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        return f"is not valid JSON (line {error.lineno}, column {error.colno})"
    except ValueError as error:
        return f"is not valid JSON: {error}"
    except RecursionError:
        return ""  # the CLI reads deeper than Python
    return _misshapen(value) if isinstance(value, dict) else "is not a JSON object"


def _no_number(word: str) -> Never:
    raise ValueError(f"it has {word}")  # which Python takes, and JavaScript does not


def _misshapen(value: dict[str, Any]) -> str:
    """The first value for which the CLI leaves out the whole file (measured with CLI 2.1.327), of those
    that can be told without its schema.
    """
    for key, kind, words in _KINDS:
        if key in value and not isinstance(value[key], kind):
            return f"has {words} in `{key}`"
    permissions = value.get("permissions", {})
    for key in _LISTS:
        if key in permissions and not isinstance(permissions[key], list):
            return f"has no list in `permissions.{key}`"
    mode = permissions.get("defaultMode", "default")
    if not isinstance(mode, str) or mode not in _MODES:
        return "has no permission mode of Claude in `permissions.defaultMode`"
    hooks = value.get("hooks")
    for event, matchers in hooks.items() if isinstance(hooks, dict) else ():
        if event in _GATES and not _is_matchers(matchers):
            return f"has no list of matchers with hooks in `hooks.{event}`"
    return ""


def _is_matchers(value: Any) -> bool:
    if value is None:
        return True
    return isinstance(value, list) and all(
        isinstance(one, dict) and isinstance(one.get("hooks"), list) for one in value
    )


def _text(value: Any) -> str | None:
    return value.strip() or None if isinstance(value, str) else None
