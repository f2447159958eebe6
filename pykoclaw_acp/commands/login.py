"""`pykoclaw-acp login` and `logout`: the CLI's own, for an account."""

from __future__ import annotations

import os
import shutil
import subprocess

from pykoclaw_acp import terminal
from pykoclaw_acp.config import loading
from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.errors import CommandFailed
from pykoclaw_acp.link.places import secure_directory
from pykoclaw_acp.model import session_environment
from pykoclaw_acp.system import credentials
from pykoclaw_acp.system.environment import CONFIGURATION

INTERRUPTED = 130


def login(account: str | None, *, options: list[str]) -> int:
    """Run the CLI's login on this terminal; returns its exit status."""
    settings = loading.load()
    name, directory = _place(settings, account)
    made = None if directory is None or os.path.isdir(directory) else directory
    if directory is not None:
        secure_directory(os.path.dirname(directory))
        secure_directory(directory)
    status = INTERRUPTED
    try:
        status = _run(settings, directory, ["auth", "login", *options])
    finally:
        if status and made is not None and credentials.login(made) is None:
            shutil.rmtree(made, ignore_errors=True)
    if status:
        terminal.complain(f"pykoclaw-acp: Claude's login has ended with status {status}.")
        return status
    terminal.line(f"Logged in: account {name}. Sessions use it from their next prompt on.")
    variable = credentials.in_environment(os.environ)
    if variable is not None:
        terminal.complain(
            f"{variable} is set in this shell. Clients that have it as well use it instead of the login."
        )
    return 0


def logout(account: str | None) -> int:
    """Run the CLI's logout; returns its exit status."""
    settings = loading.load()
    name, directory = account_directory(settings, account)
    status = _run(settings, directory, ["auth", "logout"])
    if status:
        terminal.complain(f"pykoclaw-acp: Claude's logout has ended with status {status}.")
        return status
    terminal.line(
        f"Logged out: account {name}. Running workers keep the former login until they end;"
        " `pykoclaw-acp workers stop` ends them."
    )
    return 0


def account_directory(settings: Settings, chosen: str | None) -> tuple[str, str | None]:
    """Name and configuration directory of an account that there is, None for Claude's own; raises
    CommandFailed.
    """
    name, directory = _place(settings, chosen)
    if directory is not None and not os.path.isdir(directory):
        raise CommandFailed(f"There is no account {name}: {directory} does not exist.")
    return name, directory


def _place(settings: Settings, chosen: str | None) -> tuple[str, str | None]:
    name = settings.account if chosen is None else chosen
    if not session_environment.is_account(name):
        raise CommandFailed(f"{name} cannot be an account: {session_environment.ACCOUNT_RULE}.")
    return name, settings.daemon_environment({}).configuration(session_environment.stored(name))


def _run(settings: Settings, directory: str | None, arguments: list[str]) -> int:
    cli = settings.cli_path or credentials.bundled_cli() or "claude"
    # Not for Claude's own: with the variable it looks for some of its files elsewhere.
    account = {} if directory is None else {CONFIGURATION: directory}
    try:
        # Not here: the directory's settings would act.
        return subprocess.run(
            [str(cli), *arguments], env={**os.environ, **account}, cwd="/", check=False
        ).returncode
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        raise CommandFailed(
            f"Claude's CLI does not run: {error.strerror} ({cli}). `pykoclaw-acp doctor` says more."
        ) from error
