"""Which commands have a report of ours in place of the CLI's output."""

from __future__ import annotations

from typing import Any

import pytest

from pykoclaw_acp.worker import command_reports, server_report, usage_report
from pykoclaw_acp.worker.server_report import Report


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


async def shown(*texts: str) -> str | None:
    client: Any = None
    content = [{"type": "text", "text": text} for text in texts]
    made = await command_reports.instead_of(client, content, lambda _, words: words, "work")
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
