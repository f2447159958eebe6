"""Which commands have a report of ours in place of the CLI's output."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from claude_agent_sdk import ClaudeSDKClient

from pykoclaw_acp.worker import command_reports, server_report, usage_report
from pykoclaw_acp.worker.server_report import Report
from pykoclaw_acp.worker.server_states import ServerStates

SESSION = "3f0c1a52-0000-4000-8000-000000000000"


@pytest.fixture(autouse=True)
def made(monkeypatch: pytest.MonkeyPatch) -> list[tuple[object, ...]]:
    """The reports that were asked for."""
    made: list[tuple[object, ...]] = []

    async def usage(client: object) -> str:
        made.append(("usage",))
        return "usage"

    async def servers(
        client: object, action: str | None, wanted: str, clean: object, account: str
    ) -> Report:
        assert account == "work"
        made.append(("servers", action, wanted))
        return Report("servers", {"a": "failed"})

    monkeypatch.setattr(usage_report, "report", usage)
    monkeypatch.setattr(server_report, "report", servers)
    return made


class Cli:
    """The SDK's client, whose CLI has these commands."""

    def __init__(self, *commands: str) -> None:
        self._commands = [{"name": one} for one in commands]

    async def get_server_info(self) -> dict[str, Any]:
        return {"commands": self._commands}


async def shown(*texts: str, cli: Cli | None = None) -> str | None:
    content = [{"type": "text", "text": text} for text in texts]
    states = SimpleNamespace(account="work", without_secrets=lambda _, words: words)
    made = await command_reports.instead_of(
        cast("ClaudeSDKClient", cli or Cli()), content, cast("ServerStates", states), SESSION
    )
    assert bool(made.servers) == (made.words == "servers")
    return made.words


@pytest.mark.parametrize(
    ("words", "report"),
    [
        (" /usage\n", ("usage",)),
        ("/mcp", ("servers", None, "all")),
        (" /mcp reconnect a b ", ("servers", "reconnect", "a b")),
        ("/mcp disable", ("servers", "disable", "all")),
    ],
)
async def test_commands_get_their_own_report(
    made: list[tuple[object, ...]], words: str, report: tuple[object, ...]
) -> None:
    assert await shown(words) == report[0]
    assert made == [report]


@pytest.mark.parametrize("command", ["login", "logout"])
async def test_logins_name_the_command_of_a_terminal(command: str) -> None:
    told = str(await shown(f" /{command}\n"))
    assert told.startswith(f"Run `pykoclaw-acp {command} --account work` in a terminal")


@pytest.mark.parametrize(
    "texts", [["Say /usage"], ["/usage now"], ["/cost"], [""], [], ["/usage", "x"], ["/mcp", "x"]]
)
async def test_other_prompts_keep_the_output_of_the_cli(
    made: list[tuple[object, ...]], texts: list[str]
) -> None:
    assert await shown(*texts) is None
    assert made == []


async def test_commands_of_the_terminal_say_where_they_are() -> None:
    assert "`pykoclaw-acp rewind 3f0c1a52`" in str(await shown("/rewind"))
    assert "`pykoclaw-acp sessions export 3f0c1a52`" in str(await shown("/export notes.md"))
    assert "your client" in str(await shown("/add-dir ../other"))
    assert await shown("/rewinding") is None
    assert await shown("/rewind", cli=Cli("rewind")) is None, "a later CLI may have it"
