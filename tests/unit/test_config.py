from __future__ import annotations

import errno
import os
import pwd
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from pykoclaw_acp.cli import cli
from pykoclaw_acp.config import dotenv, listing, loading, unknown
from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.errors import ConfigurationError, DaemonNotRunning
from pykoclaw_acp.front import call as front
from pykoclaw_acp.link import places
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.system import environment
from tests.trusting import trust_dotenv


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, where `./.env` would be."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def source(settings: Settings, name: str) -> str:
    return next(line.source for line in listing.describe(settings) if line.name == name)


def test_defaults_are_those_that_the_documentation_promises(empty_home: Path) -> None:
    settings = loading.load()
    assert settings.data == empty_home / ".local/share/pykoclaw"
    assert settings.state == empty_home / ".local/state/pykoclaw"
    assert settings.model is None
    assert settings.cli_path is None
    assert settings.idle_timeout == 1800
    assert settings.permission_mode == "default"
    assert settings.setting_sources == ("user", "project", "local")
    assert settings.permission_timeout is None
    assert {line.source for line in listing.describe(settings)} == {"default"}


def test_environment_beats_directory_file_which_beats_home_file(
    empty_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home_file = write(
        empty_home / ".local/share/pykoclaw/.env",
        "PYKOCLAW_MODEL=home\nPYKOCLAW_MAX_WORKERS=3\nPYKOCLAW_IDLE_TIMEOUT=7\nPYKOCLAW_FUTURE=1\nOTHER=1\n",
    )
    here_file = write(
        tmp_path / ".env", "PYKOCLAW_MODEL=here\nPYKOCLAW_MAX_WORKERS=4\ndata=/elsewhere\n"
    )
    trust_dotenv(empty_home / ".local/share/pykoclaw", tmp_path)
    monkeypatch.setenv("PYKOCLAW_MODEL", "environment")
    settings = loading.load()
    assert (settings.model, source(settings, "model")) == ("environment", "environment")
    assert (settings.max_workers, source(settings, "max_workers")) == (4, str(here_file))
    assert (settings.idle_timeout, source(settings, "idle_timeout")) == (7, str(home_file))
    assert source(settings, "data") == "default"


@pytest.mark.parametrize("name", ["data#1", "data?x=1", "data%41", "dätä b"])
def test_trust_counts_wherever_the_data_are(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / ".env", "PYKOCLAW_MODEL=here\n")
    trust_dotenv(tmp_path / name, tmp_path)
    monkeypatch.setenv("PYKOCLAW_DATA", str(tmp_path / name))
    assert loading.load().model == "here"


def test_an_empty_value_is_unset_at_every_level(
    empty_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / ".env", "PYKOCLAW_MODEL=opus\nPYKOCLAW_IDLE_TIMEOUT=\n")
    trust_dotenv(empty_home / ".local/share/pykoclaw", tmp_path)
    monkeypatch.setenv("PYKOCLAW_MODEL", "")
    settings = loading.load()
    assert settings.model == "opus"
    assert (settings.idle_timeout, source(settings, "idle_timeout")) == (1800, "default")


@pytest.mark.parametrize(
    ("text", "path"),
    [("~/claw", "HOME/claw"), ("relative/x", "HERE/relative/x"), ("/a/../b", "/b")],
)
def test_paths_are_expanded_and_absolute(
    text: str, path: str, empty_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYKOCLAW_DATA", text)
    assert str(loading.load().data) == path.replace("HOME", str(empty_home)).replace(
        "HERE", str(tmp_path)
    )


def test_a_relative_xdg_state_home_is_ignored(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/var/state")
    assert loading.load().state == Path("/var/state/pykoclaw")
    monkeypatch.setenv("XDG_STATE_HOME", "state")
    assert loading.load().state == empty_home / ".local/state/pykoclaw"


def test_cli_setting_takes_name_or_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = write(tmp_path / "bin/claude", "")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    monkeypatch.setenv("PYKOCLAW_CLI_PATH", "claude")
    assert loading.load().cli_path == program
    monkeypatch.setenv("PYKOCLAW_CLI_PATH", "./bin/claude")
    assert loading.load().cli_path == program
    monkeypatch.setenv("PYKOCLAW_CLI_PATH", "claud")
    with pytest.raises(ConfigurationError, match=r"PYKOCLAW_CLI_PATH is 'claud' .* on PATH"):
        loading.load()


@pytest.mark.parametrize(
    ("text", "sources"),
    [("local, user", ("user", "local")), ("user,user,", ("user",)), ("none", ()), ("None", ())],
)
def test_setting_sources_are_a_comma_separated_list(
    text: str, sources: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYKOCLAW_SETTING_SOURCES", text)
    assert loading.load().setting_sources == sources


@pytest.mark.parametrize(("text", "seconds"), [("none", None), ("90", 90.0)])
def test_a_question_may_wait_without_limit(
    text: str, seconds: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYKOCLAW_PERMISSION_TIMEOUT", text)
    assert loading.load().permission_timeout == seconds


@pytest.mark.parametrize(
    ("env", "value", "allowed"),
    [
        ("PYKOCLAW_IDLE_TIMEOUT", "0", "above 0"),
        ("PYKOCLAW_IDLE_TIMEOUT", "inf", "finite"),
        ("PYKOCLAW_MAX_WORKERS", "none", "at least 1"),
        ("PYKOCLAW_PERMISSION_MODE", "yolo", "acceptEdits"),
        ("PYKOCLAW_PERMISSION_TIMEOUT", "-1", "none for no limit"),
        ("PYKOCLAW_SETTING_SOURCES", "managed", "user, project, local"),
        ("PYKOCLAW_LOG_LEVEL", "loud", "warning"),
        ("PYKOCLAW_UMASK", "1777", "octal"),
        ("PYKOCLAW_UMASK", "8", "octal"),
        ("PYKOCLAW_LOG_FORMAT", "xml", "console"),
        ("PYKOCLAW_DATA", "~nobody-has-this-name/x", "absolute"),
    ],
)
def test_a_bad_value_is_explained(
    env: str, value: str, allowed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(env, value)
    with pytest.raises(ConfigurationError) as caught:
        loading.load()
    message = str(caught.value)
    assert message.startswith(f"{env} is {value!r} (from environment)")
    assert allowed in message
    assert caught.value.exit_code == 78


def test_each_bad_value_is_named_with_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / ".env", "PYKOCLAW_STALL_TIMEOUT=soon\n")
    monkeypatch.setenv("PYKOCLAW_WORKSPACE_TRUST", "off")
    monkeypatch.setenv("PYKOCLAW_MAX_WORKERS", "0")
    with pytest.raises(ConfigurationError) as caught:
        loading.load()
    workers, stall = str(caught.value).splitlines()
    assert workers.startswith("PYKOCLAW_MAX_WORKERS is '0' (from environment)")
    assert stall.startswith(f"PYKOCLAW_STALL_TIMEOUT is 'soon' (from {path})")


def test_secret_value_never_appears_in_output_or_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (listing, loading):
        monkeypatch.setattr(module, "looks_secret", lambda name: name == "max_workers")
    monkeypatch.setenv("PYKOCLAW_MAX_WORKERS", "hunter2")
    with pytest.raises(ConfigurationError) as caught:
        loading.load()
    assert "hunter2" not in str(caught.value)
    monkeypatch.setenv("PYKOCLAW_MAX_WORKERS", "77")
    assert "77" not in {str(line.value) for line in listing.describe(loading.load())}


def test_a_file_that_is_no_text_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYKOCLAW_WORKSPACE_TRUST", "off")
    (tmp_path / ".env").write_bytes(b"PYKOCLAW_MODEL=\xff\n")
    with pytest.raises(ConfigurationError, match=r"\.env cannot be read: it is not UTF-8"):
        loading.load()


def test_shown_settings_have_descriptions_and_crash_points_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYKOCLAW_CRASH_AT", "after_commit")
    settings = loading.load()
    assert settings.crash_points == "after_commit"
    lines = listing.describe(settings)
    assert all(line.description.endswith(".") and "\n" not in line.description for line in lines)
    assert "crash_points" not in {line.name for line in lines}
    assert {line.env for line in lines} >= {"PYKOCLAW_DATA", "PYKOCLAW_CANCEL_GRACE"}


def test_whole_numbers_are_shown_without_fraction(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYKOCLAW_CANCEL_GRACE", "2.5")
    values = {line.name: line.value for line in listing.describe(loading.load())}
    assert (str(values["idle_timeout"]), str(values["cancel_grace"])) == ("1800", "2.5")


def unknown_names() -> list[tuple[str, str | None]]:
    """Without those of the test run itself."""
    return [one for one in unknown.unknown() if not one[0].startswith("PYKOCLAW_TEST_")]


def test_variables_that_are_no_setting_are_found(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(empty_home / ".local/share/pykoclaw/.env", "PYKOCLAW_TYPO=1\nOTHER=1\n")
    for name in (
        "PYKOCLAW_MODLE",
        "pykoclaw_idle_timeout",
        "PYKOCLAW_WA_TRIGGER_NAME",
        "PYKOCLAW_ACP_LOG_LEVEL",
        "PYKOCLAW_DAEMON_TIMEOUT",
        "PYKOCLAW_WORKER",
        "PYKOCLAW_PROFILE",
    ):
        monkeypatch.setenv(name, "editor")
    monkeypatch.setenv("PYKOCLAW_EMPTY", "")
    assert unknown_names() == [("PYKOCLAW_MODLE", "PYKOCLAW_MODEL"), ("PYKOCLAW_TYPO", None)]


@pytest.mark.parametrize("name", sorted(environment.NOT_COMPARED - environment.SETTINGS))
def test_own_variables_are_never_called_unknown(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    assert unknown_names() == []


@pytest.mark.parametrize("name", ["PYKOCLAW_MODEL", "PYKOCLAW_CLI_PATH", "BRAVE_API_KEY"])
def test_setting_out_of_utf8_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "/home/jos\udce9")
    with pytest.raises(ConfigurationError, match=f"{name} is .*: it is not valid UTF-8"):
        loading.load()


def test_untrusted_directory_env_file_is_not_read(empty_home: Path, tmp_path: Path) -> None:
    file = write(tmp_path / ".env", "PYKOCLAW_MODEL=opus\nPYKOCLAW_WORKSPACE_TRUST=off\nOTHER=1\n")
    assert loading.load().model is None
    assert dotenv.unread() == ["PYKOCLAW_MODEL", "PYKOCLAW_WORKSPACE_TRUST"]
    trust_dotenv(empty_home / ".local/share/pykoclaw", tmp_path)
    assert loading.load().model == "opus"
    assert dotenv.unread() == []
    file.write_text("PYKOCLAW_MODEL=sonnet\n")  # another content is not what was trusted
    assert loading.load().model is None


COMMANDS = ("status", "sessions list", "workers list", "tasks list", "approve", "restart", "config")


def test_trusted_directory_file_counts_for_all_but_trust(
    empty_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / ".env", f"PYKOCLAW_DATA={tmp_path}/data\n")
    default = str(empty_home / ".local/share/pykoclaw")
    asked: list[str] = []

    def call(where: Places, *_: object, **__: object) -> None:
        asked.append(where.data)
        raise ConnectionError

    monkeypatch.setattr(front, "call", call)

    def data_of(command: str) -> str:
        places.use({})
        monkeypatch.chdir(tmp_path)  # `restart` leaves it
        result = CliRunner().invoke(cli, command.split(), prog_name="pykoclaw-acp")
        if command == "config":
            return next(line for line in result.output.splitlines() if "PYKOCLAW_DATA" in line)
        assert asked, result.output
        return asked.pop()

    for command in COMMANDS:
        assert f"{tmp_path}/data" not in data_of(command)
    trust_dotenv(empty_home / ".local/share/pykoclaw", tmp_path)
    for command in COMMANDS:
        assert f"{tmp_path}/data" in data_of(command)
    assert data_of("trust list") == default
    monkeypatch.setenv("PYKOCLAW_DATA", f"{tmp_path}/own")
    assert data_of("status") == f"{tmp_path}/own"
    places.use({})
    monkeypatch.delenv("PYKOCLAW_DATA")
    assert Places.find().data == default, "a client's front reads none"


def test_restart_examines_settings_of_next_daemon(empty_home: Path, tmp_path: Path) -> None:
    home = empty_home / ".local/share/pykoclaw"
    here = write(tmp_path / ".env", "PYKOCLAW_MAX_WORKERS=banana\n")
    trust_dotenv(home, tmp_path)

    def status() -> int:
        return CliRunner().invoke(cli, ["restart"], prog_name="pykoclaw-acp").exit_code

    assert status() == DaemonNotRunning.exit_code
    here.write_text("PYKOCLAW_MAX_WORKERS=7\n")
    trust_dotenv(home, tmp_path)
    write(home / ".env", "PYKOCLAW_MAX_WORKERS=banana\n")
    assert status() == ConfigurationError.exit_code


def test_restart_needs_no_way_back(empty_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in another user's directory, which may not be entered."""
    entered: list[object] = []
    monkeypatch.setattr(os, "chdir", entered.append)
    CliRunner().invoke(cli, ["restart"], prog_name="pykoclaw-acp")
    assert entered == ["/"]


@pytest.mark.parametrize("command", [*COMMANDS, "doctor", "logs", "serve", "stop"])
def test_absent_home_is_named_by_every_command(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a user that the system does not know, in a container."""
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(pwd, "getpwuid", {}.__getitem__)
    result = CliRunner().invoke(cli, command.split(), prog_name="pykoclaw-acp")
    assert (result.exit_code, result.stderr) == (
        ConfigurationError.exit_code,
        f"pykoclaw-acp: {dotenv.NO_HOME}\n",
    )


def test_unreadable_env_file_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ".env")
    assert loading.load().model is None
    assert dotenv.unread() == []


def test_data_directory_from_unread_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / ".env", f"PYKOCLAW_DATA={tmp_path}/data\n")
    with pytest.raises(ConfigurationError, match="trust add"):
        dotenv.require_own_data()
    monkeypatch.setenv("PYKOCLAW_DATA", str(tmp_path / "own"))
    dotenv.require_own_data()


# --- settings of pykoclaw's users


def test_the_profile_sets_what_is_not_set(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(empty_home / ".local/share/pykoclaw/.env", "PYKOCLAW_PROFILE=Pykoclaw\n")
    settings = loading.load()
    assert (settings.profile, settings.permission_mode) == ("pykoclaw", "bypassPermissions")
    assert settings.setting_sources == ("project",)
    assert source(settings, "permission_mode") == "profile pykoclaw"
    assert source(settings, "model") == "default"
    monkeypatch.setenv("PYKOCLAW_PERMISSION_MODE", "plan")
    settings = loading.load()
    assert (settings.permission_mode, source(settings, "permission_mode")) == (
        "plan",
        "environment",
    )
    assert settings.setting_sources == ("project",)
    monkeypatch.setenv("PYKOCLAW_PROFILE", "editor")  # the environment is the stronger one
    settings = loading.load()
    assert (settings.profile, settings.setting_sources) == ("editor", ("user", "project", "local"))
    monkeypatch.setenv("PYKOCLAW_PROFILE", "whatsapp")
    with pytest.raises(ConfigurationError, match="PYKOCLAW_PROFILE is 'whatsapp'"):
        loading.load()


def test_earlier_plugins_own_log_level_wins(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(empty_home / ".local/share/pykoclaw/.env", "PYKOCLAW_ACP_LOG_LEVEL=ERROR\n")
    assert loading.load().log_level == "info"  # it counts from the environment only
    monkeypatch.setenv("PYKOCLAW_LOG_LEVEL", "CRITICAL")  # the WhatsApp bot's word
    assert loading.load().log_level == "error"
    monkeypatch.setenv("PYKOCLAW_ACP_LOG_LEVEL", "Debug")
    settings = loading.load()
    assert settings.log_level == "debug"
    assert source(settings, "log_level") == "environment, PYKOCLAW_ACP_LOG_LEVEL"
    monkeypatch.setenv("PYKOCLAW_ACP_LOG_LEVEL", "loud")
    with pytest.raises(ConfigurationError, match="environment, PYKOCLAW_ACP_LOG_LEVEL"):
        loading.load()


def test_an_agent_is_not_taken_for_claudes_cli(monkeypatch: pytest.MonkeyPatch) -> None:
    for agent in ("pykoclaw", "/opt/pykoclaw/bin/pykoclaw", "./pykoclaw-acp"):
        monkeypatch.setenv("PYKOCLAW_CLI_PATH", agent)
        assert loading.load().cli_path is None


def test_empty_data_directory_never_means_working_directory(
    empty_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home_file = write(empty_home / ".local/share/pykoclaw/.env", f"PYKOCLAW_DATA={tmp_path}/data\n")
    monkeypatch.setenv("PYKOCLAW_DATA", "")
    assert (str(loading.load().data), Places.find().data) == (f"{tmp_path}/data",) * 2
    home_file.write_text("PYKOCLAW_DATA=\n")
    default = str(empty_home / ".local/share/pykoclaw")
    assert (str(loading.load().data), Places.find().data) == (default,) * 2


def test_two_meanings_of_the_data_directory_are_refused(
    empty_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pykoclaw takes `~` for the name of a directory: with a database there, nobody can say which
    one is meant.
    """
    monkeypatch.setenv("PYKOCLAW_DATA", "~/claw")
    assert loading.load().data == empty_home / "claw"
    assert Places.find().data == str(empty_home / "claw")
    write(tmp_path / "~/claw/pykoclaw.db", "")
    for read in (loading.load, Places.find):
        with pytest.raises(ConfigurationError, match="full path") as caught:
            read()
        assert str(tmp_path / "~/claw") in str(caught.value)
        assert str(empty_home / "claw") in str(caught.value)


def test_unread_file_is_named_with_reason(empty_home: Path, tmp_path: Path) -> None:
    assert dotenv.why_unread() is None
    file = write(tmp_path / ".env", "PYKOCLAW_MODEL=opus\n")
    said = dotenv.why_unread()
    assert said is not None
    assert str(file) in said
    assert "not trusted: PYKOCLAW_MODEL" in said
    trust_dotenv(empty_home / ".local/share/pykoclaw", tmp_path)
    assert dotenv.why_unread() is None
    file.write_bytes(b"PYKOCLAW_MODEL=\xff\n")
    assert "not UTF-8" in (dotenv.why_unread() or "")
    file.unlink()
    file.mkdir()
    assert "it is not a file" in (dotenv.why_unread() or "")
    file.rmdir()
    at_home = empty_home / dotenv.IN_HOME
    os.mkfifo(at_home)
    assert dotenv.why_unread() == f"{at_home} is not read: it is not a file"


def test_unseeable_env_is_left_alone(
    empty_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who reads it says why."""
    monkeypatch.chdir(tmp_path)
    at_home, stat = empty_home / dotenv.IN_HOME, os.stat

    def refusing(path: Any, **more: Any) -> os.stat_result:
        if str(path) == str(at_home):
            raise PermissionError(errno.EACCES, "Permission denied")
        return stat(path, **more)

    monkeypatch.setattr(os, "stat", refusing)
    assert dotenv.why_unread() is None


def test_a_choice_is_explained_in_plain_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYKOCLAW_PROFILE", "x")
    with pytest.raises(ConfigurationError, match="must be editor or pykoclaw"):
        loading.load()


def test_beginnings_of_helper_prompts_are_not_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYKOCLAW_HELPER_PROMPTS", " You are a writer, too. | Rate this answer |")
    assert Settings().helper_prompts == ("You are a writer, too.", "Rate this answer")
    monkeypatch.setenv("PYKOCLAW_HELPER_PROMPTS", "none")
    assert Settings().helper_prompts == ()
    monkeypatch.setenv("PYKOCLAW_HELPER_PROMPTS", "You are")
    with pytest.raises(ValidationError, match="at least 12 characters"):
        Settings()
