"""Settings: `PYKOCLAW_*` from the environment, then `./.env`, then `~/.local/share/pykoclaw/.env`,
then defaults.

`./.env` is read only in a trusted directory. An empty value is the same as none. Other programs'
settings in the files are ignored.
"""

from __future__ import annotations

import inspect
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_serializer,
)
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from pykoclaw_acp.errors import ConfigurationError, DirectoryUnusable
from pykoclaw_acp.link import places
from pykoclaw_acp.model.away import AwayPolicy
from pykoclaw_acp.system.secrets import MASK, looks_secret

T = TypeVar("T")
PermissionMode = Literal["default", "acceptEdits", "plan", "dontAsk", "bypassPermissions"]
SettingSource = Literal["user", "project", "local"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "console"]
NestedAccess = Literal["none", "clients", "all"]
Profile = Literal["editor", "pykoclaw"]

_PREFIX = "PYKOCLAW_"
_LONGEST_ECHO = 80  # characters of a bad value shown in an error
_HIDDEN = frozenset({"crash_points"})
# pykoclaw's deploy scripts name the agent in PYKOCLAW_CLI_PATH; such a program is not Claude's CLI.
AGENTS = ("pykoclaw", "pykoclaw-acp")
_ACP_LOG_LEVEL = "PYKOCLAW_ACP_LOG_LEVEL"  # the earlier plugin's; from the environment only
# Levels of Python's logging that pykoclaw's programs take, too.
_LEVELS = {"warn": "warning", "critical": "error", "fatal": "error"}
# What a profile sets unless the user does.
_PROFILES = {
    "pykoclaw": {
        "pykoclaw_permission_mode": "bypassPermissions",
        "pykoclaw_setting_sources": "project",
    }
}
_BARE = {"brave_api_key": "BRAVE_API_KEY"}  # further names, without the prefix


def _absolute(value: Any) -> Any:
    if not isinstance(value, str | Path):
        return value
    try:
        return Path(os.path.abspath(Path(value).expanduser()))
    except (OSError, RuntimeError) as error:
        raise ValueError(f"the path cannot be made absolute ({error})") from error


def _data(value: Any) -> Any:
    if isinstance(value, str):
        try:
            places.require_one_meaning(value)
        except ConfigurationError as error:
            raise ValueError(str(error)) from error
    return _absolute(value)


def _program(value: Any) -> Any:
    if isinstance(value, str) and os.path.basename(value) in AGENTS:
        return None
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


def _level(value: Any) -> Any:
    lowered = _lowered(value)
    return _LEVELS.get(lowered, lowered) if isinstance(lowered, str) else lowered


