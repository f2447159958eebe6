"""The entry of the ACP registry: its schema, and what the registry checks besides."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema_rs

from pykoclaw_acp import __version__

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
    assert 'width="16" height="16"' in icon
    colours = set(re.findall(r"(?:fill|stroke)=\"([^\"]+)\"", icon))
    assert colours <= {"currentColor", "none"}
    assert "currentColor" in colours
