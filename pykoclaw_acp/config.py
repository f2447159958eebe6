"""Settings: `PYKOCLAW_*` from the environment, then `./.env`, then `~/.local/share/pykoclaw/.env`, then defaults.

`./.env` is read only in a trusted directory. An empty value is the same as none. Other programs' settings in the files
are ignored.
"""

from __future__ import annotations

import inspect
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import BeforeValidator, Field, PrivateAttr, ValidationError
from pydantic_settings import (
    BaseSettings,
    DotEnvSettingsSource,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from pykoclaw_acp.errors import ConfigurationError, DirectoryUnusable
from pykoclaw_acp.model.away import AwayPolicy
from pykoclaw_acp.system.secrets import MASK, looks_secret

T = TypeVar("T")
PermissionMode = Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"]
SettingSource = Literal["user", "project", "local"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "console"]
NestedAccess = Literal["none", "clients", "all"]

_PREFIX = "PYKOCLAW_"
_LONGEST_ECHO = 80  # characters of a bad value shown in an error
_HIDDEN = frozenset({"crash_points"})


def _absolute(value: Any) -> Any:
    if not isinstance(value, str | Path):
        return value
    try:
        return Path(os.path.abspath(Path(value).expanduser()))
    except (OSError, RuntimeError) as error:
        raise ValueError(f"the path cannot be made absolute ({error})") from error


def _program(value: Any) -> Any:
    if not isinstance(value, str) or "/" in value:
        return _absolute(value)
    found = shutil.which(value)
    if found is None:
        raise ValueError("no program of this name is on PATH")
    return _absolute(found)


def _or_none(value: Any) -> Any:
    return None if isinstance(value, str) and value.strip().lower() == "none" else value


def _lowered(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


def _sources_list(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if _or_none(value) is None:
        return ()
    wanted = {word.strip() for word in value.split(",") if word.strip()}
    known = get_args(SettingSource)
    return (*(word for word in known if word in wanted), *sorted(wanted.difference(known)))


def _default_data() -> Path:
    return Path("~/.local/share/pykoclaw").expanduser()


def _default_state() -> Path:
    """XDG Base Directory Specification: a relative `XDG_STATE_HOME` is invalid and ignored."""
    home = os.environ.get("XDG_STATE_HOME", "")
    return Path(home if os.path.isabs(home) else os.path.expanduser("~/.local/state")) / "pykoclaw"


AbsolutePath = Annotated[Path, BeforeValidator(_absolute)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class Settings(BaseSettings):
    """Every setting. Times are in seconds, paths are absolute."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX, env_ignore_empty=True, extra="ignore", frozen=True, populate_by_name=True
    )

    data: AbsolutePath = Field(
        default_factory=_default_data, description="Directory of the database, shared with pykoclaw."
    )
    model: str | None = Field(
        default=None, description="Claude model for new sessions; Claude's own default when unset."
    )
    cli_path: Annotated[Path, BeforeValidator(_program)] | None = Field(
        default=None, description="Claude CLI: a path, or a name on PATH; the one bundled with the SDK when unset."
    )
    idle_timeout: Seconds = Field(
        default=1800.0, description="Seconds without a prompt after which a session's worker is ended; above 0."
    )
    permission_mode: PermissionMode = Field(
        default="default", description=f"Permission mode of new sessions: {', '.join(get_args(PermissionMode))}."
    )
    setting_sources: Annotated[tuple[SettingSource, ...], NoDecode, BeforeValidator(_sources_list)] = Field(
        default=("user", "project", "local"),
        description="Claude settings files that count: user, project, local, separated by commas, or none.",
    )
    max_workers: int = Field(
        default=16, ge=1, description="Sessions that may have a live worker at a time; at least 1."
    )
    state: AbsolutePath = Field(
        default_factory=_default_state,
        description="Directory of logs, and of workers' sockets, spools and temporary files.",
    )
    log_level: Annotated[LogLevel, BeforeValidator(_lowered)] = Field(
        default="info", description="Least severe log lines to write: debug (shows prompts), info, warning, error."
    )
    log_format: Annotated[LogFormat, BeforeValidator(_lowered)] = Field(
        default="auto", description="Form of log lines: json, console, or auto (json unless stderr is a terminal)."
    )
    worker_start_timeout: Seconds = Field(
        default=60.0, description="Seconds that a worker may take until it is ready; above 0."
    )
    cancel_grace: Seconds = Field(
        default=10.0, description="Seconds that an interrupted turn may take before its worker is killed; above 0."
    )
    shutdown_grace: Seconds = Field(
        default=2.5, description="Seconds that running turns get to end when `serve --stdio` stops; above 0."
    )
    permission_timeout: Annotated[Seconds | None, BeforeValidator(_or_none)] = Field(
        default=None,
        description="Seconds that a permission question waits for its answer; above 0, or none for no limit.",
    )
    stall_timeout: Seconds = Field(
        default=30.0,
        ge=12,
        description="Seconds without a sign of life (there is one every 10) after which a worker is killed; from 12.",
    )
    socket: AbsolutePath | None = Field(
        default=None, description="Socket of the daemon; below XDG_RUNTIME_DIR, or PYKOCLAW_STATE, when unset."
    )
    orphan_grace: Seconds = Field(
        default=7200.0, description="Seconds that a running turn may go on without a daemon; above 0."
    )
    spool_limit: int = Field(
        default=1024 * 1024 * 1024, ge=1, description="Bytes that a worker may keep on disk while no daemon takes them."
    )
    away_policy: Annotated[AwayPolicy, BeforeValidator(_lowered)] = Field(
        default=AwayPolicy.WAIT, description="Permission questions while no client is there: wait, deny, allow, park."
    )
    away_timeout: Seconds = Field(
        default=86400.0, description="Seconds that a question waits while no client is there; then it is denied."
    )
    rejoin_window: Seconds = Field(
        default=120.0, description="Seconds in which a prompt that a lost client sends again joins its turn; above 0."
    )
    client_stall: Seconds = Field(
        default=60.0, description="Seconds that a client may not read before it is cut off; above 0."
    )
    prune_after: Seconds = Field(
        default=3600.0, description="Seconds after which a session that nobody used is emptied and hidden; above 0."
    )
    max_clients: int = Field(
        default=512, ge=4, description="Clients that may be connected at a time; fewer if there are too few open files."
    )
    workspace_trust: Annotated[Literal["ask", "off"], BeforeValidator(_lowered)] = Field(
        default="ask",
        description="Directories with hooks, MCP servers and the like: ask before those count, or off: they count.",
    )
    nested_access: Annotated[NestedAccess, BeforeValidator(_lowered)] = Field(
        default="none",
        description="What programs inside of a session may use of the daemon: none, clients (ACP), all (commands too).",
    )
    group: str | None = Field(
        default=None, description="Group whose members may use the database, too; only its user when unset."
    )
    crash_points: str | None = Field(
        default=None,
        validation_alias="PYKOCLAW_CRASH_AT",
        description="Where the server kills itself; for crash tests only.",
    )

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003  ours are made by _layers()
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings, *(source for _, source in _layers(settings_cls)))

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        layers = list(_layers(Settings))
        self._origins = {name: _origin(name, layers) for name in self.model_fields_set}

    def fill(self, kind: Callable[..., T], **more: Any) -> T:
        """A `kind` whose parameters that have a setting's name are that setting; `more` are its other ones."""
        wanted = inspect.signature(kind).parameters.keys() & type(self).model_fields.keys() - more.keys()
        values = {name: getattr(self, name) for name in wanted}
        return kind(**{name: str(one) if isinstance(one, Path) else one for name, one in values.items()}, **more)

    def origin(self, name: str) -> str:
        """Source of the setting `name`: "default", "environment", or the path of a .env file."""
        return self._origins.get(name, "default")


@dataclass(frozen=True)
class SettingLine:
    """A setting as `pykoclaw-acp config` shows it; `value` is JSON-compatible."""

    name: str
    env: str
    value: str | int | float | list[str] | None
    source: str
    description: str


def load() -> Settings:
    """Read the settings.

    Raises ConfigurationError, which names each bad setting, where its value came from, and what is allowed.
    """
    try:
        return Settings()
    except ValidationError as error:
        raise ConfigurationError("\n".join(_complaints(error))) from None
    except RuntimeError as error:  # what pathlib raises for a user without a home
        raise ConfigurationError("There is no home directory. Set HOME to an existing directory.") from error


def describe(settings: Settings) -> list[SettingLine]:
    """All settings that users may change, in the order of their definition."""
    values = settings.model_dump(mode="json")
    return [
        SettingLine(
            name=name,
            env=_env(name),
            value=MASK if looks_secret(name) and values[name] is not None else values[name],
            source=settings.origin(name),
            description=field.description or "",
        )
        for name, field in Settings.model_fields.items()
        if name not in _HIDDEN
    ]


def _env(name: str) -> str:
    alias = Settings.model_fields[name].validation_alias
    return alias if isinstance(alias, str) else _PREFIX + name.upper()


def _layers(settings_cls: type[BaseSettings]) -> Iterator[tuple[str, EnvSettingsSource]]:
    """Sources of settings, highest precedence first, each with its name for users."""
    yield "environment", EnvSettingsSource(settings_cls)
    home_file = Path("~/.local/share/pykoclaw/.env").expanduser()
    for path in (Path(".env"), home_file):
        if path != home_file and not _may_be_read(path, home_file):
            continue
        try:
            if path.is_file():
                yield str(path.absolute()), DotEnvSettingsSource(settings_cls, env_file=path)
        except OSError as error:
            raise DirectoryUnusable(path, error, what="The file") from error
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"{path} cannot be read: it is not UTF-8 text.") from error


def _may_be_read(here: Path, home_file: Path) -> bool:
    """Whether the directory is trusted, so that its file may be read."""
    if not _is_of_directory(here, home_file):
        return False
    from pykoclaw_acp.trust import dotenv  # not at the top: there seldom is such a file

    return dotenv.is_trusted(".")


def _is_of_directory(here: Path, home_file: Path) -> bool:
    """Whether the file exists and is not the home directory's."""
    try:
        return here.is_file() and not (home_file.is_file() and here.samefile(home_file))
    except OSError:
        return False


def unread() -> list[str]:
    """Names of settings in a `./.env` that is not read, because the directory is not trusted."""
    here, home_file = Path(".env"), Path("~/.local/share/pykoclaw/.env").expanduser()
    if not _is_of_directory(here, home_file) or _may_be_read(here, home_file):
        return []
    from pykoclaw_acp.trust import dotenv

    return sorted(name.upper() for name in dotenv.settings("."))


def require_own_data() -> None:
    """Raises ConfigurationError if only a `./.env` that is not read names the data directory.

    Serving the default directory instead would hide the clients' conversations.
    """
    if "PYKOCLAW_DATA" not in unread():
        return
    from pykoclaw_acp.trust import dotenv

    if dotenv.names_data("."):
        raise ConfigurationError(
            f"PYKOCLAW_DATA is set in {Path('.env').absolute()} alone, which is not read, because the directory is not"
            " trusted. Set it in the environment, or trust the directory: `pykoclaw-acp trust add`."
        )


def _origin(name: str, layers: Sequence[tuple[str, EnvSettingsSource]]) -> str:
    key = _env(name).lower()
    return next((label for label, source in layers if key in source.env_vars), "argument")


def _complaints(error: ValidationError) -> Iterator[str]:
    names = {_env(name): name for name in Settings.model_fields}
    layers = list(_layers(Settings))
    for problem in error.errors(include_url=False, include_context=False):
        place = str(problem["loc"][0])
        name = names.get(place, place)
        value = MASK if looks_secret(name) else repr(problem["input"])[:_LONGEST_ECHO]
        reason = problem["msg"].removeprefix("Value error, ")
        description = Settings.model_fields[name].description
        yield f"{_env(name)} is {value} (from {_origin(name, layers)}): {reason}. {description}"
