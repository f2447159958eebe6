"""The entry of the ACP registry: its schema, and what the registry checks besides."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import jsonschema_rs

from pykoclaw_acp import __version__
from pykoclaw_acp.link import logins

ROOT = Path(__file__).parents[2]
ENTRY = ROOT / "deploy/registry/pykoclaw-acp"
SCHEMA = ROOT / "tests/schema/registry/agent.schema.json"


def test_the_entry_is_what_the_registry_expects() -> None:
    entry = json.loads((ENTRY / "agent.json").read_text())
    jsonschema_rs.validate(json.loads(SCHEMA.read_text()), entry)
    assert entry["id"] == ENTRY.name
    assert entry["version"] == __version__
    assert entry["distribution"]["uvx"]["package"] == f"pykoclaw-acp@{__version__}"


def test_the_icon_takes_the_colour_of_the_client() -> None:
    icon = (ENTRY / "icon.svg").read_text()
    assert "<!--" not in icon, "a comment breaks the pages that the registry makes of it"
    root = ElementTree.fromstring(icon)
    assert (root.get("width"), root.get("height")) == ("16", "16")
    assert not [one for one in root.iter() if one.get("style") or one.tag.endswith("style")]
    colours = {one.get(name) for one in root.iter() for name in ("fill", "stroke")} - {None}
    assert colours == {"currentColor", "none"}


def test_the_registry_finds_a_way_to_log_in() -> None:
    """It wants one for terminals, or one of the agent's own, for these capabilities of its check."""
    capabilities = {
        "terminal": True,
        "fs": {"readTextFile": True, "writeTextFile": True},
        "_meta": {"terminal_output": True, "terminal-auth": True},
    }
    offered = {one["id"]: one for one in logins.methods(capabilities)}
    assert offered.keys() == set(logins.ids())
    assert "terminal-auth" in offered["claude-ai-login"]["_meta"]
