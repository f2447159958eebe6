from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from pykoclaw_acp import __version__
from pykoclaw_acp.__main__ import main
from pykoclaw_acp.cli import cli, fresh
from pykoclaw_acp.errors import DataDirectoryLocked
from pykoclaw_acp.plugin import AcpPlugin

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.fixture(autouse=True)
def empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, prog_name="pykoclaw-acp")


def put_module(monkeypatch: pytest.MonkeyPatch, name: str, **attributes: Any) -> None:
    """Let `name` be a module with these attributes, whether it can be imported or not."""
    module = ModuleType(name)
    module.__dict__.update(attributes)
    package, _, last = name.rpartition(".")
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(importlib.import_module(package), last, module, raising=False)


class ForkServer:
    """Stands for one that was started early."""

    def __init__(self, *, resident: bool) -> None:
        self.resident = resident
        self.ended = False

    def end(self) -> None:
        self.ended = True


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[ForkServer]:
    """The fork servers that the commands start, without a process."""
    started: list[ForkServer] = []

    def begin_early(*, resident: bool) -> ForkServer:
        started.append(ForkServer(resident=resident))
        return started[-1]

    monkeypatch.setattr("pykoclaw_acp.pool.forkserver_process.begin_early", begin_early)
    return started


def test_command_given_without_group_is_named_with_it() -> None:
    exported, listed = run("export", "x"), run("list", "--help")
    assert (exported.exit_code, listed.exit_code) == (2, 2)
    assert "Did you mean 'sessions export'?" in exported.output
    assert "'sessions list' or 'tasks list'" in listed.output
    assert "No such command 'nothing'" in run("nothing").output


def test_without_a_command_it_is_the_front(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykoclaw_acp.front.process.run", lambda: 7)
    assert CliRunner().invoke(cli).exit_code == 7


def test_version_option_prints_version() -> None:
    assert run("--version").stdout.split()[-1] == __version__


@pytest.mark.parametrize("command", ["serve", "config", "demo"])
def test_each_command_has_help(command: str) -> None:
    result = run(command, "--help")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) > 5


@pytest.mark.parametrize(("arguments", "module"), [((), "daemon"), (("--stdio",), "stdio")])
def test_serve_uses_settings_and_exits_with_server_code(
    arguments: tuple[str, ...],
    module: str,
    monkeypatch: pytest.MonkeyPatch,
    begun: list[ForkServer],
) -> None:
    seen = []

    def server(settings: Any, early: ForkServer) -> int:
        assert (begun, early.resident) == ([early], module == "daemon")
        # The daemon reads them itself, so that it can tell the client that has started it what is
        # wrong.
        seen.append((settings() if module == "daemon" else settings).idle_timeout)
        return 7

    put_module(monkeypatch, f"pykoclaw_acp.server.{module}", main=server)
    monkeypatch.setenv("PYKOCLAW_IDLE_TIMEOUT", "42")
    assert run("serve", *arguments).exit_code == 7
    assert seen == [42.0]
    assert not begun[0].ended


def test_start_error_gives_message_and_exit_code(
    monkeypatch: pytest.MonkeyPatch, begun: list[ForkServer]
) -> None:
    def server(settings: Any, early: ForkServer) -> int:
        raise DataDirectoryLocked("Process 12 serves this directory.")

    put_module(monkeypatch, "pykoclaw_acp.server.stdio", main=server)
    result = run("serve", "--stdio")
    assert (result.exit_code, result.stdout) == (75, "")
    assert result.stderr == "pykoclaw-acp: Process 12 serves this directory.\n"
    assert begun[0].ended


