"""What `/mcp` shows and does, on a stand-in for the SDK's client."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pykoclaw_acp.worker import server_report
from pykoclaw_acp.worker.command_reports import instead_of
from pykoclaw_acp.worker.server_report import NO_REPORT, Report


class Cli:
    """Servers by name; those in `broken` cannot be reconnected or switched."""

    def __init__(self, **servers: dict[str, Any]) -> None:
        self.servers = servers
        self.broken: set[str] = set()
        self.connects = True  # what is pending, after a look
        self.error = "s3cret is wrong\nhere"
        self.asked: list[tuple[str, str]] = []

    async def get_mcp_status(self) -> dict[str, Any]:
        found = [{"name": name, **one} for name, one in self.servers.items()]
        for one in self.servers.values():
            if self.connects and one["status"] == "pending":
                one["status"] = "connected"
        return {"mcpServers": found}

    async def reconnect_mcp_server(self, name: str) -> None:
        self._do("reconnect", name, "connected")

    async def toggle_mcp_server(self, name: str, enabled: bool) -> None:
        what = "enable" if enabled else "disable"
        self._do(what, name, "connected" if enabled else "disabled")

    def _do(self, what: str, name: str, state: str) -> None:
        self.asked.append((what, name))
        if name in self.broken:
            raise RuntimeError(self.error)
        self.servers[name] = {"status": state, "tools": [{}, {}]}


def some() -> Cli:
    return Cli(
        fine={"status": "connected", "tools": [{}, {}, {}]},
        bad={"status": "failed", "error": "GET s3cret | refused"},
        web={"status": "needs-auth", "scope": "local"},
        off={"status": "disabled"},
    )


def clean(_: str, words: str) -> str:
    return words.replace("s3cret", "…").replace("\n", " ")


async def report(cli: Cli, words: str) -> Report:
    client: Any = cli
    states: Any = SimpleNamespace(account="work", without_secrets=clean)
    return await instead_of(client, [{"type": "text", "text": words}], states, "s")


async def shown(cli: Cli, words: str) -> str | None:
    return (await report(cli, words)).words


async def test_states_are_a_table() -> None:
    lines = str(await shown(some(), " /mcp\n")).splitlines()
    assert lines[:2] == ["## MCP servers", ""]
    assert [line for line in lines if line.startswith("| ")] == [
        "| server | state | tools | |",
        "| fine | connected | 3 |  |",
        "| bad | does not work |  | GET … \\| refused |",
        "| web | wants a sign-in |  | `pykoclaw-acp mcp login --account work web`, in this session's directory |",
        "| off | disabled |  |  |",
    ]
    assert await shown(Cli(), "/mcp") == "There are no MCP servers in this session."


async def test_report_says_which_states_it_shows() -> None:
    states = {"fine": "connected", "bad": "failed", "web": "needs-auth", "off": "disabled"}
    assert (await report(some(), "/mcp")).servers == states
    assert (await report(some(), "/mcp enable off")).servers == states | {"off": "connected"}


@pytest.mark.parametrize(("connects", "state"), [(True, "connected"), (False, "still connects")])
async def test_servers_that_connect_are_awaited(
    monkeypatch: pytest.MonkeyPatch, connects: bool, state: str
) -> None:
    monkeypatch.setattr(server_report, "SETTLE", 0.3)
    cli = Cli(slow={"status": "pending"})
    cli.connects = connects
    assert f"| slow | {state} |" in str(await shown(cli, "/mcp"))


@pytest.mark.parametrize(
    ("words", "asked", "said"),
    [
        ("/mcp reconnect bad", [("reconnect", "bad")], "MCP server bad was connected anew."),
        ("/mcp disable fine", [("disable", "fine")], "MCP server fine was disabled."),
        ("/mcp  enable off ", [("enable", "off")], "MCP server off was enabled."),
        ("/mcp reconnect", [("reconnect", "bad"), ("reconnect", "web")], "bad was connected anew."),
        ("/mcp enable none", [], "There is no MCP server none."),
    ],
)
async def test_servers_are_tried_again_and_switched(
    words: str, asked: list[tuple[str, str]], said: str
) -> None:
    cli = some()
    told = str(await shown(cli, words))
    assert cli.asked == asked
    assert said in told
    assert told.index(said) < told.index("## MCP servers")
    if asked:
        state = "disabled" if "disable" in words else "connected"
        assert f"| {asked[0][1]} | {state} |" in told


async def test_what_fails_says_why_without_secrets() -> None:
    cli = some()
    cli.broken = {"bad"}
    told = str(await shown(cli, "/mcp reconnect all"))
    assert "MCP server bad could not be connected anew: … is wrong here" in told
    assert "MCP server web was connected anew." in told


@pytest.mark.parametrize(
    ("name", "detail", "error", "said"),
    [
        (
            "bad",
            {"status": "failed", "error": "GET s3cret | refused"},
            "GET s3cret | refused",
            "MCP server bad could not be connected anew: see below.",
        ),
        (
            "web",
            {"status": "needs-auth"},
            "Server status: needs-auth",
            "MCP server web wants a sign-in: see below.",
        ),
    ],
)
async def test_what_the_table_says_is_said_once(
    name: str, detail: dict[str, Any], error: str, said: str
) -> None:
    cli = Cli(**{name: detail})
    cli.broken, cli.error = {name}, error
    told = str(await shown(cli, f"/mcp reconnect {name}"))
    assert told.splitlines()[0] == said
    assert told.count("refused") + told.count("pykoclaw-acp mcp login --account work web") == 1
    assert "needs-auth" not in told


async def test_table_says_what_helps_against_refusal() -> None:
    cli = Cli(locked={"status": "failed", "error": "No way (HTTP 401)."})
    told = str(await shown(cli, "/mcp"))
    assert (
        "No way (HTTP 401). It requires a sign-in that Claude cannot perform: put a token" in told
    )


@pytest.mark.parametrize("words", ["Say /mcp", "/mcp please", "/mcpx", "/mcp disable-all", ""])
async def test_other_words_are_left_to_the_cli(words: str) -> None:
    cli = some()
    assert await report(cli, words) == NO_REPORT
    assert cli.asked == []


async def test_without_an_answer_the_clis_words_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    cli = Cli(odd={"status": "failed", "error": "x"})
    monkeypatch.setattr(cli, "get_mcp_status", None)
    assert await report(cli, "/mcp") == NO_REPORT
    assert server_report.HINT in str(await shown(some(), "/mcp"))
