"""Types of the settings' values, and how their text is read."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BeforeValidator, Field

from pykoclaw_acp.errors import ConfigurationError
from pykoclaw_acp.link import places
from pykoclaw_acp.model import session_environment

PermissionMode = Literal["default", "acceptEdits", "plan", "auto", "dontAsk", "bypassPermissions"]
SettingSource = Literal["user", "project", "local"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "console"]
NestedAccess = Literal["none", "clients", "all"]
Profile = Literal["editor", "pykoclaw"]

SHORTEST: Final = 12  # characters of the beginning of a helper prompt
# pykoclaw's deploy scripts name the agent in PYKOCLAW_CLI_PATH; such a program is not Claude's CLI.
AGENTS: Final = ("pykoclaw", "pykoclaw-acp")
# Levels of Python's logging that pykoclaw's programs take, too.
_LEVELS: Final = {"warn": "warning", "critical": "error", "fatal": "error"}


def absolute(value: Any) -> Any:
    """A path as an absolute one; `~` is the home directory."""
    if not isinstance(value, str | Path):
        return value
    try:
        return Path(os.path.abspath(Path(value).expanduser()))
    except (OSError, RuntimeError) as error:
        raise ValueError(f"the path cannot be made absolute ({error})") from error


def data_directory(value: Any) -> Any:
    """The data directory, absolute; refused if another process could read its name differently."""
    try:
        if isinstance(value, str):
            places.require_one_meaning(value)
        return Path(places.absolute(str(value), "PYKOCLAW_DATA"))
    except ConfigurationError as error:
        raise ValueError(str(error)) from error


def program(value: Any) -> Any:
    """A program by its path or its name on PATH; None if it is the agent itself."""
    if isinstance(value, str) and os.path.basename(value) in AGENTS:
        return None
    if not isinstance(value, str) or "/" in value:
        return absolute(value)
    found = shutil.which(value)
    if found is None:
        raise ValueError("no program of this name is on PATH")
    return absolute(found)


def account(value: str) -> str:
    """The name of an account."""
    if not session_environment.is_account(value):
        raise ValueError(session_environment.ACCOUNT_RULE)
    return value


def umask(value: str | None) -> str | None:
    """A umask, in octal digits: four of them, however many were given."""
    if value is None:
        return None
    if re.fullmatch("0{0,2}[0-7]{1,3}", value) is None:
        raise ValueError("it has octal digits, as 022 or 0077")
    return f"{int(value, 8):04o}"


def or_none(value: Any) -> Any:
    """None for the word `none`."""
    return None if isinstance(value, str) and value.strip().lower() == "none" else value


def lowered(value: Any) -> Any:
    """Text in lower case, without spaces around it."""
    return value.strip().lower() if isinstance(value, str) else value


def level(value: Any) -> Any:
    """A level of log lines, also by a name that Python's logging has for it."""
    word = lowered(value)
    return _LEVELS.get(word, word) if isinstance(word, str) else word


def sources_list(value: Any) -> Any:
    """Names of Claude settings files, in their order of precedence."""
    if not isinstance(value, str):
        return value
    if or_none(value) is None:
        return ()
    wanted = {word.strip() for word in value.split(",") if word.strip()}
    known = get_args(SettingSource)
    return (*(word for word in known if word in wanted), *sorted(wanted.difference(known)))


def targets(value: str | None) -> str | None:
    """The targets of notices, if they can be read."""
    if value is not None:
        from pykoclaw_acp.notify.targets import parse

        parse(value)
    return value


def hours(value: str | None) -> str | None:
    """Quiet hours, if they can be read."""
    if value is not None:
        from pykoclaw_acp.notify.quiet import QuietHours

        QuietHours.parse(value)
    return value


def words(value: Any) -> Any:
    """Words separated by commas, without duplicates."""
    if not isinstance(value, str):
        return value
    if or_none(value) is None:
        return ()
    return tuple(dict.fromkeys(word for one in value.split(",") if (word := one.strip(" -"))))


def beginnings(value: Any) -> Any:
    """Beginnings of texts, separated by |."""
    if not isinstance(value, str):
        return value
    if or_none(value) is None:
        return ()
    return tuple(dict.fromkeys(one for part in value.split("|") if (one := part.strip())))


def long(value: tuple[str, ...]) -> tuple[str, ...]:
    """Beginnings that no user's prompt has by chance."""
    if any(len(one) < SHORTEST for one in value):
        raise ValueError(f"each has at least {SHORTEST} characters, as others hide users' sessions")
    return value


def default_data() -> Path:
    """The data directory of pykoclaw."""
    return Path("~", places.DATA_IN_HOME).expanduser()


def default_state() -> Path:
    """The state directory of pykoclaw."""
    return Path(os.path.expanduser(places.default_state()))


AbsolutePath = Annotated[Path, BeforeValidator(absolute)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
