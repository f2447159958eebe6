"""Files of a directory that the CLI understands, and Python does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykoclaw_acp.trust.content import Content
from pykoclaw_acp.trust.scan import scan

ALL = ("user", "project", "local")
UNCLEAR = "cannot be understood"


def look(directory: Path) -> Content:
    return scan(str(directory), [], ALL)


@pytest.mark.parametrize("name", [".claude/settings.json", ".mcp.json"])
@pytest.mark.parametrize("half", [r"\ud800", r"\udc80"])
def test_half_surrogate_is_asked_about(tmp_path: Path, name: str, half: str) -> None:
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f'{{"apiKeyHelper": "./run {half}", "mcpServers": {{"{half}": {{}}}}}}')
    program = tmp_path / "run"
    program.write_text("echo 1")
    (place,) = look(tmp_path).acting
    assert list(place.found) == [f"{name}: {UNCLEAR}"]
    program.write_text("echo 2")
    (changed,) = look(tmp_path).acting
    assert "" != place.content != changed.content  # what it names is trusted with it


@pytest.mark.parametrize("key", ["hooks", "permissions", "env", "unknown"])
def test_deep_settings_never_end_the_look(tmp_path: Path, key: str) -> None:
    path = tmp_path / ".claude" / "settings.json"
    path.parent.mkdir()
    shown: list[bool] = []
    # Where it becomes too deep depends on who calls, and on Python.
    for depth in (*range(200, 1100, 9), 3_000, 9_000, 30_000, 200_000):
        path.write_text(f'{{"{key}": {{"allow": {"[" * depth}1{"]" * depth}}}}}')
        (place,) = look(tmp_path).acting
        shown.append(UNCLEAR not in place.found[0])
    assert shown == sorted(shown, reverse=True)
    assert set(shown) == {True, False}
