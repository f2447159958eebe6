"""Commands that run another program: the installer of the units, and Claude's login."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import pykoclaw_acp
from pykoclaw_acp.cli import cli
from pykoclaw_acp.commands import deploy


class Replaced(Exception):
    """The process would be another program by now."""


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, prog_name="pykoclaw-acp")


def replaced(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[str, list[str]]:
    """Path and words of the program that `deploy` becomes."""
    seen: list[tuple[str, list[str]]] = []

    def execute(path: str, words: list[str]) -> None:
        seen.append((path, words))
        raise Replaced

    monkeypatch.setattr(os, "execv", execute)
    result = run("deploy", *arguments)
    assert isinstance(result.exception, Replaced), result.output
    return seen[0]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This program, on the PATH, with a shell."""
    made = tmp_path / "bin" / deploy.PROGRAM
    made.parent.mkdir()
    for path in (made, made.with_name("sh")):
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", str(made.parent))
    return made


def test_deploy_runs_the_installer(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, words = replaced(monkeypatch, "install")
    assert path == str(program.with_name("sh"))
    assert Path(words[1]).is_file()
    assert (words[0], Path(words[1]).name, words[2:]) == ("sh", "install.sh", [])
    _, more = replaced(
        monkeypatch, "install", "--system", "--program", "/opt/x", "--profile", "pykoclaw"
    )
    assert more[2:] == ["--system", "--program", "/opt/x", "--profile", "pykoclaw"]
    assert replaced(monkeypatch, "remove")[1][2:] == ["--uninstall"]
    assert replaced(monkeypatch, "remove", "--system")[1][2:] == ["--system", "--uninstall"]
    assert run("deploy", "install", "--profile", "neither").exit_code == 2


def test_installer_is_told_program_outside_path(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = program.rename(tmp_path / deploy.PROGRAM)
    monkeypatch.setattr(sys, "argv", [str(elsewhere)])
    assert replaced(monkeypatch, "install")[1][2:] == ["--program", str(elsewhere)]
    monkeypatch.setattr(sys, "argv", [str(elsewhere.rename(tmp_path / "python"))])
    assert replaced(monkeypatch, "install")[1][2:] == []


def test_an_installed_package_brings_its_installer(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Path(pykoclaw_acp.__file__).with_name("units") == deploy.IN_WHEEL  # see test_wheel.py
    units = tmp_path / "units"
    monkeypatch.setattr(deploy, "IN_WHEEL", units)
    units.mkdir()
    result = run("deploy", "install")
    assert (result.exit_code, "Install pykoclaw-acp anew" in result.stderr) == (1, True)
    (units / "install.sh").touch()
    assert replaced(monkeypatch, "install")[1][1] == str(units / "install.sh")


@pytest.fixture
def cli_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What Claude's CLI, which fails for the account `broken`, was called with."""
    calls, path = tmp_path / "calls", tmp_path / "claude"
    path.write_text(
        f'#!/bin/sh\necho "$* $CLAUDE_CONFIG_DIR" >> {calls}\n'
        f'[ "$PWD" = / ] || echo "in $PWD, whose settings would act" >> {calls}\n'
        'case "$CLAUDE_CONFIG_DIR" in */broken) exit 4 ;; esac\n'
    )
    path.chmod(0o755)
    monkeypatch.setenv("PYKOCLAW_CLI_PATH", str(path))
    monkeypatch.setenv("PYKOCLAW_ACCOUNTS", str(tmp_path / "accounts"))
    monkeypatch.delenv("CLAUDE_CONFIG_DIR", raising=False)
    return calls


def test_logout_is_claudes_for_the_account(cli_calls: Path, tmp_path: Path) -> None:
    result = run("logout")
    assert (result.exit_code, cli_calls.read_text()) == (0, "auth logout \n")
    assert result.stdout.startswith("Logged out: account default.")
    accounts = tmp_path / "accounts"
    unknown = run("logout", "--account", "work")
    assert unknown.exit_code == 1
    assert f"There is no account work: {accounts / 'work'} does not exist." in unknown.stderr
    assert not accounts.exists()
    assert run("logout", "--account", "../x").exit_code == 1
    assert len(cli_calls.read_text().splitlines()) == 1
    for name in ("work", "broken"):
        (accounts / name).mkdir(parents=True)
    assert "Logged out: account work." in run("logout", "--account", "work").stdout
    broken = run("logout", "--account", "broken")
    assert (broken.exit_code, broken.stdout) == (4, "")
    assert "Claude's logout has ended with status 4." in broken.stderr
    said = [f"auth logout {accounts / name}" for name in ("work", "broken")]
    assert cli_calls.read_text().splitlines()[1:] == said


def test_login_that_fails_leaves_no_account(
    cli_calls: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accounts, cli = tmp_path / "accounts", cli_calls.with_name("claude")
    assert run("login", "--account", "broken").exit_code == 4
    assert not (accounts / "broken").exists()
    kept = accounts / "broken/settings.json"
    kept.parent.mkdir(0o700)
    kept.write_text("{}")
    assert run("login", "--account", "broken").exit_code == 4
    assert kept.exists(), "that account was there before"
    cli.unlink()
    assert "Claude's CLI does not run" in run("login", "--account", "none").stderr
    assert not (accounts / "none").exists()

    def interrupted(*_: object, env: dict[str, str], **__: object) -> None:
        Path(env["CLAUDE_CONFIG_DIR"], ".claude.json").touch()
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "run", interrupted)
    assert run("login", "--account", "ended").exit_code == 130
    assert not (accounts / "ended").exists()


def test_login_is_kept_wherever_claude_keeps_it(cli_calls: Path, tmp_path: Path) -> None:
    """With a status that is not 0, too, if it is in the directory."""
    assert run("login", "--account", "keychain").exit_code == 0
    cli_calls.with_name("claude").write_text(
        '#!/bin/sh\necho \'{"claudeAiOauth": {}}\' > "$CLAUDE_CONFIG_DIR/.credentials.json"\nexit 1\n'
    )
    assert run("login", "--account", "late").exit_code == 1
    kept = sorted(one.name for one in (tmp_path / "accounts").iterdir())
    assert kept == ["keychain", "late"]


def test_logout_without_a_cli_says_so(cli_calls: Path) -> None:
    cli_calls.with_name("claude").unlink()
    result = run("logout")
    assert (result.exit_code, "Claude's CLI does not run" in result.stderr) == (1, True)
