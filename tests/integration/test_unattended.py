"""Prompts that run whoever is there: accepted once, also in a closed session."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import uuid4

import pytest
from msgspec.structs import replace

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.model.turns import PromptKeys, Turn
from pykoclaw_acp.sessions import folders
from pykoclaw_acp.sessions.session import Session
from tests.integration.rig import rig


def prompt(session: Session, text: str = "say 1", **keys: str) -> Turn:
    content = [{"type": "text", "text": text}]
    return Turn(
        str(uuid4()), session.id, content, PromptKeys(**keys), client="cli", unattended=True
    )


async def test_prompt_runs_in_a_closed_session(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        await r.sessions.close(session)
        turn = await session.accept_unattended(prompt(session))
        assert (await asyncio.wait_for(turn.ended, 30))[0].state == "done"


async def test_archiving_closed_session_ends_its_turn(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        await r.sessions.close(session)
        turn = await session.accept_unattended(prompt(session, "hang"))
        await r.sessions.catalogue.archive(session.id, archived=True)
        assert turn.ended.done(), "it runs on in a session that no list shows"
        assert turn.ended.result()[0].state == "cancelled"


async def test_prompt_joins_its_turn_by_its_key(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        first = prompt(session, idempotency="mine", fingerprint="words")
        assert await session.accept_unattended(first) is first
        again = prompt(session, idempotency="mine", fingerprint="words")
        assert await session.accept_unattended(again) is first
        await asyncio.wait_for(first.ended, 30)
        assert (await session.accept_unattended(again)).turn_id == first.turn_id
        with pytest.raises(InvalidParams):
            await session.accept_unattended(
                prompt(session, idempotency="mine", fingerprint="others")
            )
        assert len(await r.states()) == 1


async def test_words_under_another_key_are_another_prompt(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        first = prompt(session, "hang", idempotency="one", fingerprint="words")
        await session.accept_unattended(first)
        session.deduplication.expect(first)  # its caller is gone, and may send it again
        second = prompt(session, "hang", idempotency="two", fingerprint="words")
        assert await session.accept_unattended(second) is second
        unnamed = prompt(session, "hang", fingerprint="words")
        assert await session.accept_unattended(unnamed) is first


async def test_unopened_conversation_has_folder_of_its_name(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        await folders.ensure(session, tmp_path)
        assert session.options.cwd == "/"  # a client has said where
        session.record.cwd, session.record.conversation_name = None, "wa-andy-1@g.us"
        session.next_worker.change(replace(session.options, cwd=""))
        await folders.ensure(session, tmp_path)
        assert session.options.cwd == str(tmp_path / "conversations" / "wa-andy-1@g.us")
        assert session.record.cwd is None


@pytest.mark.parametrize("name", ["../up", "a/b", "..", ".", "", "nul\0"])
async def test_name_that_leads_elsewhere_has_no_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidParams):
        await folders.of_conversation(tmp_path, name)
