"""Notes for Claude: the next prompt carries them, once."""

from __future__ import annotations

from pathlib import Path

from pykoclaw_acp.model.prompt_text import NOTES_TAG, Note
from pykoclaw_acp.store.session_journal import SessionJournal
from tests.integration.rig import rig
from tests.integration.wires import client, new, prompt
from tests.waiting import eventually


async def test_next_prompt_carries_notes_unseen_by_the_user(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        await SessionJournal(r.database).add_note(session, Note("one", "The job is done."))
        await wire.call("session/prompt", **prompt(session, "say 1"))
        await wire.call("session/prompt", **prompt(session, "say 1"))
        first, second = r.launcher.launched[0].contents
        assert [block["text"].startswith(f"<{NOTES_TAG}>") for block in first] == [True, False]
        assert "The job is done." in first[0]["text"]
        assert [block["text"] for block in second] == ["say 1"]
        await wire.call("session/load", sessionId=session, cwd="/", mcpServers=[])
        assert "The job is done." not in str(wire.updates())


async def test_slash_command_leaves_notes_for_the_next_prompt(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        await SessionJournal(r.database).add_note(session, Note("one", "The job is done."))
        running = wire.begin("session/prompt", **prompt(session, "/compact"))
        await eventually(lambda: r.launcher.launched and r.launcher.launched[0].contents)
        wire.send({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}})
        await wire.answer(running)
        await wire.call("session/prompt", **prompt(session, "say 1"))
        command, words = r.launcher.launched[0].contents
        assert [block["text"] for block in command] == ["/compact"]
        assert "The job is done." in words[0]["text"]
