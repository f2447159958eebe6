"""The accounts that a daemon knows, and whether they have a credential."""

from __future__ import annotations

import os
from pathlib import Path

from pykoclaw_acp.model import surroundings
from pykoclaw_acp.model.surroundings import House
from pykoclaw_acp.protocol.control.daemon import AccountInfo, Credential
from pykoclaw_acp.system import credentials


def every(house: House) -> tuple[AccountInfo, ...]:
    """Claude's own configuration, then the accounts by name."""
    try:
        names = sorted(
            one.name
            for one in os.scandir(house.accounts)
            if surroundings.is_account(one.name) and one.is_dir()
        )
    except OSError:
        names = []
    return tuple(_info(house, name) for name in ["", *names])


def _info(house: House, account: str) -> AccountInfo:
    directory = house.configuration(account) or credentials.configuration(os.environ, Path.home())
    own = credentials.in_environment(house.own(account)) is not None
    credential: Credential
    try:
        if account == house.account and credentials.handed(os.environ):
            own = True
        credential = "environment" if own else "login" if credentials.login(directory) else None
    except (OSError, MemoryError):
        credential = "environment" if own else "unread"
    return AccountInfo(
        name=surroundings.shown(account),
        directory=directory,
        chosen=account == house.account,
        credential=credential,
    )
