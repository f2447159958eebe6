"""What a profile changes in the options of the SDK."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from pykoclaw_acp.channel.options import WITHOUT
from pykoclaw_acp.channel.spec import LaunchSpec
from pykoclaw_acp.worker import profile
from pykoclaw_acp.worker.options import environment, settings, sources
from tests.workers import OPTIONS


def spec(data: Path, profile: str, conversation: str = "acp-12345678") -> LaunchSpec:
    options = replace(OPTIONS, profile=profile, conversation=conversation, cwd="/work")
    return LaunchSpec(
        instance="i", session_id="s", epoch=1, options=options, orphan_grace=1, spool_limit=1,
        data=str(data),
    )  # fmt: skip


def test_only_existing_folders_of_pykoclaw_profile_count(tmp_path: Path) -> None:
    assert profile.directories(spec(tmp_path, "pykoclaw")) == []
    folder = tmp_path / "conversations/acp-12345678"
    folder.mkdir(parents=True)
    assert profile.directories(spec(tmp_path, "pykoclaw")) == [str(folder)]
    (tmp_path / "CLAUDE.md").write_text("x")
    assert profile.directories(spec(tmp_path, "pykoclaw")) == [str(folder), str(tmp_path)]
    assert profile.directories(spec(tmp_path, "editor")) == []


def test_a_name_is_never_a_path(tmp_path: Path) -> None:
    (tmp_path / "conversations").mkdir()
    for name in ("", ".", "..", "../..", "/", "acp-1/..", "acp-1\0"):
        assert profile.directories(spec(tmp_path, "pykoclaw", name)) == []
    of_an_old_daemon = replace(spec(tmp_path, "pykoclaw"), data="")
    assert profile.directories(of_an_old_daemon) == []


def test_an_untrusted_directory_stays_restricted(tmp_path: Path) -> None:
    trusted = spec(tmp_path, "pykoclaw")
    without = replace(trusted, options=replace(trusted.options, workspace=f"{WITHOUT}x"))
    assert "project" not in sources(without)
    assert environment(without, str(tmp_path))["CLAUDE_CODE_IGNORE_PERSISTED_TRUST"] == "1"


def test_the_editor_profile_allows_nothing_by_itself(tmp_path: Path) -> None:
    assert profile.allowed_tools(spec(tmp_path, "editor"), "pykoclaw") == []
    assert profile.environment(spec(tmp_path, "editor")) == {}
    assert "mcp__pykoclaw__*" in profile.allowed_tools(spec(tmp_path, "pykoclaw"), "pykoclaw")


@pytest.mark.parametrize(
    ("address", "asks"),
    [(None, None), ("https://api.anthropic.com", None), ("http://[", None), ("http://gw:1", False)],
)
def test_plan_mode_asks_where_a_gateway_is_between(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str | None, asks: bool | None
) -> None:
    monkeypatch.delenv("ANTHROPIC_BASE_URL", raising=False)
    if address is not None:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", address)
    assert settings(spec(tmp_path, "editor")).get("useAutoModeDuringPlan") is asks
