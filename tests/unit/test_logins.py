"""Ways to log in, as clients are offered them; and why Claude was not let in, in words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.front.ledger import Ledger
from pykoclaw_acp.link import logins
from pykoclaw_acp.link.lines import GREETING
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.worker.login_failures import explained
from tests.workers import OPTIONS

KEY = {"ANTHROPIC_API_KEY": "sk-1"}


def offered(capabilities: Any, account: str | None = None) -> dict[str, dict[str, Any]]:
    return {one["id"]: one for one in logins.methods(capabilities, account)}


@pytest.mark.parametrize(
    "capabilities", [None, {}, [], "x", {"auth": {"terminal": "yes"}}, {"auth": [], "_meta": 1}]
)
def test_without_a_terminal_only_the_key_is_offered(capabilities: Any) -> None:
    assert list(offered(capabilities)) == ["anthropic-api-key"]


def test_a_terminal_runs_our_login() -> None:
    methods = offered({"auth": {"terminal": True}})
    assert set(methods) == set(logins.ids())
    assert methods["claude-ai-login"]["type"] == "terminal"
    assert methods["console-login"]["args"] == ["login", "--console"]
    named = offered({"auth": {"terminal": True}}, "work")
    assert named["claude-ai-login"]["args"] == ["login", "--account=work"]


def test_a_client_of_before_gets_a_command_line() -> None:
    method = offered({"_meta": {"terminal-auth": True}})["claude-ai-login"]
    assert "type" not in method
    command = method["_meta"]["terminal-auth"]
    assert command["args"] == ["-P", "-m", "pykoclaw_acp", "login"]
    assert Path(command["command"]).is_file()


def hello(ledger: Ledger) -> dict[str, Any]:
    return dict(json.loads(ledger.hello({}).removeprefix(GREETING)))


def test_a_front_says_what_its_client_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-1")
    monkeypatch.setenv("PYKOCLAW_MAX_WORKERS", "3")
    monkeypatch.setenv("PYKOCLAW_CRASH_AT", "x")
    monkeypatch.setenv("EDITOR", "vi")
    given = hello(Ledger())["environment"]
    assert (given["ANTHROPIC_API_KEY"], given["PYKOCLAW_MAX_WORKERS"]) == ("sk-1", "3")
    assert not {"EDITOR", "PATH", "PYKOCLAW_CRASH_AT"} & given.keys()


def test_front_remembers_logout_for_next_daemon() -> None:
    ledger = Ledger()

    def answered(method: str, answer: dict[str, Any]) -> bool:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"methodId": "x"}}
        line = ledger.keep(json.dumps(request).encode(), 0.0)
        ledger.understand(line)
        ledger.drop_answered(line.number, json.dumps(answer).encode())
        return bool(hello(ledger)["loggedOut"])

    assert answered("logout", {"result": {}})
    assert answered("authenticate", {"error": {"code": -32000}})
    assert not answered("authenticate", {"result": {}})


SAID = "Not logged in · Please run /login"
GATEWAY = {"ANTHROPIC_BASE_URL": "https://me:word@gateway.test:8443/v1", **KEY}
CASES = [
    (None, SAID, {}, "authentication_missing", "`pykoclaw-acp login --account default`"),
    (401, "API Error: 401", KEY, "authentication_failed", "ANTHROPIC_API_KEY"),
    (401, "OAuth token has expired", {}, "authentication_expired", "has expired"),
    (403, "API Error: 403", GATEWAY, "authentication_gateway", "The gateway in ANTHROPIC_BASE_URL"),
    (401, "API Error: 401", {}, "authentication_failed", "Claude refused the login"),
]


@pytest.mark.parametrize(("status", "words", "environment", "kind", "told"), CASES)
def test_words_fit_what_happened(
    status: int | None,
    words: str,
    environment: dict[str, str],
    kind: str,
    told: str,
    tmp_path: Path,
) -> None:
    failure = TurnFailure(ErrorKind.AUTHENTICATION_FAILED, words, status)
    around = {"CLAUDE_CONFIG_DIR": str(tmp_path), **environment}
    found = explained(failure, words, OPTIONS, around)
    assert (found.kind, found.status) == (kind, status)
    assert told in found.message
    for secret in ("sk-1", "word@", "/login", "gateway.test", "8443"):
        assert secret not in found.message.replace("pykoclaw-acp login", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            "Your organization does not allow it.",
            " It said: “Your organization does not allow it.”",
        ),
        ("No key sk-...1234 at http://10.0.0.1:8443", " It said: “No key … at …”"),
        (f"Unknown token '{'a1' * 12}'.", " It said: “Unknown token …”"),
        ("Permission", ""),
        ('{"type": "error"}', ""),
    ],
)
@pytest.mark.parametrize("environment", [KEY, GATEWAY, {}])
def test_the_services_own_words_are_told_without_keys(
    words: str, said: str, environment: dict[str, str], tmp_path: Path
) -> None:
    failure = TurnFailure(ErrorKind.AUTHENTICATION_FAILED, words, 403)
    around = {"CLAUDE_CONFIG_DIR": str(tmp_path), **environment}
    found = explained(failure, f"Failed to authenticate. API Error: 403 {words}", OPTIONS, around)
    assert found.message.partition(" It said: ")[1:] == said.partition(" It said: ")[1:]


def test_words_name_the_account_and_other_failures_stay(tmp_path: Path) -> None:
    options = replace(OPTIONS, account="work")
    failure = TurnFailure(ErrorKind.AUTHENTICATION_FAILED, SAID)
    found = explained(failure, SAID, options, {"CLAUDE_CONFIG_DIR": str(tmp_path)})
    assert "`pykoclaw-acp login --account work`" in found.message
    other = TurnFailure(ErrorKind.RATE_LIMIT, "Wait.", 429)
    assert explained(other, "Wait.", OPTIONS, {}) == other


@pytest.mark.parametrize(("status", "words"), [(None, SAID), (401, "API Error: 401")])
def test_no_account_is_named_where_none_was_made(
    status: int | None, words: str, tmp_path: Path
) -> None:
    failure = TurnFailure(ErrorKind.AUTHENTICATION_FAILED, words, status)
    accounts = tmp_path / "accounts"
    options = replace(OPTIONS, accounts=str(accounts))
    around = {"CLAUDE_CONFIG_DIR": str(tmp_path)}
    found = explained(failure, words, options, around).message
    assert "Run `pykoclaw-acp login` in a terminal, then send the prompt again; nothing" in found
    assert "Or set ANTHROPIC_API_KEY in the" in found
    assert found.endswith("start the client again, and send the prompt again.")
    assert "account" not in found.lower()
    (accounts / "work").mkdir(parents=True)
    found = explained(failure, words, options, around).message
    assert "Run `pykoclaw-acp login --account default` in a terminal" in found
    assert "PYKOCLAW_ACCOUNT" in found


@pytest.mark.parametrize(("status", "words"), [(None, SAID), (401, "API Error: 401")])
def test_key_is_asked_for_with_its_account(status: int | None, words: str, tmp_path: Path) -> None:
    """A client's key counts for the client's own account only, which may be another one."""
    failure = TurnFailure(ErrorKind.AUTHENTICATION_FAILED, words, status)
    around = {"CLAUDE_CONFIG_DIR": str(tmp_path)}
    work, own = (
        explained(failure, words, replace(OPTIONS, account=account), around).message
        for account in ("work", "")
    )
    assert "of the account work" in work
    assert "Or set ANTHROPIC_API_KEY and PYKOCLAW_ACCOUNT=work in the environment" in work
    assert "Or set ANTHROPIC_API_KEY in the environment that your client gives" in own
    assert "PYKOCLAW_ACCOUNT=default if that names another account" in own
    for said in (work, own):
        assert "(a key counts for its client's own account only)" in said


def test_a_login_that_is_over_has_expired(tmp_path: Path) -> None:
    login = {"claudeAiOauth": {"expiresAt": 1}}
    (tmp_path / ".credentials.json").write_text(json.dumps(login))
    failure = TurnFailure(ErrorKind.AUTHENTICATION_FAILED, "API Error: 401", 401)
    found = explained(failure, failure.message, OPTIONS, {"CLAUDE_CONFIG_DIR": str(tmp_path)})
    assert found.kind == "authentication_expired"


LOCAL = {"ANTHROPIC_BASE_URL": "http://user:pw@gateway.local:4130/v1"}


@pytest.mark.parametrize(
    ("words", "environment", "said"),
    [
        (
            "API Error: Connection refused — a firewall or proxy may be blocking it (ECONNREFUSED)",
            LOCAL,
            "nothing takes the connection at `gateway.local` (ECONNREFUSED). Check ANTHROPIC_BASE_URL and what",
        ),
        (
            "API Error: Can't reach the API server — check your internet or DNS (ENOTFOUND)",
            {},
            "the name `api.anthropic.com` is not found (ENOTFOUND). Check the network connection, then",
        ),
        (
            "API Error: No internet route — check your connection or VPN (ENETUNREACH)",
            {"HTTPS_PROXY": "http://proxy"},
            "no route to `api.anthropic.com` (ENETUNREACH). Check the network connection and the proxy in HTTPS_PROXY",
        ),
        (
            "API Error: Connection refused (ECONNREFUSED)",
            {
                "ANTHROPIC_BASE_URL": "http://localhost:1",
                "HTTPS_PROXY": "http://proxy",
                "NO_PROXY": "localhost",
            },
            "Check ANTHROPIC_BASE_URL and what it leads to, then",
        ),
        (
            "API Error: Connection refused (ECONNREFUSED)",
            {"ANTHROPIC_BASE_URL": "http://n413.local"},
            "at the host in ANTHROPIC_BASE_URL (ECONNREFUSED)",
        ),
        (
            "API Error: Connection refused (ECONNREFUSED)",
            {"CLAUDE_CODE_USE_BEDROCK": "1"},
            "at the configured address (ECONNREFUSED)",
        ),
    ],
    ids=str,
)
def test_unreachable_service_is_named_by_its_host(
    words: str, environment: dict[str, str], said: str
) -> None:
    found = explained(TurnFailure(ErrorKind.SERVER_ERROR, "x"), words, OPTIONS, environment)
    assert found.kind == "service_unreachable"
    assert found.retryable
    assert said in found.message
    assert "413" not in found.message
    assert "pw" not in found.message


def test_lost_connection_is_not_called_unreachable() -> None:
    lost = TurnFailure(ErrorKind.SERVER_ERROR, "x")
    said = "API Error: Connection to the API was lost (ECONNRESET)."
    assert explained(lost, said, OPTIONS, {}) == lost
