"""Files of others that cannot be read as they should: too deep, of other types, or pipes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from pykoclaw_acp.commands import logs
from pykoclaw_acp.doctor import checks, claude, machine, mitto
from pykoclaw_acp.doctor.report import Context, Finding
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.model.events import ToolStarted
from pykoclaw_acp.store import turns
from pykoclaw_acp.system import turn_lock
from pykoclaw_acp.system.turn_lock import Holder, TurnLock
from tests.unit.transcripts import Reading, Transcript

DEEP = "[" * 100_000
NO_TEXT = b'{"toolUseId": "\xff"}'


@pytest.fixture
def context(tmp_path: Path) -> Context:
    environment = {"PATH": str(tmp_path / "bin"), "HOME": str(tmp_path)}
    return Context(Places(tmp_path / "data", tmp_path / "state"), environment, tmp_path)


def deep(path: Path) -> None:
    path.write_text(DEEP)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(claude.MOST + 1)


@pytest.mark.parametrize("spoil", [deep, pipe, large])
def test_doctor_tells_all_beside_spoiled_files(
    context: Context, spoil: Callable[[Path], None]
) -> None:
    home = context.home
    work, zed, data = home / "work", home / ".config/zed", home / ".local/share/mitto"
    for directory in (work, zed, data, home / ".claude", home / ".local/share/pykoclaw"):
        directory.mkdir(parents=True)
    (data / "workspaces.json").write_text(json.dumps({"workspaces": [{"working_dir": str(work)}]}))
    for path in (
        *(work / ".mcp.json", zed / "settings.json", home / ".mittorc", home / ".claude.json"),
        *(home / ".claude/settings.json", home / ".claude/.credentials.json"),
    ):
        spoil(path)
    if spoil is pipe:
        pipe(home / ".local/share/pykoclaw/.env")
    found = checks.examine(context, [*claude.CHECKS, *mitto.CHECKS])
    assert len(found) == len(claude.CHECKS) + len(mitto.CHECKS)
    assert not [one for one in found if "could not be checked" in one.found]
    (zeds,) = (one for one in found if one.check == "Zed")
    assert "cannot be read" in zeds.found


@pytest.mark.parametrize("args", ["5", '"serve"', "null", "{}"])
def test_odd_arguments_of_zed_are_none(context: Context, args: str) -> None:
    path = context.home / ".config/zed/settings.json"
    path.parent.mkdir(parents=True)
    path.write_text(f'{{"agent_servers": {{"x": {{"command": "pykoclaw-acp", "args": {args}}}}}}}')
    assert "which is not on PATH" in claude.zed(context).found


def test_hanging_systemctl_is_told(context: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    path = context.home / "bin/systemctl"
    path.parent.mkdir()
    path.write_text("#!/bin/sh\nkill -STOP $$\n")
    path.chmod(0o700)
    monkeypatch.setattr(machine, "TOOL_WAIT", 0.1)
    found = machine.units(context)
    assert (found.level, "has not answered" in found.found) == ("warning", True)


def test_failing_check_is_a_finding(context: Context) -> None:
    def broken(_: Context) -> Finding:
        raise RecursionError("too deep")

    def expired(_: Context) -> Finding:
        raise subprocess.TimeoutExpired("tool", 1)

    def fine(_: Context) -> Finding:
        return Finding("fine", "ok", "all well")

    found = checks.examine(context, [broken, expired, fine])
    assert [asdict(one)["level"] for one in found] == ["warning", "warning", "ok"]
    assert "RecursionError: too deep" in found[0].found


def test_deep_text_is_none_anywhere(tmp_path: Path) -> None:
    """A prompt's row, a line of the log, a lock of another program's."""
    assert turns.content(DEEP) == []
    assert len(logs.readable(DEEP)) == 1
    lock = TurnLock.take(str(tmp_path), "c", "other")
    assert isinstance(lock, TurnLock)
    (name,) = os.listdir(tmp_path / turn_lock.DIRECTORY)
    (tmp_path / turn_lock.DIRECTORY / name).write_text(DEEP)
    assert TurnLock.take(str(tmp_path), "c", "me") == Holder()
    lock.release()


@pytest.mark.parametrize("content", [b'{"x":' + b"[" * 5000, NO_TEXT])
def test_spoiled_file_of_subagent_hides_no_history(tmp_path: Path, content: bytes) -> None:
    transcript = Transcript(tmp_path / "t.jsonl")
    folder = transcript.path.with_suffix("") / "subagents"
    folder.mkdir(parents=True)
    (folder / "agent-a1.meta.json").write_bytes(content)
    transcript.prompt("Hello", "p1")
    transcript.call("agent", "Agent", description="look", prompt="Look.")
    transcript.result("agent", "frame", toolUseResult={"status": "completed", "agentId": "a1"})
    events = Reading(transcript).look()
    assert [one.tool_call_id for one in events if isinstance(one, ToolStarted)] == ["agent"]
