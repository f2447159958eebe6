"""Reading of all settings, and what is said of those that are wrong."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from pydantic import ValidationError

from pykoclaw_acp.config.dotenv import NO_HOME
from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.config.sources import layers, origin, variable
from pykoclaw_acp.errors import ConfigurationError
from pykoclaw_acp.system.secrets import MASK, looks_secret

_LONGEST_ECHO: Final = 80  # characters of a bad value shown in an error


def load() -> Settings:
    """Read the settings.

    Raises ConfigurationError, which names each bad setting, where its value came from, and what is
    allowed.
    """
    try:
        return Settings()
    except ValidationError as error:
        raise ConfigurationError("\n".join(_complaints(error))) from None
    except RuntimeError as error:  # what pathlib raises for a user without a home
        raise ConfigurationError(NO_HOME) from error


def _complaints(error: ValidationError) -> Iterator[str]:
    names = {variable(Settings, name): name for name in Settings.model_fields}
    sources = list(layers(Settings))
    for problem in error.errors(include_url=False, include_context=False):
        place = str(problem["loc"][0])
        name = names.get(place, place)
        hidden = looks_secret(name) or name == "notify"  # which may contain secrets
        value = MASK if hidden else repr(problem["input"])[:_LONGEST_ECHO]
        reason = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "literal_error":
            reason = "must be " + reason.removeprefix("Input should be ").replace("'", "")
        description = Settings.model_fields[name].description
        source = origin(Settings, name, sources)
        yield f"{variable(Settings, name)} is {value} (from {source}): {reason}. {description}"
