"""The accounts that a daemon knows, and whether they have a credential."""

from __future__ import annotations

import os
from pathlib import Path

from pykoclaw_acp.model import session_environment
from pykoclaw_acp.model.session_environment import DaemonEnvironment
from pykoclaw_acp.protocol.control.daemon import AccountInfo, Credential
from pykoclaw_acp.system import credentials


def every(daemon_environment: DaemonEnvironment) -> tuple[AccountInfo, ...]:
    """Claude's own configuration, then the accounts by name."""
    try:
        names = sorted(
            one.name
            for one in os.scandir(daemon_environment.accounts)
            if session_environment.is_account(one.name) and one.is_dir()
        )
    except OSError:
        names = []
    return tuple(_info(daemon_environment, name) for name in ["", *names])


def _info(daemon_environment: DaemonEnvironment, account: str) -> AccountInfo:
    directory = daemon_environment.configuration(account) or credentials.configuration(
        os.environ, Path.home()
    )
    own = credentials.in_environment(daemon_environment.own(account)) is not None
    credential: Credential
    try:
        if account == daemon_environment.account and credentials.is_handed(os.environ):
            own = True
        credential = "environment" if own else "login" if credentials.login(directory) else None
    except (OSError, MemoryError):
        credential = "environment" if own else "unread"
    return AccountInfo(
        name=session_environment.shown(account),
        directory=directory,
        chosen=account == daemon_environment.account,
        credential=credential,
    )
