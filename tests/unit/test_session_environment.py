"""Which account, and which environment, a session's worker gets."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from pykoclaw_acp.config import dotenv, sources
from pykoclaw_acp.config.session_environment import others, own_variables
from pykoclaw_acp.config.settings import Settings
from pykoclaw_acp.errors import ConfigurationError
from pykoclaw_acp.model import session_environment as rules
from pykoclaw_acp.model.session_environment import (
    ClientEnvironment,
    DaemonEnvironment,
    StoredEnvironment,
)
from pykoclaw_acp.system import environment as names

KEY = {"ANTHROPIC_API_KEY": "sk-of-the-client"}
OWN = {"ANTHROPIC_API_KEY": "sk-of-the-daemon", "HTTPS_PROXY": "http://ours:1"}
DAEMON = DaemonEnvironment("", "/accounts", OWN)


def given(account: str | None = None, **variables: str) -> ClientEnvironment:
    return ClientEnvironment(account=account, variables=variables)


def test_a_clients_environment_goes_before_the_daemons() -> None:
    client = given(**KEY, MAX_THINKING_TOKENS="1")
    kept = rules.begin(DAEMON, "", client)
    found = rules.environment(DAEMON, kept, client)
    assert found.variables == {**KEY, "MAX_THINKING_TOKENS": "1", "HTTPS_PROXY": "http://ours:1"}
    assert not found.own_credential
    nothing = rules.environment(DAEMON, StoredEnvironment(), given())
    assert (nothing.variables, nothing.own_credential) == (OWN, True)


def test_what_is_stored_holds_no_secret() -> None:
    client = given(
        **KEY, ANTHROPIC_BASE_URL="https://gateway", HTTPS_PROXY="http://me:word@proxy:1"
    )
    kept = rules.begin(DAEMON, "", client)
    assert kept.variables == {"ANTHROPIC_BASE_URL": "https://gateway"}
    assert kept.secrets == ("ANTHROPIC_API_KEY", "HTTPS_PROXY")


def test_no_other_credential_replaces_the_clients() -> None:
    kept = rules.begin(DAEMON, "", given(**KEY))
    for there in (None, given(), given(ANTHROPIC_BASE_URL="https://gateway"), given("work", **KEY)):
        assert rules.opened(DAEMON, kept, there) == kept
        found = rules.environment(DAEMON, kept, there)
        assert "ANTHROPIC_API_KEY" in found.withheld
        assert (dict(found.variables), found.own_credential) == ({}, False)


def test_gateway_with_key_in_its_path_is_enough() -> None:
    client = given(ANTHROPIC_BASE_URL="https://gateway/v1/sk-of-the-client")
    kept = rules.begin(DAEMON, "", client)
    assert (kept.variables, kept.secrets) == ({}, ("ANTHROPIC_BASE_URL",))
    found = rules.environment(DAEMON, kept, client)
    assert (found.withheld, found.variables["ANTHROPIC_BASE_URL"]) == (
        "",
        "https://gateway/v1/sk-of-the-client",
    )
    assert rules.environment(DAEMON, kept, None).withheld


def test_the_daemons_own_key_needs_no_client() -> None:
    """A client that gives the daemon's own key adds nothing that would be missing without it."""
    kept = rules.begin(DAEMON, "", given(ANTHROPIC_API_KEY="sk-of-the-daemon"))
    assert kept.secrets == ()
    assert (
        rules.environment(DAEMON, kept, None).variables["ANTHROPIC_API_KEY"] == "sk-of-the-daemon"
    )


GATEWAY = {"ANTHROPIC_BASE_URL": "https://gateway"}


def test_daemons_own_key_keeps_its_address() -> None:
    proxies = {"HTTPS_PROXY": "http://me:word@proxy:1", "NO_PROXY": "here"}
    own = {**OWN, **GATEWAY, **proxies}
    daemon_environment = DaemonEnvironment("", "/accounts", own)
    kept = rules.begin(daemon_environment, "", given(**own))
    assert kept == StoredEnvironment()
    assert rules.environment(daemon_environment, kept, None).variables == own


def test_client_without_key_never_gets_the_daemons() -> None:
    """Also after it has left: a session of its own login stays with that."""
    daemon_environment = DaemonEnvironment("", "/accounts", {**OWN, **GATEWAY})
    client = given(**GATEWAY)
    kept = rules.begin(daemon_environment, "", client)
    for one in (client, None):
        made = rules.environment(daemon_environment, kept, one)
        assert "ANTHROPIC_API_KEY" not in made.variables
        assert not made.own_credential


