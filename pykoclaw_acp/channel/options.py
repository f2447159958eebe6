"""The options of a worker: how Claude runs for a session."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from pykoclaw_acp.model.choices import Config
from pykoclaw_acp.model.events import PlanEntry
from pykoclaw_acp.model.session_options import SessionOptions
from pykoclaw_acp.neutral import neutral

TRUSTED: Final = "trusted:"  # prefix of a `workspace` whose active content takes effect
WITHOUT: Final = "without:"  # prefix of one whose active content does not
UNREAD: Final = f"{WITHOUT}rewind"  # one that nobody has looked into, for a worker that rewinds


class McpServer(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server that the client asked for: a program (`stdio`), or an address (`http`, `sse`).

    `env`, `headers` and `url` may hold secrets; they are never logged or stored.
    """

    name: str
    transport: Literal["stdio", "http", "sse"] = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    url: str = ""
    headers: dict[str, str] = {}

    def __repr__(self) -> str:
        """The name alone: this may come into a log."""
        return f"McpServer({self.name!r})"

    @property
    def config(self) -> dict[str, Any]:
        """The server in Claude's configuration of MCP servers."""
        if self.transport == "stdio":
            arguments = [_literal(one) for one in self.args]
            return {"command": _literal(self.command), "args": arguments, "env": _values(self.env)}
        headers = _values(_values(self.headers))  # there Claude does it twice
        return {"type": self.transport, "url": _literal(self.url), "headers": headers}


class WorkerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one worker. An option that has a setting's name is that setting unless the session
    has its own.

    The server makes a template from the settings (`Settings.fill`); a session replaces what is its
    own, and the pool hands the options to the worker unchanged. A setting has a
    default here only because a fork server can be newer than its daemon, which does not say it.
    """

    model: str | None
    permission_mode: str
    before_plan: str = ""  # the mode before, if that one is `plan`; empty: not known
    setting_sources: tuple[str, ...]
    cli_path: str | None
    umask: str | None = None  # of Claude and its tools, in octal; None: that of the worker
    log_level: Literal["debug", "info", "warning", "error"]
    config: Config = Config()  # effort and fast mode
    asked: SessionOptions = SessionOptions()
    bypass: bool  # whether the mode bypassPermissions may be chosen
    profile: Literal["editor", "pykoclaw"] = "editor"
    titles: Literal["words", "claude"] = "words"
    conversation: str = ""  # its name, to which pykoclaw's tools are bound
    cwd: str = ""
    additional_directories: tuple[str, ...] = ()
    mcp_servers: tuple[McpServer, ...] = ()
    brave_api_key: str | None = None  # never logged or stored
    # its active content: TRUSTED or WITHOUT, and a fingerprint; empty: there is none
    workspace: str = ""
    # Variables that the worker gets besides those of the fork server; None: of a daemon that does
    # not say. Never logged or stored.
    environment: dict[str, str] | None = None
    # Rules of a directory that is not trusted, which forbid calls (`deny`) or make Claude ask (`ask`).
    restrictions: dict[str, tuple[str, ...]] = {}
    own_credential: bool = True  # whether the key that systemd holds for the daemon may be used
    account: str = ""  # empty: Claude's own configuration
    accounts: str = ""  # directory of the accounts; empty: of a daemon that does not say
    # Claude's list of tasks as the log has it last: Claude keeps it, and tells changes alone.
    plan: tuple[PlanEntry, ...] = ()
    rules: tuple[str, ...] = ()  # that last in the directory; none counts without trust
    service: str = ""  # of `environment`, as StoredEnvironment has it
    withheld: str = ""  # why no worker may be launched; empty: one may

    @property
    def restricted(self) -> bool:
        """Whether active content of its directories must not take effect."""
        return is_restricted(self.workspace)


def is_restricted(workspace: str | None) -> bool:
    """Whether a worker with this `workspace` runs without active content."""
    return workspace is not None and workspace.startswith(WITHOUT)


def suits(runs: str | None, wanted: str) -> bool:
    """Whether a worker with the `workspace` that `runs` has the active content that is wanted; one
    of a version before trust (None) has all of it.
    """
    return runs == wanted or (runs is None and not is_restricted(wanted))


def suspects(options: WorkerOptions) -> str:
    """What to look at when Claude hangs, as a sentence that follows another: the client's MCP
    servers; empty if there are none.
    """
    names = ", ".join(f"`{neutral(one.name, 'command')}`" for one in options.mcp_servers)
    if not names:
        return ""
    return f" An MCP server that writes without end is a possible cause; the client gave {names}."


def _literal(value: str) -> str:
    """A value in which Claude puts no variables: `${` is the default of one that nobody sets."""
    return value.replace("${", "${PYKOCLAW_UNSET:-$}{")


def _values(given: dict[str, str]) -> dict[str, str]:
    return {name: _literal(value) for name, value in given.items()}
