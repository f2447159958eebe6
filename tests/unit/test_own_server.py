"""pykoclaw's own MCP server beside those of plugins and of the client."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pykoclaw_acp.channel.options import McpServer
from pykoclaw_acp.worker import profile
from pykoclaw_acp.worker.servers import Servers
from tests.workers import OPTIONS, spec


class Loaded:
    """Plugins that give servers of these names when they are loaded."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.servers: list[dict[str, Any]] = []
        self._names = names

    async def load(self) -> None:
        self.servers.append({name: {"type": "sdk", "name": name} for name in self._names})


async def loaded(*given: str, plugins: tuple[str, ...] = (), profile: Any = "editor") -> Servers:
    """Servers of a session whose client and plugins give servers of these names."""
    calls: Any = None
    servers = tuple(McpServer(name=name, command=f"client-{name}") for name in given)
    options = replace(OPTIONS, mcp_servers=servers, profile=profile)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pykoclaw_acp.worker.servers.Plugins", lambda *_: Loaded(plugins))
        made = Servers(replace(spec(Path("instance")), options=options), calls)
    await made.load()
    return made


async def test_clients_server_of_that_name_renames_ours() -> None:
    made = await loaded("pykoclaw", "other")
    assert made.outside["pykoclaw"]["command"] == "client-pykoclaw"
    assert list(made.inside) == [made.own] == ["pykoclaw-acp"]
    assert made.unasked == ["mcp__pykoclaw-acp__list_tasks"]


async def test_it_has_its_name_otherwise() -> None:
    made = await loaded("other")
    assert list(made.inside) == [made.own] == ["pykoclaw"]
    assert made.unasked == ["mcp__pykoclaw__list_tasks"]


async def test_it_takes_no_name_of_another() -> None:
    made = await loaded("pykoclaw", "pykoclaw-acp", plugins=("pykoclaw-acp-2",))
    assert made.own == "pykoclaw-acp-3"
    assert set(made.inside) == {"pykoclaw-acp-2", "pykoclaw-acp-3"}


async def test_a_plugin_may_replace_it() -> None:
    made = await loaded("pykoclaw", plugins=("pykoclaw",))
    assert made.inside == {"pykoclaw-acp": {"type": "sdk", "name": "pykoclaw"}}
    assert made.unasked == []


@pytest.mark.parametrize(("given", "own"), [((), "pykoclaw"), (("pykoclaw",), "pykoclaw-acp")])
async def test_the_profile_allows_pykoclaws_tools_only(given: tuple[str, ...], own: str) -> None:
    made = await loaded(*given, profile="pykoclaw")
    launched = replace(spec(Path("instance")), options=replace(OPTIONS, profile="pykoclaw"))
    allowed = profile.allowed_tools(launched, made.own)
    assert [one for one in allowed if one.startswith("mcp__")] == [f"mcp__{own}__*"]
