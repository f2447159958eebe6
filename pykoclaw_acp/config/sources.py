"""Sources of settings in their order of precedence, and the name of a setting in each of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from pydantic_settings import BaseSettings, EnvSettingsSource

from pykoclaw_acp.config import dotenv
from pykoclaw_acp.errors import ConfigurationError
from pykoclaw_acp.system import trusted_path

PREFIX: Final = "PYKOCLAW_"
# Further names, without the prefix
BARE: Final = {
    "brave_api_key": "BRAVE_API_KEY",
    "model": "ANTHROPIC_MODEL",
}
_ACP_LOG_LEVEL: Final = "PYKOCLAW_ACP_LOG_LEVEL"  # the earlier plugin's; from the environment only
# What a profile sets unless the user does.
_PROFILES: Final = {
    "pykoclaw": {
        "pykoclaw_permission_mode": "bypassPermissions",
        "pykoclaw_setting_sources": "project",
    }
}


def variable(settings_cls: type[BaseSettings], name: str) -> str:
    """The environment variable of the setting `name`."""
    alias = settings_cls.model_fields[name].validation_alias
    return alias if isinstance(alias, str) else PREFIX + name.upper()


def origin(
    settings_cls: type[BaseSettings], name: str, given: Sequence[tuple[str, EnvSettingsSource]]
) -> str:
    """Which of the sources has the value of the setting `name`; "argument" if none has."""
    keys = {variable(settings_cls, name).lower(), BARE.get(name, "").lower()}
    return next((label for label, source in given if keys & source.env_vars.keys()), "argument")


def layers(settings_cls: type[BaseSettings]) -> Iterator[tuple[str, EnvSettingsSource]]:
    """Sources of settings, highest precedence first, each with its name for users."""
    profile: str | None = None
    for name, source in _given(settings_cls):
        if profile is None:
            profile = source.env_vars.get(variable(settings_cls, "profile").lower())
        yield name, source
    known = (profile or "").strip().lower()
    if known in _PROFILES:
        yield f"profile {known}", _source(settings_cls, _PROFILES[known])


def _given(settings_cls: type[BaseSettings]) -> Iterator[tuple[str, EnvSettingsSource]]:
    """Sources of what users have set."""
    environment = EnvSettingsSource(settings_cls)
    if level := environment.env_vars.get(_ACP_LOG_LEVEL.lower()):
        yield (
            f"environment, {_ACP_LOG_LEVEL}",
            _source(settings_cls, {variable(settings_cls, "log_level").lower(): level}),
        )
    yield "environment", environment
    at_home = dotenv.home_file()
    for path in (Path(".env"), at_home):
        if path != at_home and not dotenv.may_be_read(path, at_home):
            continue
        try:
            if path.is_file():
                yield str(path.absolute()), _file_source(settings_cls, path)
        except OSError as error:
            raise trusted_path.unusable(path, error, what="The file") from error
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"{path} cannot be read: it is not UTF-8 text.") from error


def _file_source(settings_cls: type[BaseSettings], path: Path) -> EnvSettingsSource:
    """The settings of a `.env` file; raises OSError, UnicodeDecodeError."""
    from pykoclaw_acp.system.dotenv import read

    values = {name.lower(): value for name, value in read(str(path)).items() if value}
    return _source(settings_cls, values)


def _source(
    settings_cls: type[BaseSettings], values: Mapping[str, str | None]
) -> EnvSettingsSource:
    source = EnvSettingsSource(settings_cls)
    source.env_vars = values
    return source
