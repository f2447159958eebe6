"""Whether another program wrote behind the newest entry of a worker's CLI."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from claude_agent_sdk import AssistantMessage, ConversationResetMessage, UserMessage

from pykoclaw_acp.worker.transcript_end import LOOKED_AT, TranscriptEnd

ID = "1a2b3c4d-aaaa-4aaa-8aaa-aaaaaaaaaaaa"


@pytest.fixture
def transcript(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "projects" / "-work"
    folder.mkdir(parents=True)
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    return folder / f"{ID}.jsonl"


def write(path: Path, uuid: str, kind: str = "assistant", **fields: object) -> None:
    with path.open("a") as file:
        line = {"type": kind, "uuid": uuid, "parentUuid": "u0", **fields}
        file.write(json.dumps(line, separators=(",", ":")) + "\n")


def empty(path: Path) -> None:
    path.write_text("")


def spoil(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\xff{]\n" + b'{"type":"\xff"}\n' + b'{"x":' + b"[" * 5000 + b"\n")


def remove(path: Path, *, directory: bool = False) -> None:
    path.unlink(missing_ok=True)
    if directory:
        path.mkdir()


def said(uuid: str, parent_tool_use_id: str | None = None) -> AssistantMessage:
    return AssistantMessage([], "model", parent_tool_use_id, uuid=uuid)


async def begun(transcript: Path) -> TranscriptEnd:
    """A CLI that resumes what has an answer of another, and answers itself."""
    write(transcript, "u0")
    end = TranscriptEnd()
    await end.connected(ID)
    write(transcript, "u1", "user")
    write(transcript, "u2")
    end.follow(UserMessage([], "u1"))
    end.follow(said("u2"))
    return end


async def test_own_answer_is_the_end(transcript: Path) -> None:
    end = await begun(transcript)
    assert not await end.is_passed(ID)
    end.follow(said("in a subagent", "toolu_1"))
    write(transcript, "u3", "assistant", isSidechain=True)
    write(transcript, "u4", "system")
    write(transcript, "u5", "user")
    assert not await end.is_passed(ID)
    assert end.uuid == "u2"


async def test_answer_of_others_is_behind_it(transcript: Path) -> None:
    end = await begun(transcript)
    write(transcript, "u3", "user")
    write(transcript, "u4")
    assert await end.is_passed(ID)
    end.follow(said("u5"))
    write(transcript, "u5")
    assert not await end.is_passed(ID)


async def test_answer_of_others_beside_unused_cli(transcript: Path) -> None:
    write(transcript, "u0")
    end = TranscriptEnd()
    await end.connected(ID)
    assert not await end.is_passed(ID)
    write(transcript, "u1")
    assert await end.is_passed(ID)


async def test_much_was_written_by_others(transcript: Path) -> None:
    end = await begun(transcript)
    write(transcript, "u3", "user", text="x" * LOOKED_AT)
    assert not await end.is_passed(ID)
    write(transcript, "u4")
    assert await end.is_passed(ID)


async def test_new_conversation_has_a_new_transcript(transcript: Path) -> None:
    end = await begun(transcript)
    end.follow(ConversationResetMessage(new_conversation_id=ID, uuid="u3", session_id=ID))
    empty(transcript)
    assert not await end.is_passed(ID)
    write(transcript, "u1")
    assert await end.is_passed(ID)


async def test_transcript_that_cannot_be_read(transcript: Path) -> None:
    end = await begun(transcript)
    spoil(transcript)
    assert not await end.is_passed(ID)
    write(transcript, "u3")
    assert await end.is_passed(ID)
    remove(transcript)
    assert not await end.is_passed(ID)
    remove(transcript, directory=True)
    assert not await end.is_passed(ID)
    assert not await end.is_passed("../../x")