def test_own_key_goes_to_no_other_address() -> None:
    """A client that has the daemon's key for another address is asked for, as with another key."""
    daemon_environment = DaemonEnvironment("", "/accounts", {**OWN, **GATEWAY})
    theirs = {"ANTHROPIC_BASE_URL": "https://theirs"}
    for address in (theirs, {}):
        client = given(ANTHROPIC_API_KEY="sk-of-the-daemon", **address)
        kept = rules.begin(daemon_environment, "", client)
        assert kept == StoredEnvironment("", address, ("ANTHROPIC_API_KEY",))
        assert (
            dict(rules.environment(daemon_environment, kept, client).variables).items()
            >= client.variables.items()
        )
        assert rules.environment(daemon_environment, kept, None).withheld
    earlier = rules.environment(daemon_environment, StoredEnvironment("", theirs), None)
    assert "ANTHROPIC_API_KEY" not in earlier.variables


def test_client_naming_account_means_its_login() -> None:
    kept = rules.begin(DAEMON, "", given(**KEY))
    named = given("")
    assert rules.opened(DAEMON, kept, named) == StoredEnvironment()
    assert rules.environment(DAEMON, kept, named).variables == OWN


def test_a_key_and_its_gateway_stay_together() -> None:
    gateway = given(ANTHROPIC_BASE_URL="https://theirs")
    found = rules.environment(DAEMON, StoredEnvironment(), gateway)
    assert "ANTHROPIC_API_KEY" not in found.variables
    assert not found.own_credential
    daemon_environment = DaemonEnvironment(
        "", "/accounts", {"ANTHROPIC_BASE_URL": "https://ours", **OWN}
    )
    found = rules.environment(daemon_environment, StoredEnvironment(), given(**KEY))
    assert "ANTHROPIC_BASE_URL" not in found.variables
    without = rules.environment(DAEMON, rules.begin(DAEMON, "", gateway), None)
    assert without.variables["ANTHROPIC_BASE_URL"] == "https://theirs"
    assert "ANTHROPIC_API_KEY" not in without.variables


def test_an_account_has_its_own_credentials_only() -> None:
    client = given(**KEY, HTTPS_PROXY="http://proxy:1")
    kept = rules.begin(DAEMON, "work", client)
    found = rules.environment(DAEMON, kept, client)
    assert found.variables == {
        "CLAUDE_CONFIG_DIR": "/accounts/work",
        "HTTPS_PROXY": "http://proxy:1",
    }
    assert not found.own_credential
    of_work = given("work", **KEY)
    assert (
        rules.environment(DAEMON, kept, of_work).variables["ANTHROPIC_API_KEY"]
        == KEY["ANTHROPIC_API_KEY"]
    )
    daemon_environment = DaemonEnvironment("work", "/accounts", OWN)
    assert (
        rules.environment(daemon_environment, kept, None).variables["ANTHROPIC_API_KEY"]
        == "sk-of-the-daemon"
    )
    assert (
        "ANTHROPIC_API_KEY"
        not in rules.environment(daemon_environment, StoredEnvironment(), None).variables
    )


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-a", "a b", "x" * 65])
def test_an_account_is_the_name_of_a_directory(name: str) -> None:
    assert not rules.is_account(name)


def test_cloud_variables_are_sessions_only_with_the_switch() -> None:
    tools = {"AWS_PROFILE": "mine", "AWS_SECRET_ACCESS_KEY": "s", "ANTHROPIC_API_KEY": ""}
    assert names.of_sessions(tools) == {}
    cloud = {**tools, "CLAUDE_CODE_USE_BEDROCK": "1"}
    assert names.of_one_client(cloud) == set(cloud) - {"ANTHROPIC_API_KEY"}


def test_clients_settings_are_compared_by_meaning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/claude")
    settings = Settings(max_workers=3, hide_channels=("wa", "tg"), umask="0022", data=tmp_path)
    agreeing = {
        "PYKOCLAW_MAX_WORKERS": "03",
        "PYKOCLAW_UMASK": "22",
        "PYKOCLAW_HIDE_CHANNELS": "wa, tg",
        "PYKOCLAW_IDLE_TIMEOUT": "1800.0",
        "PYKOCLAW_PERMISSION_TIMEOUT": "none",
        "PYKOCLAW_UNKNOWN": "x",
        "PYKOCLAW_GROUP": "",
        "CLAUDE_CONFIG_DIR": "/claude",
        "PYKOCLAW_MODEL": "opus",
    }
    assert others(settings, agreeing) == []
    other = {
        "PYKOCLAW_MAX_WORKERS": "many",
        "PYKOCLAW_SCHEDULER": "on",
        "CLAUDE_CONFIG_DIR": "/elsewhere",
    }
    assert others(settings, other) == [
        "CLAUDE_CONFIG_DIR", "PYKOCLAW_MAX_WORKERS", "PYKOCLAW_SCHEDULER",
    ]  # fmt: skip


