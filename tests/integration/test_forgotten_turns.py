"""Prompts that were accepted and then lost from memory, as when that is short; on workers in
memory.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest

from pykoclaw_acp.errors import TurnFailed
from pykoclaw_acp.model.turns import PromptKeys, Turn
from pykoclaw_acp.sessions.session import Session
from tests.integration.rig import Client, rig
from tests.integration.shortages import short_of_memory


def sent(session: Session) -> Turn:
    """The prompt as its front sends it, each time."""
    keys = PromptKeys(request="front:1")
    return Turn(str(uuid4()), session.id, [{"type": "text", "text": "say 1"}], keys)


async def test_prompt_that_only_journal_has_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        author = session.subscribe(Client(), 0)
        first = sent(session)
        with monkeypatch.context() as patched:
            patched.setattr(session, "enqueue", short_of_memory)
            with pytest.raises(MemoryError):
                await session.accept(first, author)
        known = await session.accept(sent(session), author, joins=True)
        assert known.turn_id == first.turn_id
        assert (await asyncio.wait_for(known.ended, 30))[0].state == "done"
        assert await r.states() == {first.turn_id: "done"}


async def test_prompt_that_claude_has_is_not_called_unknown(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        author = session.subscribe(Client(), 0)
        first = sent(session)
        await r.journal.accept(first)
        await r.journal.dispatch(first, 1, ())
        with pytest.raises(TurnFailed, match="lost sight") as caught:
            await session.accept(sent(session), author, joins=True)
        assert (caught.value.data or {})["errorKind"] == "internal"


async def test_unread_journal_does_not_make_prompt_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        author = session.subscribe(Client(), 0)
        for name in ("ended_turns", "find_unfinished"):
            with monkeypatch.context() as patched:
                patched.setattr(r.journal, name, short_of_memory)
                with pytest.raises(MemoryError):
                    await session.accept(sent(session), author, joins=True)
        with pytest.raises(TurnFailed, match="is not known") as caught:
            await session.accept(sent(session), author, joins=True)
        assert (caught.value.data or {})["errorKind"] == "restored"
