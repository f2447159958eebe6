"""Checks of Claude's CLI, its credential, and the configuration of clients."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import msgspec

from pykoclaw_acp.config.dotenv import IN_HOME
from pykoclaw_acp.doctor.report import TOOL_WAIT, Context, Finding
from pykoclaw_acp.model.choices import BYPASS, may_bypass
from pykoclaw_acp.model.session_environment import OWN, shown
from pykoclaw_acp.server.accounts import every
from pykoclaw_acp.sessions.user_settings import trouble
from pykoclaw_acp.system import credentials, dotenv
from pykoclaw_acp.trust.looking import Looking

PROGRAM: Final = "pykoclaw-acp"
MOST: Final = 64 * 1024 * 1024  # bytes of a file; Claude's own one grows with its projects
# Of JSON with comments. What does not end is matched, too, lest each beginning in it be tried.
_TOKEN: Final = re.compile(
    r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|//[^\n]*|/\*.*?(?:\*/|(\Z))|,(?=\s*[}\]])', re.DOTALL
)
_LIKE: Final = re.compile(rf"{PROGRAM}[\w.-]+")  # a script that starts us, or a mistyped name
# Words before a program that is started here: `env`, a shell, their options, variables.
_BEFORE: Final = frozenset(("exec", "env", "sh", "bash", "dash", "zsh", "ksh", "fish"))


def claude_cli(context: Context) -> Finding:
    """Claude's CLI exists and runs."""
    path = context.cli_path or credentials.bundled_cli()
    if path is None or not os.access(path, os.X_OK) or os.path.isdir(path):
        advice = "Set PYKOCLAW_CLI_PATH to one, or install claude-agent-sdk again, which brings it along."
        return Finding("Claude CLI", "problem", f"there is no program at {path}", advice)
    try:
        shown = subprocess.run(
            [path, "--version"], capture_output=True, text=True, check=False, timeout=TOOL_WAIT,
            stdin=subprocess.DEVNULL, env=dict(context.environment), cwd="/",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding(
            "Claude CLI",
            "problem",
            f"{path} does not run: {error}",
            f"Try `{path} --version` yourself.",
        )
    words = shown.stdout.split()
    if shown.returncode != 0 or not words:
        return Finding("Claude CLI", "problem", f"{path} --version ends with {shown.returncode}",
                       f"Try `{path} --version` yourself.")  # fmt: skip
    return Finding("Claude CLI", "ok", f"version {words[0]} at {path}")


def credential(context: Context) -> Finding:
    """A credential for Claude exists; it is never shown."""
    environment, whose = workers_environment(context)
    if (name := credentials.in_environment(environment)) is not None:
        return Finding("credential", "ok", f"{name} in the environment of {whose}")
    if (name := credentials.in_environment(_of_home_file(context))) is not None:
        return Finding("credential", "ok", f"{name} in {context.home / IN_HOME}")
    if credentials.is_handed(environment):
        return Finding("credential", "ok", f"{credentials.KEY} from systemd, for {whose}")
    account, folder = configuration(context)
    file = credentials.login(folder)
    if file is None:
        # What a client gives to its own sessions no other process can see.
        if (name := credentials.in_environment(context.environment)) is not None:
            found = f"{name} in this shell: for clients that have it, too, and their sessions only"
            return Finding("credential", "ok", found)
        chosen = shown(context.daemon_environment.account)  # by the settings here
        of = "" if account == chosen == OWN else f" --account {account}"
        advice = (
            f"Log in with `pykoclaw-acp login{of}`, or set ANTHROPIC_API_KEY in the environment that your client gives"
            " to pykoclaw-acp, which cannot be seen from here."
        )
        found = f"none in the environment of {whose}, and none in {folder}"
        return Finding("credential", "problem", found, advice)
    mode = stat.S_IMODE(os.stat(file).st_mode)
    if file.endswith(credentials.LOGIN) and mode & 0o077:
        return Finding(
            "credential", "problem", f"others may read {file} (mode {mode:o})",
            f"Restrict it with `chmod 600 {file}`.",
        )  # fmt: skip
    what = "Claude's login in" if file.endswith(credentials.LOGIN) else "a helper program, in"
    return Finding("credential", "ok", f"{what} {file}")


def user_settings(context: Context) -> Finding:
    """Claude reads the user's own settings, which it leaves out in silence if they are broken."""
    path = os.path.join(configuration(context)[1], "settings.json")
    if wrong := trouble(path):
        found = f"{path} {wrong}: Claude ignores it, so what it forbids is not forbidden"
        advice = "Correct the file; it takes effect at once."
        return Finding("Claude settings", "warning", found, advice)
    return Finding("Claude settings", "ok", path if os.path.exists(path) else "no file of yours")


def accounts(context: Context) -> Finding:
    """Further accounts have a login."""
    known = _accounts(context)
    named = [one["name"] for one in known if one["name"] != OWN]
    without = [one["name"] for one in known if one["name"] in named and one["credential"] is None]
    if without:
        found = f"no login for {', '.join(without)}"
        advice = f"Log in with `pykoclaw-acp login --account {without[0]}`."
        return Finding("accounts", "warning", found, advice)
    return Finding("accounts", "ok", ", ".join(named) or "none besides Claude's own configuration")


def configuration(context: Context) -> tuple[str, str]:
    """The account of new sessions whose client names none, and Claude's configuration directory
    for it.
    """
    account = context.daemon_environment.account
    name, directory = shown(account), context.daemon_environment.configuration(account)
    for one in () if context.status is None else _accounts(context):
        if one.get("chosen"):
            name, directory = one["name"], one["directory"]
    environment, _ = workers_environment(context)
    if name == OWN or directory is None:
        return OWN, credentials.configuration(environment, context.home)
    return name, directory


def _accounts(context: Context) -> list[dict[str, Any]]:
    """Accounts that the daemon knows, or else would know."""
    if context.status is not None:
        return list(context.status.get("accounts", []))
    variables = {**_of_home_file(context), **context.environment}
    would = replace(context.daemon_environment, variables=variables)
    return [msgspec.structs.asdict(one) for one in every(would)]


def environment(context: Context) -> Finding:
    """The daemon runs with the settings of its clients' environment."""
    clients = [] if context.status is None else context.status.get("otherSettings", [])
    if not clients:
        return Finding("environment", "ok", "no client has other settings than the daemon")
    found = "; ".join(f"{one['client']} sets {', '.join(one['settings'])}" for one in clients)
    advice = (
        "These hold for all clients, and the daemon keeps those that it was started with. Set them in"
        " ~/.local/share/pykoclaw/.env, then run `pykoclaw-acp restart`; or take them away from the client."
    )
    return Finding("environment", "warning", f"the daemon has other values: {found}", advice)


def profile(context: Context) -> Finding:
    """The profile, and whether Claude accepts the permission mode of new sessions."""
    environment, whose = workers_environment(context)
    mode = context.permission_mode
    found = f"{context.profile}; permission mode of new sessions: {mode}"
    if mode == BYPASS.id and not may_bypass(os.geteuid(), environment):
        return Finding(
            "profile",
            "problem",
            f"{found}, which Claude refuses to root",
            f"Set IS_SANDBOX=1 in the environment of {whose} if this machine is a disposable sandbox,"
            " run as another user, or set PYKOCLAW_PERMISSION_MODE to another mode.",
        )
    return Finding("profile", "ok", found)


def zed(context: Context) -> Finding:
    """Zed's configuration names pykoclaw-acp, with a command that exists."""
    folder = Path(context.environment.get("XDG_CONFIG_HOME") or context.home / ".config")
    path = folder / "zed" / "settings.json"
    if not path.exists():
        return Finding("Zed", "ok", "no configuration of it here")
    value = read_json(path)
    if not isinstance(value, dict):
        return Finding(
            "Zed", "warning", f"{path} cannot be read", "Open it in Zed, which marks what is wrong."
        )
    servers = value.get("agent_servers")
    commands = [
        shlex.join([one["command"], *_arguments(one.get("args"))])
        for one in (servers.values() if isinstance(servers, dict) else [])
        if isinstance(one, dict) and isinstance(one.get("command"), str)
    ]
    return _named(context, "Zed", path, commands)


def _arguments(value: Any) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []


def mitto(context: Context) -> Finding:
    """Mitto's configuration names pykoclaw-acp, with a command that exists."""
    path = context.home / ".mittorc"
    if not path.exists():
        return Finding("Mitto", "ok", "no configuration of it here")
    text = _text(path)
    if text is None:
        return Finding("Mitto", "warning", f"{path} cannot be read", "Look at it with `ls -l`.")
    found = [
        match[1].strip().strip("'\"")
        for line in text.splitlines()
        if (match := re.match(r"\s*(?:-\s+)?command:(.*\S)", line))
    ]
    return _named(context, "Mitto", path, found)


CHECKS: Final = (claude_cli, credential, user_settings, accounts, environment, profile, zed, mitto)


def _named(context: Context, client: str, path: Path, commands: list[str]) -> Finding:
    ours = [(command, found) for command in commands if (found := _program(command)) is not None]
    if not ours:
        return Finding(client, "ok", f"{path} does not name {PROGRAM}")
    for command, program in ours:
        if program and shutil.which(program, path=context.environment.get("PATH")) is None:
            return Finding(client, "problem", *_missing(path, program))
        words = _words(command)
        after = {two for one, two in pairwise([*words, ""]) if os.path.basename(one) == PROGRAM}
        if after == {"serve"} and "--stdio" not in words:
            found = f"{path} starts `{PROGRAM} serve`, a daemon, which does not speak with a client"
            return Finding(client, "problem", found, f"Let it start just `{PROGRAM}`.")
        if "--stdio" in words:
            found = f"{path} starts `{PROGRAM} serve --stdio`, whose turns end with the client"
            return Finding(
                client,
                "warning",
                found,
                f"Let it start just `{PROGRAM}`: then they go on without it.",
            )
    how = "starts" if any(program for _, program in ours) else "names"
    return Finding(client, "ok", f"{path} {how} {PROGRAM}")


def _missing(path: Path, program: str) -> tuple[str, str]:
    """What is said of a program that is not found, and what to do."""
    if "/" in program:
        found = f"{path} starts {program}, which does not exist or cannot be executed"
        return found, f"Correct the path there: `which {PROGRAM}` shows it."
    advice = (
        f"Correct the name, or write the whole path of {PROGRAM} there: editors often have a shorter"
        " PATH than your shell."
    )
    return f"{path} starts {program}, which is not on PATH here", advice


def _words(command: str) -> list[str]:
    """Words of a command, those inside `sh -c '…'` included."""
    try:
        return [
            word
            for outer in shlex.split(command)
            for word in (outer.split() if " " in outer else [outer])
        ]
    except ValueError:
        return [word.strip("'\"") for word in command.split()]


def _stands_before(word: str) -> bool:
    """Whether it may stand before the program: an option, a variable, a shell."""
    name, assigned, _ = word.partition("=")
    variable = bool(assigned) and name.isidentifier()
    return word.startswith("-") or variable or os.path.basename(word) in _BEFORE


def _program(command: str) -> str | None:
    """The program of a command that starts a client of ours, also as `pykoclaw acp`, or what has a
    name like it; empty if another program starts it, which may be elsewhere; None if the command is
    of something else.
    """
    words = _words(command)
    first = True
    for at, word in enumerate(words):
        if _stands_before(word):
            continue
        name = os.path.basename(word)
        if name == PROGRAM or (name == "pykoclaw" and words[at + 1 : at + 2] == ["acp"]):
            return word if first else ""
        if first and _LIKE.fullmatch(name):
            return word
        first = False
    return "" if PROGRAM in command else None


def workers_environment(context: Context) -> tuple[Mapping[str, str], str]:
    """Environment of workers: that of the running daemon, else ours."""
    if context.daemon_pid is None:
        return context.environment, "this shell"
    raw = (context.proc / str(context.daemon_pid) / "environ").read_bytes().decode(errors="replace")
    return dict(line.split("=", 1) for line in raw.split("\0") if "=" in line), "the daemon"


def _of_home_file(context: Context) -> Mapping[str, str]:
    """What the `.env` of the home directory sets; nothing if there is none, or it cannot be read."""
    path = context.home / IN_HOME
    try:
        return dotenv.read(str(path)) if path.is_file() else {}
    except (OSError, UnicodeDecodeError):
        return {}


def read_json(path: Path) -> Any:
    """Content of a JSON file with comments and trailing commas, as editors write them; None if it
    cannot be read.
    """
    text = _text(path)
    if text is None:
        return None
    bare = _TOKEN.sub(_without_comments, text)
    try:
        # Trailing commas may precede comments
        return json.loads(_TOKEN.sub(_without_comments, bare))
    except (ValueError, RecursionError):
        return None


def _without_comments(token: re.Match[str]) -> str:
    """What is left of a token; comments that do not end are kept, as they are errors."""
    return token[0] if token[0].startswith('"') or token[1] is not None else ""


def _text(path: Path) -> str | None:
    """Text of a file of others; None if it cannot be read, is too large, or is no file: a pipe would
    make us wait.
    """
    try:
        found = Looking().read(str(path), MOST)
    except (OSError, ValueError):  # ValueError: no path at all
        return None
    data = None if found is None else found.data
    return None if data is None else data.decode(errors="replace")