def test_a_bad_setting_stops_the_program_with_78(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYKOCLAW_IDLE_TIMEOUT", "soon")
    result = run("config")
    assert (result.exit_code, result.stdout) == (78, "")
    assert "PYKOCLAW_IDLE_TIMEOUT is 'soon'" in result.stderr


def test_config_shows_each_setting_with_value_and_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("PYKOCLAW_MODEL=opus\n")
    assert "./.env is not read" in run("config").stderr
    monkeypatch.setenv("PYKOCLAW_WORKSPACE_TRUST", "off")
    monkeypatch.setenv("PYKOCLAW_SETTING_SOURCES", "user,local")
    shown = run("config").stdout.splitlines()
    assert f"PYKOCLAW_MODEL=opus  [{tmp_path / '.env'}]" in shown
    assert "PYKOCLAW_SETTING_SOURCES=user,local  [environment]" in shown
    assert "PYKOCLAW_CLI_PATH=(none)  [default]" in shown


def test_config_as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYKOCLAW_MAX_WORKERS", "3")
    lines = {line["name"]: line for line in json.loads(run("config", "--json").stdout)}
    assert lines["max_workers"]["value"] == 3
    assert lines["max_workers"]["source"] == "environment"
    assert lines["max_workers"]["env"] == "PYKOCLAW_MAX_WORKERS"
    assert lines["max_workers"]["description"]


@pytest.mark.parametrize("code", [0, 1])
def test_demo_exits_with_what_the_story_returns(code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    put_module(monkeypatch, "pykoclaw_acp.demo.story", main=lambda: code)
    assert run("demo").exit_code == code


def test_demo_without_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = run("demo")
    assert result.exit_code == 1
    assert "extra `demo`" in result.stderr


def test_the_scripted_model_gets_all_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def program(arguments: list[str], called: str) -> int:
        seen.extend([called, *arguments])
        return 3

    put_module(monkeypatch, "pykoclaw_acp.scripted_model.__main__", main=program)
    assert run("scripted-model", "--port", "0", "--help", "x").exit_code == 3
    assert seen == ["pykoclaw-acp scripted-model", "--port", "0", "--help", "x"]


def test_scripted_models_help_names_command_that_was_typed() -> None:
    shown = run("scripted-model", "--help").stdout
    assert shown.startswith("usage: pykoclaw-acp scripted-model [-h]")
    assert "Run a local Messages API" in shown
    assert "python" not in shown


@pytest.mark.parametrize(("platform", "machine"), [("darwin", "x86_64"), ("linux", "riscv64")])
def test_elsewhere_than_on_linux_it_says_so(
    platform: str, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setattr("os.uname", lambda: type("Uname", (), {"machine": machine}))
    result = run("config")
    assert result.exit_code == 1
    assert f"this is {platform} on {machine}" in result.stderr


@pytest.mark.parametrize(
    "options", [("--allow", "--deny"), ("--allow", "--always"), ("--deny", "--always")]
)
def test_one_answer_at_a_time(options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def call(*_: Any, **__: Any) -> None:
        raise AssertionError("nothing may be answered")

    monkeypatch.setattr("pykoclaw_acp.front.call.call", call)
    result = run("approve", "5e55", *options)
    assert result.exit_code == 2
    assert "one of --allow, --always, --lasting, --former, --deny and --answer" in result.stderr


def test_the_console_script_of_the_project_is_main() -> None:
    (name,) = PROJECT["scripts"]
    assert EntryPoint(name, PROJECT["scripts"][name], "console_scripts").load() is main


BELOW_PYKOCLAW = """
import sys

sys.modules["pysqlite3"] = None  # cannot be imported
import click, sqlite3
from pykoclaw_acp.plugin import AcpPlugin

pykoclaw = click.Group()
AcpPlugin().register_commands(pykoclaw)
print("A plugin was loaded.")
pykoclaw(prog_name="pykoclaw")
"""


def test_nothing_runs_beside_loaded_plugins() -> None:
    """Also where there is one SQLite library only; what was printed is gone with the interpreter."""
    shown = subprocess.run(
        [sys.executable, "-c", BELOW_PYKOCLAW, "acp", "--version"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": ""},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert shown.stdout == f"pykoclaw-acp, version {__version__}\n"


def test_pykoclaw_finds_plugin_and_adds_acp_command(monkeypatch: pytest.MonkeyPatch) -> None:
    ((name, value),) = PROJECT["entry-points"]["pykoclaw.plugins"].items()
    plugin = EntryPoint(name, value, "pykoclaw.plugins").load()()
    assert isinstance(plugin, AcpPlugin)

    @click.group()
    def pykoclaw() -> None: ...

    plugin.register_commands(pykoclaw)
    renewed: list[list[str]] = []
    monkeypatch.setattr(fresh, "renew", renewed.append)
    monkeypatch.setenv("PYKOCLAW_MAX_WORKERS", "0")
    result = CliRunner().invoke(pykoclaw, ["acp", "config"])
    assert (result.exit_code, renewed) == (78, [["config"]])
    assert "PYKOCLAW_MAX_WORKERS is '0'" in result.stderr
    assert plugin.get_mcp_servers(None, "acp-1") == {}
    assert plugin.get_db_migrations() == []
    monkeypatch.setenv("PYKOCLAW_MAX_WORKERS", "5")
    assert plugin.get_config_class()().max_workers == 5
