"""Check of the ways by which Mitto's own MCP server reaches Claude."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pykoclaw_acp.doctor.claude import configuration, read_json, workers_environment
from pykoclaw_acp.doctor.report import Context, Finding
from pykoclaw_acp.model.session_environment import OWN
from pykoclaw_acp.system import credentials

CHECK: Final = "Mitto's tools"
ADDRESS: Final = "http://127.0.0.1:5757/mcp"  # its default
MOST: Final = 200  # workspaces that are looked at
_AFTER: Final = "Sessions have it from their next worker on (`pykoclaw-acp workers stop`)."
_SETTINGS: Final = ("settings.json", "settings.local.json")


def mitto_tools(context: Context) -> Finding:
    """Mitto's MCP server is where Claude looks for servers, and not only where Mitto writes it."""
    folder = _data(context)
    if not (context.home / ".mittorc").exists() and not folder.is_dir():
        return Finding(CHECK, "ok", "no configuration of it here")
    environment, _ = workers_environment(context)
    account, directory = configuration(context)
    claude = Path(directory)
    own = claude if account != OWN or environment.get("CLAUDE_CONFIG_DIR") else context.home
    users = own / ".claude.json"
    blocked = []
    if _has_mitto(read_json(users)):
        if "user" in context.setting_sources:
            return Finding(CHECK, "ok", f"Mitto's MCP server is in {users}")
        blocked.append(_left_out(users, "user"))
    projects = _dict(_dict(read_json(users)).get("projects"))
    useless = [path for path in (claude / one for one in _SETTINGS) if _has_mitto(read_json(path))]
    workspaces = list(_workspaces(folder))
    without = []
    for one in workspaces:
        local = _has_mitto(projects.get(one))
        if local and "local" in context.setting_sources:
            continue
        if _has_mitto(read_json(shared := Path(one, ".mcp.json"))):
            if (why := _blocked(context, shared)) is None:
                continue
            blocked.append(why)
        elif local:
            blocked.append(_left_out(users, "local"))
        without.append(one)
        paths = (Path(one, ".claude", name) for name in _SETTINGS)
        useless += [path for path in paths if _has_mitto(read_json(path))]
    if blocked and (without or not workspaces):
        return blocked[0]
    if useless and (without or not workspaces):
        found = f"Mitto's MCP server is in {useless[0]} only, where Claude looks for none"
        return Finding(CHECK, "warning", found, _advice(context))
    if without or not workspaces:
        return Finding(CHECK, "ok", "Mitto's MCP server is not set up for all sessions")
    return Finding(CHECK, "ok", "Mitto's MCP server is set up in each of its workspaces")


CHECKS: Final = (mitto_tools,)


def _blocked(context: Context, shared: Path) -> Finding | None:
    """Why a workspace's `.mcp.json` does not count; None if it does, as far as is known."""
    if "project" not in context.setting_sources:
        return _left_out(shared, "project")
    directory = os.path.realpath(shared.parent)
    if context.trusted is None or any(
        directory == path or (tree and directory.startswith(os.path.join(path, "")))
        for path, tree in context.trusted
    ):
        return None
    found = f"Mitto's MCP server is in {shared}, which does not count: the directory is not trusted"
    add = f"`pykoclaw-acp trust add {shlex.quote(str(shared.parent))}`"
    return Finding(CHECK, "warning", found, f"Trust it: {add}. {_AFTER}")


def _left_out(path: Path, source: str) -> Finding:
    found = f"Mitto's MCP server is in {path}, which PYKOCLAW_SETTING_SOURCES leaves out"
    advice = f"Add `{source}` to PYKOCLAW_SETTING_SOURCES, and restart the daemon (`pykoclaw-acp restart`)."
    return Finding(CHECK, "warning", found, advice)


def _advice(context: Context) -> str:
    cli = context.cli_path or credentials.bundled_cli() or "claude"
    account, directory = configuration(context)
    if account != OWN:
        cli = f"CLAUDE_CONFIG_DIR={shlex.quote(directory)} {cli}"
    return (
        f"Add it for your user: `{cli} mcp add --scope user --transport http mitto {ADDRESS}`; or"
        " write it into the workspace's .mcp.json and trust that directory with"
        f" `pykoclaw-acp trust add`. {_AFTER}"
    )


def _data(context: Context) -> Path:
    """Mitto's data directory."""
    if named := context.environment.get("MITTO_DIR"):
        return Path(named)
    return Path(context.environment.get("XDG_DATA_HOME") or context.home / ".local/share", "mitto")


def _workspaces(folder: Path) -> Iterator[str]:
    listed = _dict(read_json(folder / "workspaces.json")).get("workspaces")
    for one in listed[:MOST] if isinstance(listed, list) else []:
        directory = _dict(one).get("working_dir")
        if isinstance(directory, str) and os.path.isabs(directory) and "\0" not in directory:
            yield directory


def _has_mitto(settings: Any) -> bool:
    """Whether MCP servers in these settings have one of Mitto's: by name, or by its program."""
    servers = _dict(_dict(settings).get("mcpServers"))
    return any(
        "mitto" in str(name).lower() or os.path.basename(str(_dict(one).get("command"))) == "mitto"
        for name, one in servers.items()
    )


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
