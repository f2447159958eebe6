"""Why Claude was not let in: no credential, one that is refused or has expired, a gateway's refusal, or
no connection.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.model.session_environment import is_account, shown
from pykoclaw_acp.system import credentials, shortage
from pykoclaw_acp.worker import failures, gateway, unreachable

_SAID: Final = "Not logged in"  # what the CLI says, without having asked anybody
_OVER: Final = ("expired", "revoked")
_WORDS: Final = re.compile(r"API Error: \d{3} (\w.* .*)", re.DOTALL)  # the service's, in the CLI's
_WORD: Final = re.compile(r"\S+")
_IN_KEYS: Final = re.compile(r"sk-|[\w-]{24}")  # some gateways repeat them


def explained(
    failure: TurnFailure,
    words: str,
    options: WorkerOptions,
    environment: Mapping[str, str] = os.environ,
) -> TurnFailure:
    """The failure in words that fit; `words` are the CLI's, `environment` is that of the CLI."""
    if failure.kind != ErrorKind.AUTHENTICATION_FAILED:
        return unreachable.explained(failure, words, environment)
    kind, said = _reason(failure.status, words, options, environment)
    told = _WORDS.search(words)
    if told is not None and kind != ErrorKind.AUTHENTICATION_EXPIRED:
        said += f" It said: “{failures.foreign(_without_keys(told[1]))}”"
    return replace(failure, kind=kind, message=said)


def _without_keys(said: str) -> str:
    return _WORD.sub(lambda word: "…" if _IN_KEYS.search(word[0]) else word[0], said)


def _reason(
    status: int | None, words: str, options: WorkerOptions, environment: Mapping[str, str]
) -> tuple[ErrorKind, str]:
    # Named where there are several: PYKOCLAW_ACCOUNT, which a worker does not know, is the default.
    account = f" --account {shown(options.account)}" if _has_choice(options) else ""
    login = f"`pykoclaw-acp login{account}`"
    if status is None and _SAID in words and (lack := _lack(words, environment)) is not None:
        return lack[0], (
            f"Claude's credential{_of(options)} cannot be read now: {lack[1]} Then send the prompt again."
        )
    if status is None and _SAID in words:
        return ErrorKind.AUTHENTICATION_MISSING, (
            f"There is no credential for Claude{_of(options)}. {_or_key(login, options)}"
        )
    code = "" if status is None else f" (HTTP status {status})"
    variable = credentials.in_environment(environment)
    if gateway.is_between(environment):
        return ErrorKind.AUTHENTICATION_GATEWAY, (
            f"The gateway in ANTHROPIC_BASE_URL refused the credential{code}: "
            f"{variable or 'that of the login'}. Check both in the environment of your client,"
            " and start the client again."
        )
    if variable is not None:
        return ErrorKind.AUTHENTICATION_FAILED, (
            f"Claude refused the credential in {variable}{code}. Correct it in the environment of your client, and"
            f" start the client again; or remove it there, and run {login}."
        )
    if _has_expired(words, environment):
        return ErrorKind.AUTHENTICATION_EXPIRED, (
            f"The login{_of(options)} has expired. Run {login} in a terminal, then send the prompt again."
        )
    return ErrorKind.AUTHENTICATION_FAILED, (
        f"Claude refused the login{_of(options)}{code}. {_or_key(login, options)}"
    )


def _or_key(login: str, options: WorkerOptions) -> str:
    """What to do: log in, or give a key, and in which order."""
    return (
        f"Run {login} in a terminal, then send the prompt again; nothing needs a restart."
        f" Or {_set_key(options)}, start the client again, and send the prompt again."
    )


def _set_key(options: WorkerOptions) -> str:
    where = "in the environment that your client gives to this agent"
    if not _has_choice(options):
        return f"set ANTHROPIC_API_KEY {where}"
    # Whose account the client has, a worker does not know either.
    key = (
        f"set ANTHROPIC_API_KEY and PYKOCLAW_ACCOUNT={options.account} {where}"
        if options.account
        else f"set ANTHROPIC_API_KEY {where}, and PYKOCLAW_ACCOUNT=default if that names another account"
    )
    return f"{key} (a key counts for its client's own account only)"


def _has_choice(options: WorkerOptions) -> bool:
    """Whether there is an account besides Claude's own, or may be one."""
    if options.account or not options.accounts:
        return True
    try:
        return any(is_account(name) for name in os.listdir(options.accounts))
    except OSError:
        return False


def _of(options: WorkerOptions) -> str:
    return f" of the account {options.account}" if options.account else ""


def _has_expired(words: str, environment: Mapping[str, str]) -> bool:
    if any(word in words.lower() for word in _OVER):
        return True
    try:
        expires = credentials.expires_at(_directory(environment))
    except (OSError, MemoryError):
        return False
    return expires is not None and expires < time.time() * 1000


def _lack(words: str, environment: Mapping[str, str]) -> tuple[ErrorKind, str] | None:
    """What the machine lacks to read a credential, as `shortage.of`; None if it lacks nothing."""
    try:
        credentials.login(_directory(environment))
    except (OSError, MemoryError) as error:
        return shortage.of(error)
    return shortage.of_words(words)


def _directory(environment: Mapping[str, str]) -> str:
    return credentials.configuration(environment, os.path.expanduser("~"))
