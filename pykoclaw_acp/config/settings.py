"""Every setting of the program: its type, its default and what it means."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    Field,
    PrivateAttr,
    ValidationInfo,
    field_serializer,
    field_validator,
)
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from pykoclaw_acp.config import sources, values
from pykoclaw_acp.config.values import (
    AbsolutePath,
    LogFormat,
    LogLevel,
    NestedAccess,
    PermissionMode,
    Profile,
    Seconds,
    SettingSource,
)
from pykoclaw_acp.model.away import AwayPolicy
from pykoclaw_acp.model.lost_context import LostContext
from pykoclaw_acp.model.session_environment import OWN, DaemonEnvironment, stored
from pykoclaw_acp.system import credentials, environment

T = TypeVar("T")


class Settings(BaseSettings):
    """Every setting. Times are in seconds, paths are absolute."""

    model_config = SettingsConfigDict(
        env_prefix=sources.PREFIX,
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
        populate_by_name=True,
    )

    data: Annotated[Path, BeforeValidator(values.data_directory)] = Field(
        default_factory=values.default_data,
        description="Directory of the database, shared with pykoclaw.",
    )
    model: str | None = Field(
        default=None,
        validation_alias=AliasChoices("PYKOCLAW_MODEL", sources.BARE["model"]),
        description="Claude model of new sessions; if unset, that of the user's Claude settings, or Claude's default.",
    )
    cli_path: Annotated[Path | None, BeforeValidator(values.program)] = Field(
        default=None,
        description="Claude CLI: a path, or a name on PATH; the CLI bundled with the SDK if unset.",
    )
    idle_timeout: Seconds = Field(
        default=1800.0,
        description="Seconds without a prompt after which a worker is stopped, 120 at most without a client; above 0.",
    )
    umask: Annotated[str | None, AfterValidator(values.umask)] = Field(
        default=None,
        description="Umask of Claude and its tools, such as 022; if unset, the one that the daemon was started with.",
    )
    early_start: Annotated[Literal["on", "off"], BeforeValidator(values.lowered)] = Field(
        default="on",
        description="Start Claude for an opened session before its first prompt (two at most, for 5 min): on or off.",
    )
    profile: Annotated[Profile, BeforeValidator(values.lowered)] = Field(
        default="editor",
        description="Defaults of sessions: editor (Claude asks), or pykoclaw (as the earlier plugin of pykoclaw).",
    )
    account: Annotated[str, AfterValidator(values.account)] = Field(
        default=OWN,
        description="Account of new sessions: a name from `pykoclaw-acp login --account`, or default (Claude's own).",
    )
    accounts: AbsolutePath | None = Field(
        default=None,
        description="Directory of the accounts; `accounts` in PYKOCLAW_DATA if unset.",
    )
    permission_mode: PermissionMode = Field(
        default="default",
        description=f"Permission mode of new sessions: {', '.join(get_args(PermissionMode))}.",
    )
    setting_sources: Annotated[
        tuple[SettingSource, ...], NoDecode, BeforeValidator(values.sources_list)
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
        default_factory=values.default_state,
        description="Directory of logs and of the workers' sockets, spools and temporary files.",
    )
    log_level: Annotated[LogLevel, BeforeValidator(values.level)] = Field(
        default="info",
        description="Minimum level of log lines: debug (includes prompts), info, warning, error.",
    )
    log_format: Annotated[LogFormat, BeforeValidator(values.lowered)] = Field(
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
    permission_timeout: Annotated[Seconds | None, BeforeValidator(values.or_none)] = Field(
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
        description="Socket of the daemon, in a directory only you use; in XDG_RUNTIME_DIR or PYKOCLAW_STATE if unset.",
    )
    orphan_grace: Seconds = Field(
        default=7200.0, description="Seconds a running turn may continue without a daemon; above 0."
    )
    spool_limit: int = Field(
        default=1024 * 1024 * 1024,
        ge=1,
        description="Bytes a worker may keep on disk while no daemon reads them.",
    )
    away_policy: Annotated[AwayPolicy, BeforeValidator(values.lowered)] = Field(
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
        description="Maximum number of connected clients, at least 4; lower if the limit of open files requires it.",
    )
    workspace_trust: Annotated[Literal["ask", "off"], BeforeValidator(values.lowered)] = Field(
        default="ask",
        description="Hooks, MCP servers and other active content of directories: ask first, or off to always allow it.",
    )
    hide_channels: Annotated[tuple[str, ...], NoDecode, BeforeValidator(values.words)] = Field(
        default=(),
        description="Channels whose conversations no list shows, separated by commas, such as wa,tg; or none.",
    )
    helper_prompts: Annotated[
        tuple[str, ...], NoDecode, BeforeValidator(values.beginnings), AfterValidator(values.long)
    ] = Field(
        default=(),
        description="Prefixes of prompts of clients for their own use, as for titles; separated by vertical bars.",
    )
    list_transcripts: Annotated[Literal["on", "off"], BeforeValidator(values.lowered)] = Field(
        default="on",
        description="List and load sessions known only to Claude, such as those of a terminal: on, off.",
    )
    delete_transcripts: Annotated[Literal["on", "off"], BeforeValidator(values.lowered)] = Field(
        default="off",
        description="Whether deleting a session also deletes Claude's transcript of it: on, off.",
    )
    lost_context: Annotated[LostContext, BeforeValidator(values.lowered)] = Field(
        default=LostContext.AUTO,
        description="If Claude has lost a conversation: auto (give a summary), required (refuse), off (begin empty).",
    )
    legacy_models: Annotated[Literal["auto", "on", "off"], BeforeValidator(values.lowered)] = Field(
        default="auto",
        description="Offer ACP's former model API as well: on, off, or auto (for Mitto, acpx and unnamed clients).",
    )
    titles: Annotated[Literal["words", "claude"], BeforeValidator(values.lowered)] = Field(
        default="words",
        description="Titles of sessions: words (of the first prompt), or claude (asks the session's model for one).",
    )
    thinking: Annotated[Literal["show", "hide"], BeforeValidator(values.lowered)] = Field(
        default="show",
        description="Claude's and its subagents' thinking, live and in replays: show, hide (it stays in the log).",
    )
    usage_limit: Annotated[Literal["stop", "wait"], BeforeValidator(values.lowered)] = Field(
        default="stop",
        description="A session that hits a usage limit: stop, or wait (it resumes by itself when the limit ends).",
    )
    nested_access: Annotated[NestedAccess, BeforeValidator(values.lowered)] = Field(
        default="none",
        description="What programs inside a session may use: none, clients (ACP) or all (ACP and commands).",
    )
    group: str | None = Field(
        default=None,
        description="Group whose members may access the database; only its owner if unset.",
    )
    brave_api_key: str | None = Field(
        default=None,
        validation_alias=AliasChoices("PYKOCLAW_BRAVE_API_KEY", sources.BARE["brave_api_key"]),
        description="Key of the Brave Search API, for the tool brave_search; BRAVE_API_KEY is accepted as well.",
    )
    scheduler: Annotated[Literal["on", "off"], BeforeValidator(values.lowered)] = Field(
        default="off",
        description="Whether the daemon runs scheduled tasks: on, or off, for instance if `pykoclaw scheduler` does.",
    )
    notify_secret: str | None = Field(
        default=None, description="Key with which webhooks in PYKOCLAW_NOTIFY are signed."
    )
    notify: Annotated[str | None, AfterValidator(values.targets)] = Field(
        default=None,
        description="Who is notified while nobody is there: programs, webhooks or conversations, separated by commas.",
    )
    notify_quiet: Annotated[str | None, AfterValidator(values.hours)] = Field(
        default=None,
        description="Quiet hours in local time, such as 22:00-07:00; what still matters is sent when they end.",
    )
    crash_points: str | None = Field(
        default=None,
        validation_alias="PYKOCLAW_CRASH_AT",
        description="Where the server kills itself; for crash tests only.",
    )

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    @field_validator("*", mode="before")
    @classmethod
    def _is_text(cls, value: Any) -> Any:
        if isinstance(value, str) and not environment.is_text(value):
            raise ValueError("it is not valid UTF-8")
        return value

    @field_validator("notify")
    @classmethod
    def _signed(cls, value: str | None, info: ValidationInfo) -> str | None:
        """A webhook must be signed."""
        if value is not None and info.data.get("notify_secret") is None:
            from pykoclaw_acp.notify import targets

            if any(isinstance(one, targets.Webhook) for one in targets.parse(value)):
                raise ValueError("webhooks are signed; set PYKOCLAW_NOTIFY_SECRET too")
        return value

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
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003  ours are made by sources.layers()
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings, *(source for _, source in sources.layers(settings_cls)))

    def model_post_init(self, context: Any, /) -> None:
        super().model_post_init(context)
        layers = list(sources.layers(Settings))
        self._origins = {
            name: sources.origin(Settings, name, layers) for name in self.model_fields_set
        }

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

    def daemon_environment(self, variables: Mapping[str, str]) -> DaemonEnvironment:
        """The daemon's own account and variables, and where accounts are."""
        directory = self.accounts or self.data / "accounts"
        cli = None if self.cli_path is None else str(self.cli_path)
        return DaemonEnvironment(
            stored(self.account), str(directory), variables, cli,
            claudes=credentials.configuration(os.environ, Path.home()),
            mode_is_set=self.origin("permission_mode") != "default",
        )  # fmt: skip

    def origin(self, name: str) -> str:
        """Source of the setting `name`: "default", "environment", or the path of a .env file."""
        return self._origins.get(name, "default")