@pytest.mark.parametrize("name", sorted({*Settings.model_fields} - {"data", "state", "socket"}))
def test_clients_value_of_any_setting_is_understood(tmp_path: Path, name: str) -> None:
    variable = sources.variable(Settings, name)
    for value in ("", "x", "é" * 10_000, "1,2", "-1", "https://example.org/x", "/bin/true", "8-9"):
        assert set(others(Settings(data=tmp_path), {variable: value})) <= {variable}


def test_own_webhook_is_no_other_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = {"PYKOCLAW_NOTIFY": "https://example.org/x", "PYKOCLAW_NOTIFY_SECRET": "S3CRET"}
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    settings = Settings(data=tmp_path)
    assert others(settings, own) == []
    assert others(settings, {"PYKOCLAW_NOTIFY": "https://example.org/y"}) == ["PYKOCLAW_NOTIFY"]


def test_pipe_in_place_of_file_keeps_nobody_waiting(empty_home: Path) -> None:
    at_home = empty_home / dotenv.IN_HOME
    at_home.parent.mkdir(parents=True)
    os.mkfifo(at_home)
    reader = threading.Thread(target=own_variables, daemon=True)
    reader.start()
    reader.join(30)
    if waits := reader.is_alive():
        at_home.write_text("")
    assert not waits


def test_the_daemons_own_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Those of its environment go before the file, a key not without its gateway."""
    for name in names.of_sessions(os.environ):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / ".local/share/pykoclaw/.env"
    file.parent.mkdir(parents=True)
    file.write_text("ANTHROPIC_API_KEY=sk-file\nMCP_TIMEOUT=5\nEDITOR=vi\nPYKOCLAW_MODEL=opus\n")
    assert own_variables() == {"ANTHROPIC_API_KEY": "sk-file", "MCP_TIMEOUT": "5"}
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://gateway")
    assert own_variables() == {"ANTHROPIC_BASE_URL": "https://gateway", "MCP_TIMEOUT": "5"}


def test_expanded_variable_out_of_utf8_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TENANT", "caf\udce9")  # no session has it
    file = tmp_path / ".local/share/pykoclaw/.env"
    file.parent.mkdir(parents=True)
    file.write_text("ANTHROPIC_BASE_URL=http://gateway/${TENANT}\n")
    with pytest.raises(ConfigurationError, match=r"^ANTHROPIC_BASE_URL, .* is not valid UTF-8"):
        own_variables()


def test_own_variable_out_of_utf8_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker could be given it."""
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", "/home/jos\udce9/ca.pem")
    monkeypatch.setenv("EDITOR", "\udce9")  # no session has it
    with pytest.raises(ConfigurationError, match=r"^NODE_EXTRA_CA_CERTS, .* is not valid UTF-8"):
        own_variables()


def test_an_address_may_hold_a_secret() -> None:
    for value in (
        *("http://me:word@proxy:1", "https://gateway/?key=1", "https://gateway/v1/sk-short"),
        "https://gateway/t/0123456789abcdef01234567/anthropic",
    ):
        assert names.is_secret("ANTHROPIC_BASE_URL", value)
    for value in (
        *("http://proxy:1", "https://gateway/v1", "/etc/0123456789abcdef01234567/ca.pem"),
        "https://0123456789abcdef01234567.example/a-name-of-many-letters-here/v2",
    ):
        assert not names.is_secret("ANTHROPIC_BASE_URL", value)


def test_services_are_told_apart_without_secrets_values() -> None:
    def service(*secrets: str, **variables: str) -> str:
        return StoredEnvironment("", variables, secrets).service

    assert service() == service("HTTPS_PROXY", NODE_EXTRA_CA_CERTS="/ca.pem") == ""
    gateways = [service(ANTHROPIC_BASE_URL=f"https://{one}") for one in ("one", "two")]
    told = [*gateways, service("ANTHROPIC_API_KEY"), service("ANTHROPIC_AUTH_TOKEN")]
    assert len({*told, ""}) == 5


def test_what_only_withholds_stays_with_the_daemon() -> None:
    assert names.of_sessions({"DISABLE_TELEMETRY": "1"}) == {"DISABLE_TELEMETRY": "1"}
    assert names.of_one_client({"DISABLE_TELEMETRY": "1"}) == set()
