"""The account of a session, and the environment in which Claude runs for it.

A client's variables are used by the sessions that it opens. Those that are no secrets are stored
with the session, of secrets only the names: without a client that gives them the session has no
worker, rather than one with another account.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from pykoclaw_acp.system import environment as names

OWN: Final = "default"  # name, for people, of the account of Claude's own configuration
_GROUPS: Final = (names.PROVIDER, names.NETWORK)  # of each, all or none is used
ACCOUNT_RULE: Final = "the name of an account has letters, digits, dots, dashes and underscores"
_ACCOUNT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class StoredEnvironment:
    """What is stored of a session. `account`: empty for Claude's own configuration.

    `variables` are a client's, without secrets; `secrets` are names of those that it gave besides.
    """

    account: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    secrets: tuple[str, ...] = ()

    @property
    def service(self) -> str:
        """A digest by which keys and services of clients are told apart, of secrets by their names
        alone; empty: the client gives none.
        """
        given = {**self.variables, **dict.fromkeys(self.secrets)}
        told = sorted((name, value) for name, value in given.items() if name in names.PROVIDER)
        return sha256(json.dumps(told).encode()).hexdigest()[:16] if told else ""


@dataclass(frozen=True, slots=True)
class ClientEnvironment:
    """What a client gives to the sessions that it opens; in memory while the client is there.

    `account`: None if it names none. `model` and `mode` are of new sessions.
    """

    account: str | None = None
    model: str | None = None
    mode: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> ClientEnvironment:
        """From the variables of `system.environment.of_sessions`."""
        account = environment.get(names.ACCOUNT)
        return cls(
            account=None if account is None else stored(account),
            model=environment.get(names.MODEL) or environment.get(names.CLAUDES_MODEL),
            mode=environment.get(names.MODE),
            variables={
                name: value for name, value in environment.items() if name not in names.SETTINGS
            },
        )

    def without_keys(self) -> ClientEnvironment:
        """Without everything that says whose account is used."""
        left = {name: value for name, value in self.variables.items() if name not in names.PROVIDER}
        return ClientEnvironment(self.account, self.model, self.mode, left)


@dataclass(frozen=True, slots=True)
class DaemonEnvironment:
    """What the daemon itself gives: the account of new sessions, the directory of accounts, the
    variables that are its own, and Claude's CLI; None: the one that the SDK brings along.

    `claudes`: Claude's own configuration directory. `mode_is_set`: a setting of ours says the
    permission mode of new sessions; otherwise the user's Claude settings may.
    """

    account: str = ""
    accounts: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    cli_path: str | None = None
    claudes: str = ""
    mode_is_set: bool = False

    def configuration(self, account: str) -> str | None:
        """Claude's configuration directory of an account; None: Claude's own."""
        return os.path.join(self.accounts, account) if account else None

    def own(self, account: str) -> Mapping[str, str]:
        """The daemon's own variables, as far as they are of this account."""
        if account == self.account:
            return self.variables
        return {name: value for name, value in self.variables.items() if name not in names.PROVIDER}


@dataclass(frozen=True, slots=True)
class WorkerEnvironment:
    """What a worker gets. `own_credential`: the key that systemd holds for the daemon may be used.

    `withheld`: why no worker may be started; empty: one may.
    """

    variables: Mapping[str, str]
    own_credential: bool
    withheld: str = ""


def is_account(name: str) -> bool:
    """Whether an account can have this name, which is that of a directory."""
    return _ACCOUNT.fullmatch(name) is not None


def stored(name: str) -> str:
    """An account as it is stored; people call Claude's own configuration `default`."""
    return "" if name == OWN else name


def shown(account: str) -> str:
    """An account as people call it."""
    return account or OWN


def begin(
    daemon_environment: DaemonEnvironment, account: str, given: ClientEnvironment | None
) -> StoredEnvironment:
    """Return the environment of a new session of this account."""
    return opened(daemon_environment, StoredEnvironment(account), given)


def opened(
    daemon_environment: DaemonEnvironment, kept: StoredEnvironment, given: ClientEnvironment | None
) -> StoredEnvironment:
    """What is stored when a client opens the session. It keeps its account, and what it needs
    stays needed if the client does not give it.
    """
    variables = None if given is None else _usable(daemon_environment, kept, given)
    if variables is None:
        return kept
    own = daemon_environment.own(kept.account)
    secrets = {name for name, value in variables.items() if names.is_secret(name, value)}
    for group in _GROUPS:
        if group & secrets and _of(variables, group) == _of(own, group):
            variables = _without(variables, group)
    plain = {name: value for name, value in variables.items() if name not in secrets}
    return StoredEnvironment(kept.account, plain, tuple(sorted(secrets & variables.keys())))


def environment(
    daemon_environment: DaemonEnvironment, kept: StoredEnvironment, given: ClientEnvironment | None
) -> WorkerEnvironment:
    """The environment of a worker; `given`: of the client that has the session open, if one has."""
    variables = None if given is None else _usable(daemon_environment, kept, given)
    if variables is None:
        if kept.secrets:
            return WorkerEnvironment({}, own_credential=False, withheld=_withheld(kept))
        variables = kept.variables
    own = daemon_environment.own(kept.account)
    made = {name: value for name, value in own.items() if name not in names.SETTINGS}
    for group in _GROUPS:
        if group & variables.keys():
            made = _without(made, group)
    made |= variables
    directory = daemon_environment.configuration(kept.account)
    if directory is not None:
        made[names.CONFIGURATION] = directory
    return WorkerEnvironment(
        made,
        own_credential=kept.account == daemon_environment.account
        and not names.PROVIDER & variables.keys(),
    )


def _usable(
    daemon_environment: DaemonEnvironment, kept: StoredEnvironment, given: ClientEnvironment
) -> Mapping[str, str] | None:
    """The client's variables, as far as they are for this session; None if they lack a secret that
    the session needs.

    A client that names the session's account, and gives no credential, means the account's own. One
    with another account gives none of its credentials.
    """
    needs = names.PROVIDER.intersection(kept.secrets)
    if kept.account == (daemon_environment.account if given.account is None else given.account):
        meant = given.account is not None or bool(names.CREDENTIALS & given.variables.keys())
        return given.variables if meant or needs <= given.variables.keys() else None
    if needs:
        return None
    provider = _of(kept.variables, names.PROVIDER)
    return {**provider, **given.without_keys().variables}


def _of(variables: Mapping[str, str], group: frozenset[str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name in group}


def _without(variables: Mapping[str, str], group: frozenset[str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if name not in group}


def _withheld(kept: StoredEnvironment) -> str:
    listed = ", ".join(kept.secrets)
    return (
        f"This session needs secrets from the environment of its client ({listed}). They are not stored, and no client"
        " that has them has the session open. No other credential was used. Open the session in that client; or, to use"
        f" the login of this machine, open it in a client with PYKOCLAW_ACCOUNT={shown(kept.account)} in its"
        " environment."
    )
