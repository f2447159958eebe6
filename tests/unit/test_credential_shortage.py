"""A credential that cannot be read for want of memory or descriptors is not a missing one."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import Overloaded
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.model.session_environment import DaemonEnvironment
from pykoclaw_acp.server import accounts, authenticating
from pykoclaw_acp.system import credentials, environment
from pykoclaw_acp.worker import options
from pykoclaw_acp.worker.login_failures import explained
from tests.workers import OPTIONS

SAID = "Not logged in · Please run /login"
SHORTAGES = [
    (OSError(errno.EMFILE, "Too many open files"), "out_of_descriptors"),
    (OSError(errno.ENOMEM, "Cannot allocate memory"), "out_of_memory"),
    (MemoryError(), "out_of_memory"),
]
CLIENT: Any = SimpleNamespace(given=None)


@pytest.fixture
def daemon_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DaemonEnvironment:
    """An environment of the daemon whose own account has Claude's configuration in the test's directory."""
    for name in environment.KEYS | environment.SWITCHES | {"CREDENTIALS_DIRECTORY"}:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    return DaemonEnvironment(accounts=str(tmp_path / "accounts"))


def fail(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def opened(*_: object, **__: object) -> NoReturn:
        raise error

    monkeypatch.setattr(credentials, "opened", opened)


def told(tmp_path: Path, words: str = SAID) -> TurnFailure:
    failure = TurnFailure(ErrorKind.AUTHENTICATION_FAILED, words)
    return explained(failure, words, OPTIONS, {"CLAUDE_CONFIG_DIR": str(tmp_path)})


def test_only_key_that_workers_read_is_a_credential(
    daemon_environment: DaemonEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service may get others from systemd."""
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))

    def seen() -> tuple[object, ...]:
        (own,) = accounts.every(daemon_environment)
        return (
            options.credential(),
            authenticating.credential_of(daemon_environment, CLIENT),
            own.credential,
        )

    for name in ("github_token", "anthropic-api-key"):
        (tmp_path / name).write_text("S3CRET")
    key = tmp_path / credentials.KEY
    key.write_text("\n")
    assert seen() == ({}, None, None)
    key.write_text("sk-ant-file\n")
    assert seen() == (
        {"ANTHROPIC_API_KEY": "sk-ant-file"},
        authenticating.HANDED,
        "environment",
    )


@pytest.mark.parametrize("handed", [False, True])
@pytest.mark.parametrize(("error", "kind"), SHORTAGES)
def test_shortage_is_no_missing_credential(
    error: BaseException,
    kind: str,
    handed: bool,
    daemon_environment: DaemonEnvironment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if handed:
        monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    fail(monkeypatch, error)
    with pytest.raises(Overloaded) as refused:
        authenticating.credential_of(daemon_environment, CLIENT)
    assert refused.value.data == {"errorKind": kind, "retryable": True}
    assert "cannot be read now" in refused.value.message
    assert [one.credential for one in accounts.every(daemon_environment)] == ["unread"]
    failure = told(tmp_path)
    assert (failure.kind, failure.retryable) == (kind, True)


def test_shortage_that_claude_names_is_told(tmp_path: Path) -> None:
    assert told(tmp_path, f"{SAID} (EMFILE: too many open files)").kind == "out_of_descriptors"


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOENT, "No such file"), OSError(errno.EACCES, "Permission denied")]
)
def test_unreadable_credential_is_a_missing_one(
    error: OSError,
    daemon_environment: DaemonEnvironment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fail(monkeypatch, error)
    assert authenticating.credential_of(daemon_environment, CLIENT) is None
    assert told(tmp_path).kind == "authentication_missing"
