"""All settings with their values and origins, as users see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.config.sources import variable
from pykoclaw_acp.system.secrets import MASK, looks_secret

HIDDEN: Final = frozenset({"crash_points"})  # settings for tests only


SettingValue = str | int | float | list[str] | None


@dataclass(frozen=True)
class SettingLine:
    """A setting as `pykoclaw-acp config` shows it; `value` is JSON-compatible."""

    name: str
    env: str
    value: SettingValue
    source: str
    description: str


def describe(settings: Settings) -> list[SettingLine]:
    """All settings that users may change, in the order of their definition."""
    values = settings.model_dump(mode="json")
    return [
        SettingLine(
            name=name,
            env=variable(Settings, name),
            value=MASK if looks_secret(name) and values[name] is not None else _plain(values[name]),
            source=settings.origin(name),
            description=field.description or "",
        )
        for name, field in Settings.model_fields.items()
        if name not in HIDDEN
    ]


def values(settings: Settings) -> dict[str, SettingValue]:
    """The settings that users may change, by their variables, without what is secret."""
    return {line.env: line.value for line in describe(settings)}


def _plain(value: Any) -> Any:
    """Without a fraction of zero, as documents have it."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
