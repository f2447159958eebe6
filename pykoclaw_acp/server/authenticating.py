"""`authenticate` and `logout`: whether a client's sessions have a credential."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import structlog

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import AuthRequired, InternalError, InvalidParams, Overloaded
from pykoclaw_acp.link import logins
from pykoclaw_acp.model import session_environment as rules
from pykoclaw_acp.model.session_environment import DaemonEnvironment, StoredEnvironment
from pykoclaw_acp.protocol.messages import AuthenticateParams, Empty
from pykoclaw_acp.protocol.wire import Params
from pykoclaw_acp.server.acp_client import AcpClient
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.sessions.new_session import ACCOUNT
from pykoclaw_acp.system import credentials, shortage
from pykoclaw_acp.system import environment as names

CLI_WAIT: Final = 60.0  # s; for the CLI's log-out
HANDED: Final = "systemd"  # a credential of the service
LOGGED_OUT: Final = "This client has logged out. Choose a way to log in, or start the client again."

log: Final = structlog.get_logger()


async def authenticate(call: Call, params: AuthenticateParams) -> Empty:
    """Succeed if there is a credential for the client's sessions: nothing else is needed.

    Logins in a terminal are run by the client.
    """
    if params.method_id not in logins.ids():
        raise InvalidParams("`methodId`: must be one of `authMethods`.")
    client = call.client
    if await asyncio.to_thread(credential_of, call.sessions.daemon_environment, client) is None:
        raise AuthRequired(_missing(call), {"errorKind": ErrorKind.AUTHENTICATION_MISSING})
    client.log_in()
    return Empty()


async def logout(call: Call, params: Params) -> Empty:  # noqa: ARG001
    """End the login of the client's account, and take the client's keys from its sessions. Other
    clients keep theirs, and what runs goes on.
    """
    client = call.client
    environment, directory, _ = _of(call.sessions.daemon_environment, client)
    if await asyncio.to_thread(_login, directory) is not None:
        await asyncio.to_thread(
            _log_out,
            call.sessions.daemon_environment.cli_path,
            environment.get(names.CONFIGURATION),
            _option(call),
        )
    client.log_out()
    if call.sessions.early is not None:
        call.sessions.early.end()  # the keys that they were started with hold no more
    log.info("Logged out", action="logged_out", client=client.name)
    return Empty()


def require_login(client: AcpClient) -> None:
    """Raises AuthRequired for a client that has logged out."""
    if client.logged_out:
        raise AuthRequired(LOGGED_OUT, {"errorKind": ErrorKind.AUTHENTICATION_MISSING})


def account(meta: Mapping[str, Any]) -> str | None:
    """The account that `_meta` names; None if it names none. Raises InvalidParams."""
    name = meta.get(ACCOUNT)
    if name is None:
        return None
    if not isinstance(name, str) or not rules.is_account(name):
        raise InvalidParams(f"`_meta.{ACCOUNT}`: must be the name of an account.")
    return rules.stored(name)


def account_of(daemon_environment: DaemonEnvironment, client: AcpClient) -> str:
    """The account of the client's new sessions."""
    named = None if client.given is None else client.given.account
    return daemon_environment.account if named is None else named


def credential_of(daemon_environment: DaemonEnvironment, client: AcpClient) -> str | None:
    """Where new sessions of the client get a credential from: a variable's name, a file; None:
    nowhere. Reads files; raises Overloaded if these cannot be read for a shortage.
    """
    environment, directory, account = _of(daemon_environment, client)
    if (variable := credentials.in_environment(environment)) is not None:
        return variable
    with _reading():
        if account == daemon_environment.account and credentials.is_handed(os.environ):
            return HANDED
        return credentials.login(directory)


@contextlib.contextmanager
def _reading() -> Iterator[None]:
    """A shortage while credentials are read passes: it says nothing of whether there is one."""
    try:
        yield
    except (OSError, MemoryError) as error:
        if (found := shortage.of(error)) is None:
            raise
        kind, sentence = found
        message = f"The credential for Claude cannot be read now: {sentence} Then try again."
        raise Overloaded(message, kind) from error


def _of(
    daemon_environment: DaemonEnvironment, client: AcpClient
) -> tuple[Mapping[str, str], str, str]:
    """Environment of a new session of the client, the configuration directory of its account, and
    that.
    """
    account = account_of(daemon_environment, client)
    variables = rules.environment(
        daemon_environment, StoredEnvironment(account), client.given
    ).variables
    own = daemon_environment.configuration(account)
    return variables, own or credentials.configuration(os.environ, Path.home()), account


def _login(directory: str) -> str | None:
    with _reading():
        return credentials.login(directory)


def _missing(call: Call) -> str:
    return (
        f"There is no credential for Claude. Run `pykoclaw-acp login{_option(call)}` in a terminal, or set"
        " ANTHROPIC_API_KEY in the environment that the client gives to this agent, and start the client again."
    )


def _option(call: Call) -> str:
    """What names the client's account to commands; empty if neither it nor a setting names one."""
    daemon, given = call.sessions.daemon_environment, call.client.given
    if not daemon.account and (given is None or given.account is None):
        return ""
    return f" --account {rules.shown(account_of(daemon, call.client))}"


def _log_out(cli_path: str | None, directory: str | None, option: str) -> None:
    """Let the CLI remove its login; `directory` None: that of Claude's own configuration; `option`:
    what names the account to commands. Raises InternalError.
    """
    cli = cli_path or credentials.bundled_cli() or "claude"
    withheld = names.of_one_client(os.environ)
    kept = {name: value for name, value in os.environ.items() if name not in withheld}
    if directory is not None:
        kept[names.CONFIGURATION] = directory
    try:
        subprocess.run(
            [cli, "auth", "logout"], env=kept, check=True, cwd="/",
            stdin=subprocess.DEVNULL, capture_output=True, timeout=CLI_WAIT,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError) as error:
        log.warning("The CLI did not log out", action="logout_failed", error=str(error)[:200])
        raise InternalError(
            f"Claude's CLI did not log out. Run `pykoclaw-acp logout{option}` in a terminal, which shows why."
        ) from error
