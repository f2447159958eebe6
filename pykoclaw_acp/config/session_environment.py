"""What the daemon itself gives to sessions, and settings of clients that are not its own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any, Final

import structlog
from pydantic import TypeAdapter, ValidationError

from pykoclaw_acp.config import dotenv, sources
from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.errors import ConfigurationError
from pykoclaw_acp.system import environment
from pykoclaw_acp.system.dotenv import read

log: Final = structlog.get_logger()


def own_variables() -> dict[str, str]:
    """Variables of the daemon's own sessions: of its environment, then of
    `~/.local/share/pykoclaw/.env`. Raises ConfigurationError if a worker could not be given one.
    """
    try:
        at_home = read(str(dotenv.home_file()))
    except FileNotFoundError:
        at_home = {}
    except (OSError, UnicodeDecodeError) as error:
        log.warning("The .env file cannot be read", action="dotenv_failed", error=str(error))
        at_home = {}
    inherited = environment.of_sessions(os.environ)
    added = environment.of_sessions({name: value for name, value in at_home.items() if value})
    for group in (environment.PROVIDER, environment.NETWORK):
        if group & inherited.keys():
            added = {name: value for name, value in added.items() if name not in group}
    own = added | inherited
    for name, value in own.items():
        if not environment.is_text(value):
            raise ConfigurationError(
                f"{name}, which sessions would have, is not valid UTF-8. Change it, or unset it."
            )
    return {name: value for name, value in own.items() if name not in environment.SETTINGS}


def others(settings: Settings, given: Mapping[str, str]) -> list[str]:
    """Names of the variables that set a daemon's setting to another value than it has."""
    fields = {
        sources.variable(Settings, name): name
        for name in Settings.model_fields
        if name not in ("data", "state", "socket")
    }
    own = os.environ.get(environment.CONFIGURATION)
    configuration = given.get(environment.CONFIGURATION, own) != own
    return [environment.CONFIGURATION] * configuration + sorted(
        variable
        for variable, value in given.items()
        if variable in fields
        and value  # an empty one is unset
        and variable not in environment.SETTINGS
        and _value(fields[variable], value) != getattr(settings, fields[variable])
    )


def _value(name: str, text: str) -> Any:
    """What this text means as the setting; a text that is refused is no value of a setting."""
    field = Settings.model_fields[name]
    # With the name, since some settings have no metadata, and Annotated wants one
    kind = Annotated[field.annotation, name, *field.metadata]  # type: ignore[name-defined]
    try:
        return TypeAdapter(kind).validate_python(text)
    except (ValidationError, ValueError):
        return _Refused


class _Refused:
    """Marker for a setting whose value is not valid."""