def _sources_list(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if _or_none(value) is None:
        return ()
    wanted = {word.strip() for word in value.split(",") if word.strip()}
    known = get_args(SettingSource)
    return (*(word for word in known if word in wanted), *sorted(wanted.difference(known)))


def _targets(value: str | None, info: ValidationInfo) -> str | None:
    if value is not None:
        from pykoclaw_acp.notify import targets

        found = targets.parse(value)
        signed = any(isinstance(one, targets.Webhook) for one in found)
        if signed and info.data.get("notify_secret") is None:
            raise ValueError("webhooks are signed; set PYKOCLAW_NOTIFY_SECRET too")
    return value


def _hours(value: str | None) -> str | None:
    if value is not None:
        from pykoclaw_acp.notify.quiet import QuietHours

        QuietHours.parse(value)
    return value


def _words(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if _or_none(value) is None:
        return ()
    return tuple(dict.fromkeys(word for one in value.split(",") if (word := one.strip(" -"))))


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
        env_prefix=_PREFIX,
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        populate_by_name=True,
    )

    data: Annotated[Path, BeforeValidator(_data)] = Field(
        default_factory=_default_data,
        description="Directory of the database, shared with pykoclaw.",
    )
    model: str | None = Field(
        default=None, description="Claude model of new sessions; Claude's own default if unset."
    )
    cli_path: Annotated[Path | None, BeforeValidator(_program)] = Field(
        default=None,
        description="Claude CLI: a path, or a name on PATH; the CLI bundled with the SDK if unset.",
    )
    idle_timeout: Seconds = Field(
        default=1800.0,
        description="Seconds without a prompt after which a session's worker is stopped; above 0.",
    )
    profile: Annotated[Profile, BeforeValidator(_lowered)] = Field(
        default="editor",
        description="Defaults of sessions: editor (Claude asks), or pykoclaw (as the earlier plugin of pykoclaw).",
    )
    permission_mode: PermissionMode = Field(
        default="default",
        description=f"Permission mode of new sessions: {', '.join(get_args(PermissionMode))}.",
    )
    setting_sources: Annotated[
        tuple[SettingSource, ...], NoDecode, BeforeValidator(_sources_list)
    ] = Field(
        default=("user", "project", "local"),
        description="Claude settings files in effect: user, project, local, separated by commas, or none.",
    )
    max_workers: int = Field(
        default=16,
        ge=1,
        description="Maximum number of workers, one for each session in use; at least 1.",
    )
    state: AbsolutePath = Field(
        default_factory=_default_state,
        description="Directory of logs and of the workers' sockets, spools and temporary files.",
    )
    log_level: Annotated[LogLevel, BeforeValidator(_level)] = Field(
        default="info",
        description="Minimum level of log lines: debug (includes prompts), info, warning, error.",
    )
    log_format: Annotated[LogFormat, BeforeValidator(_lowered)] = Field(
        default="auto",
        description="Format of log lines: json, console, or auto (console on a terminal, else json).",
    )
    worker_start_timeout: Seconds = Field(
        default=60.0, description="Seconds a worker may take to start; above 0."
    )
    cancel_grace: Seconds = Field(
        default=10.0,
        description="Seconds a cancelled turn may take to end before its worker is killed; above 0.",
    )
    shutdown_grace: Seconds = Field(
        default=2.5,
        description="Seconds running turns may take to end when `serve --stdio` stops; above 0.",
    )
    permission_timeout: Annotated[Seconds | None, BeforeValidator(_or_none)] = Field(
        default=None,
        description="Seconds after which a pending permission request is denied; above 0, or none for no limit.",
    )
    stall_timeout: Seconds = Field(
        default=30.0,
        ge=12,
        description="Seconds without a heartbeat (sent every 10) after which a worker is killed; at least 12.",
    )
    socket: AbsolutePath | None = Field(
        default=None,
        description="Socket of the daemon; in XDG_RUNTIME_DIR or PYKOCLAW_STATE if unset.",
    )
    orphan_grace: Seconds = Field(
        default=7200.0, description="Seconds a running turn may continue without a daemon; above 0."
    )
    spool_limit: int = Field(
        default=1024 * 1024 * 1024,
        ge=1,
        description="Bytes a worker may keep on disk while no daemon reads them.",
    )
    away_policy: Annotated[AwayPolicy, BeforeValidator(_lowered)] = Field(
        default=AwayPolicy.WAIT,
        description="Permission requests while no client has the session open: wait, deny, allow, park.",
    )
    away_timeout: Seconds = Field(
        default=86400.0,
        description="Seconds a permission request waits while no client has the session open, until it is denied.",
    )
    rejoin_window: Seconds = Field(
        default=120.0,
        description="Seconds in which a prompt re-sent after a lost connection joins its turn; above 0.",
    )
    turn_lock_timeout: Seconds = Field(
        default=120.0,
        description="Seconds a prompt waits while another program runs a turn of its conversation; above 0.",
    )
    client_stall: Seconds = Field(
        default=60.0,
        description="Seconds a client may stop reading before it is disconnected; above 0.",
    )
    prune_after: Seconds = Field(
        default=3600.0,
        description="Seconds after which an unused session is emptied and hidden; above 0.",
    )
    max_clients: int = Field(
        default=512,
        ge=4,
        description="Maximum number of connected clients; lower if the limit of open files requires it.",
    )
    workspace_trust: Annotated[Literal["ask", "off"], BeforeValidator(_lowered)] = Field(
        default="ask",
        description="Hooks, MCP servers and other active content of directories: ask first, or off to always allow it.",
    )
    hide_channels: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)] = Field(
        default=(),
        description="Channels whose conversations no list shows, separated by commas, such as wa,tg; or none.",
    )
    nested_access: Annotated[NestedAccess, BeforeValidator(_lowered)] = Field(
        default="none",
        description="What programs inside a session may use: none, clients (ACP) or all (ACP and commands).",
    )
    group: str | None = Field(
        default=None,
        description="Group whose members may access the database; only its owner if unset.",
    )
    brave_api_key: str | None = Field(
        default=None,
        validation_alias=AliasChoices("PYKOCLAW_BRAVE_API_KEY", _BARE["brave_api_key"]),
        description="Key of the Brave Search API, for the tool brave_search; BRAVE_API_KEY is also taken.",
    )
    scheduler: Annotated[Literal["on", "off"], BeforeValidator(_lowered)] = Field(
        default="off",
        description="Whether the daemon runs scheduled tasks: on, or off, for instance if `pykoclaw scheduler` does.",
    )
    notify_secret: str | None = Field(
        default=None, description="Key of the signature of webhooks in PYKOCLAW_NOTIFY."
    )
    notify: Annotated[str | None, AfterValidator(_targets)] = Field(
        default=None,
        description="Who is told while nobody is there: programs, webhooks or conversations, separated by commas.",
    )
    notify_quiet: Annotated[str | None, AfterValidator(_hours)] = Field(
        default=None,
        description="Hours in which nobody is told, in local time, such as 22:00-07:00; told afterwards.",
    )
    crash_points: str | None = Field(
        default=None,
        validation_alias="PYKOCLAW_CRASH_AT",
        description="Where the server kills itself; for crash tests only.",
    )

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    @field_serializer("notify")
    def _without_secrets(self, value: str | None) -> str | None:
        """Paths of webhooks and arguments of programs may be secrets."""
        from pykoclaw_acp.notify import targets

        return None if value is None else targets.shown(value)

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
        """A `kind` whose parameters that have a setting's name are that setting; `more` are its
        other ones.
        """
        wanted = (
            inspect.signature(kind).parameters.keys() & type(self).model_fields.keys() - more.keys()
        )
        values = {name: getattr(self, name) for name in wanted}
        return kind(
            **{name: str(one) if isinstance(one, Path) else one for name, one in values.items()},
            **more,
        )

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

    Raises ConfigurationError, which names each bad setting, where its value came from, and what is
    allowed.
    """
    try:
        return Settings()
    except ValidationError as error:
        raise ConfigurationError("\n".join(_complaints(error))) from None
    except RuntimeError as error:  # what pathlib raises for a user without a home
        raise ConfigurationError(
            "There is no home directory. Set HOME to an existing directory."
        ) from error


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
    profile: str | None = None
    for name, source in _given(settings_cls):
        if profile is None:
            profile = source.env_vars.get(_env("profile").lower())
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
            _source(settings_cls, {_env("log_level").lower(): level}),
        )
    yield "environment", environment
    home_file = Path("~/.local/share/pykoclaw/.env").expanduser()
    for path in (Path(".env"), home_file):
        if path != home_file and not _may_be_read(path, home_file):
            continue
        try:
            if path.is_file():
                yield str(path.absolute()), _file_source(settings_cls, path)
        except OSError as error:
            raise DirectoryUnusable(path, error, what="The file") from error
        except UnicodeDecodeError as error:
            raise ConfigurationError(f"{path} cannot be read: it is not UTF-8 text.") from error


def _file_source(settings_cls: type[BaseSettings], path: Path) -> EnvSettingsSource:
    """The settings of a `.env` file; raises OSError, UnicodeDecodeError."""
    from pykoclaw_acp.system import dotenv

    values = {name.lower(): value for name, value in dotenv.read(str(path)).items() if value}
    return _source(settings_cls, values)


def _source(
    settings_cls: type[BaseSettings], values: Mapping[str, str | None]
) -> EnvSettingsSource:
    source = EnvSettingsSource(settings_cls)
    source.env_vars = values
    return source


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


def why_unread() -> str | None:
    """Which `./.env` is not read, and why; None if it is read, or has no settings of ours."""
    here, home_file = Path(".env"), Path("~/.local/share/pykoclaw/.env").expanduser()
    from pykoclaw_acp.trust import dotenv

    if names := unread():
        said = f"./.env is not read, as this directory is not trusted: {', '.join(names)}"
        return f"{said} ({here.absolute()})"
    reason = dotenv.trouble(".")
    if reason is None or (home_file.exists() and here.exists() and here.samefile(home_file)):
        return None
    return f"./.env is not read: {reason} ({here.absolute()})"


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
    keys = {_env(name).lower(), _BARE.get(name, "").lower()}
    return next((label for label, source in layers if keys & source.env_vars.keys()), "argument")


def _complaints(error: ValidationError) -> Iterator[str]:
    names = {_env(name): name for name in Settings.model_fields}
    layers = list(_layers(Settings))
    for problem in error.errors(include_url=False, include_context=False):
        place = str(problem["loc"][0])
        name = names.get(place, place)
        hidden = looks_secret(name) or name == "notify"  # which may contain secrets
        value = MASK if hidden else repr(problem["input"])[:_LONGEST_ECHO]
        reason = problem["msg"].removeprefix("Value error, ")
        description = Settings.model_fields[name].description
        yield f"{_env(name)} is {value} (from {_origin(name, layers)}): {reason}. {description}"
