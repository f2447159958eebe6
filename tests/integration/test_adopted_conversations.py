"""Conversations that other programs began, opened by clients: found by their ids, one session each."""

from __future__ import annotations

import asyncio
import re
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest

from pykoclaw_acp.model import conversations
from pykoclaw_acp.model.conversations import Conversation
from pykoclaw_acp.sessions import adopting
from pykoclaw_acp.store import summaries
from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.sqlite import sqlite3
from tests.integration.callers import caller
from tests.integration.linked import Front, front
from tests.integration.linked import words as prompt
from tests.integration.programs import upsert_row
from tests.integration.queueing import execute
from tests.integration.rig import Rig, rig

OLD: Final = "1a2b3c4d-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
LIKE_IT: Final = "1a2b3c4d-bbbb-4bbb-8bbb-bbbbbbbbbbbb"
NAME: Final = "acp-1a2b3c4d"
CLAUDE: Final = "cccccccc-cccc-4ccc-8ccc-cccccccccccc"
WHATSAPP: Final = "wa-andy-1@g.us"


async def began(r: Rig, name: str = NAME, claude: str | None = CLAUDE) -> None:
    """Another program has had a turn of this conversation."""
    await upsert_row(r.database, Conversation(name, claude, f"/folders/{name}", None))


async def load(one: Front, number: int, session: str, cwd: str = "/") -> dict[str, Any]:
    one.call(number, "session/load", sessionId=session, cwd=cwd, mcpServers=[])
    return await one.answer(number)


async def test_earlier_plugins_id_loads_in_clients_directory(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        await began(r)
        assert "result" in await load(one, 1, OLD, str(tmp_path))
        one.call(2, "session/prompt", **prompt(OLD, "say 1"))
        assert (await one.answer(2))["result"]["stopReason"] == "end_turn"
        (channel,) = r.launcher.launched
        assert channel.spec.resume_session_id == CLAUDE
        assert channel.spec.options.cwd == str(tmp_path)
        refused = await load(one, 3, OLD, "/")
        assert refused["error"]["code"] == -32602
        named = {"sessionCwd": str(tmp_path), "cwd": "/", "instead": "session/fork"}
        assert refused["error"]["data"] == named


async def test_fork_leaves_unopened_source_without_directory(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one, front(r, "two") as two:
        await began(r)
        made = await one.result(1, "session/fork", sessionId=OLD, cwd=str(tmp_path), mcpServers=[])
        assert made["sessionId"] != OLD
        rows = await r.database.read(
            "SELECT cwd, client FROM acp_sessions WHERE acp_session_id = ?", (OLD,)
        )
        assert rows == [(None, None)]
        assert "result" in await load(two, 1, OLD, "/")


async def test_resume_finds_conversation_and_next_daemon_knows_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        await began(r)
        await one.result(1, "session/resume", sessionId=OLD, cwd="/")
    async with rig(tmp_path) as r, front(r) as one:
        assert "error" in await load(one, 1, OLD, str(tmp_path))
        assert "result" in await load(one, 2, OLD)


async def test_first_of_two_alike_ids_gets_conversation(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        await began(r)
        assert "result" in await load(one, 1, LIKE_IT)
        error = (await load(one, 2, OLD))["error"]
        assert error["code"] == -32002
        assert error["message"].startswith("Session not found.")
        assert NAME in error["message"]
        assert "result" in await load(one, 3, LIKE_IT)


async def test_two_loads_at_once_make_one_session(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one, front(r, "front-2") as two:
        await began(r)
        answers = await asyncio.gather(*(load(each, 1, OLD) for each in (one, two)))
        assert all("result" in each for each in answers)
        assert await r.database.read("SELECT acp_session_id FROM acp_sessions") == [(OLD,)]


@pytest.mark.parametrize("claude", [None, ""])
async def test_conversation_never_prompted_is_not_found(tmp_path: Path, claude: str | None) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        await began(r, claude=claude)
        assert (await load(one, 1, OLD))["error"]["code"] == -32002
        assert (await load(one, 2, "no uuid"))["error"]["code"] == -32002
        assert (await load(one, 3, LIKE_IT, "/nowhere"))["error"]["code"] == -32002


async def test_directory_that_does_not_exist_is_dropped(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        await began(r)
        assert (await load(one, 1, OLD, "/nowhere"))["error"]["code"] == -32602
        assert "result" in await load(one, 2, OLD)


async def test_a_deleted_conversation_is_not_found_again(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        await began(r)
        await load(one, 1, OLD)
        await r.sessions.delete(await r.sessions.get(OLD))
        for number, session in enumerate((OLD, LIKE_IT, conversations.id_of(NAME)), 2):
            assert (await load(one, number, session))["error"]["code"] == -32002


def test_an_id_made_of_a_name_never_changes() -> None:
    assert conversations.id_of(WHATSAPP) == "c8ec37ea-3305-5675-8c89-4f3b9e2440fe"


@pytest.mark.parametrize("name", [WHATSAPP, "tg-1", "chat-ü", ""])
def test_an_id_is_known_by_its_beginning(name: str) -> None:
    made = conversations.id_of(name)
    assert all(conversations.id_begins(name, made[:length]) for length in range(37))
    assert not conversations.id_begins(name, made[1:])
    assert not conversations.id_begins(name, "no id")


async def test_other_channels_conversation_opens_by_id_from_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adopting, "PAGE", 2)
    async with rig(tmp_path) as r, front(r) as one:
        for name in (*(f"tg-{at}" for at in range(5)), WHATSAPP, "zz-1"):
            await began(r, name)
        session = conversations.id_of(WHATSAPP)
        assert "result" in await load(one, 1, session)
        one.call(2, "session/prompt", **prompt(session, "say 1"))
        await one.answer(2)
        assert r.launcher.launched[0].spec.resume_session_id == CLAUDE
        record = (await r.sessions.get(session)).record
        assert record.conversation_name == WHATSAPP
        assert record.title == "WhatsApp: andy-1@g.us"
        assert (await load(one, 3, conversations.id_of("wa-unknown")))["error"]["code"] == -32002


async def test_both_ids_of_earlier_conversation_reach_one_session(
    tmp_path: Path,
) -> None:
    made = conversations.id_of(NAME)
    for path, ids in ((tmp_path / "a", (made, OLD)), (tmp_path / "b", (OLD, made))):
        path.mkdir()
        async with rig(path) as r, front(r) as one:
            await began(r)
            for number, session in enumerate(ids, 1):
                assert "result" in await load(one, number, session)
            assert (await r.sessions.get(ids[1])).id == ids[0]
            assert (await load(one, 3, LIKE_IT))["error"]["code"] == -32002
        async with rig(path) as r, front(r) as one:
            assert (await r.sessions.get(ids[1])).id == ids[0]


TWO_COLUMNS: Final = (
    "CREATE TABLE conversations (name TEXT PRIMARY KEY, session_id TEXT, cwd TEXT, created_at TEXT NOT NULL)",
    "CREATE TABLE acp_sessions (acp_session_id TEXT PRIMARY KEY, conversation_name TEXT NOT NULL)",
    f"INSERT INTO conversations VALUES ('{NAME}', '{CLAUDE}', '/folders/{NAME}', '2026-01-01T00:00:00+00:00')",
    f"INSERT INTO acp_sessions VALUES ('{OLD}', '{NAME}')",
)


async def test_planned_tables_row_takes_clients_directory(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "pykoclaw.db")
    for statement in TWO_COLUMNS:
        connection.execute(statement)
    connection.commit()
    connection.close()
    async with rig(tmp_path) as r, front(r) as one:
        listed = await summaries.listing(r.database, every=False, limit=9)
        assert [(each.id, each.cwd, each.elsewhere) async for each in listed] == [(OLD, None, True)]
        assert (await load(one, 1, OLD, "/nowhere"))["error"]["code"] == -32602
        assert "result" in await load(one, 2, OLD)
        assert (await load(one, 3, OLD, str(tmp_path)))["error"]["code"] == -32602
    async with rig(tmp_path) as r, front(r) as one:
        assert (await load(one, 1, OLD, str(tmp_path)))["error"]["code"] == -32602


# --- for operators


async def listed(database: Database, **more: Any) -> list[str]:
    found = await summaries.listing(database, every=False, limit=100, **more)
    return [each.conversation async for each in found]


async def test_lists_show_conversations_that_nobody_has_opened(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r) as one:
        for name in (NAME, WHATSAPP, "tg-1", "notes"):
            await began(r, name)
        await began(r, "wa-never", None)
        await load(one, 1, OLD)
        assert await listed(r.database) == [NAME, "notes", "tg-1", WHATSAPP]
        assert await listed(r.database, hidden=("wa", "chat")) == [NAME, "tg-1"]
        assert await listed(r.database, hidden=("acp",)) == ["notes", "tg-1", WHATSAPP]
        found = await summaries.listing(r.database, every=False, limit=4)
        shown = {each.conversation: each async for each in found}
        whatsapp = shown[WHATSAPP]
        assert (whatsapp.id, whatsapp.channel) == (conversations.id_of(WHATSAPP), "wa")
        assert (whatsapp.title, whatsapp.cwd) == ("WhatsApp: andy-1@g.us", None)
        assert whatsapp.created_at == 1_767_225_600_000
        found = await summaries.listing(r.database, every=False, limit=2)
        assert len([each async for each in found]) == 2


async def test_conversation_is_resolved_by_name_or_id_prefix(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli, front(r) as one:
        await began(r, WHATSAPP)
        session = conversations.id_of(WHATSAPP)
        for word, create in ((WHATSAPP, 0), (session[:6], 0), (session, 0), (session, 1)):
            found = await cli.call("conversations/resolve", conversation=word, create=bool(create))
            assert found == {
                "session": session,
                "conversation": WHATSAPP,
                "channel": "wa",
                "cwd": None,
                "cut": {},
            }
        assert "result" in await load(one, 1, session)
        found = await cli.call("conversations/resolve", conversation=WHATSAPP)
        assert found["cwd"] == "/"
        await began(r, "tg-1")
        details = await cli.call("sessions/show", session="tg-1")
        assert details["claudeSession"] == CLAUDE
        refused = await cli.refused("conversations/resolve", conversation="wa-unknown")
        assert refused["code"] == -32002


async def test_row_of_bytes_hides_no_conversation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(adopting, "PAGE", 1)
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli, front(r) as one:
        await began(r, WHATSAPP)
        sql = "INSERT INTO conversations (name, session_id, cwd, created_at) VALUES "
        damaged = "(x'77612dff', 'x', '/', ''), (CAST(x'77612dff' AS TEXT), 'x', '/', '')"
        other = f"('tg-1', '{CLAUDE}', x'ff', ''), ('tg-2', x'ff', '/', '')"
        execute(r.database.path, f"{sql}{damaged}, {other}")
        found = await cli.call("conversations/resolve", conversation="wa-new@g.us", create=True)
        assert found["conversation"] == "wa-new@g.us"
        refused = await cli.refused("sessions/show", session="deadbeef")
        assert refused["code"] == -32002
        session = conversations.id_of(WHATSAPP)
        found = await cli.call("conversations/resolve", conversation=session[:6])
        assert found["session"] == session
        assert "result" in await load(one, 1, conversations.id_of("tg-1"))
        assert "error" in await load(one, 2, conversations.id_of("tg-2"))


async def test_name_to_begin_is_no_id(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        other = next(
            name
            for name in (f"wa-{n}" for n in count())
            if re.match(r"[a-f]{2}\d", conversations.id_of(name))
        )
        await began(r, other)
        session = conversations.id_of(other)
        name = f"{session[:2]}-{session[2]}"  # of a channel that is named with hexadecimal digits
        found = await cli.call("conversations/resolve", conversation=name, create=True)
        assert found["conversation"] == name


async def test_other_channels_conversation_begins_by_its_name(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli, front(r) as one:
        found = await cli.call("conversations/resolve", conversation=WHATSAPP, create=True)
        again = await cli.call("conversations/resolve", conversation=WHATSAPP, create=True)
        assert found == again
        session = conversations.id_of(WHATSAPP)
        assert found["session"] == session
        assert "result" in await load(one, 1, session)
        one.call(2, "session/prompt", **prompt(session, "say 1"))
        await one.answer(2)
        ((claude, cwd),) = await r.database.read(
            "SELECT session_id, cwd FROM conversations WHERE name = ?", (WHATSAPP,)
        )
        assert (claude, cwd) == (session, "/")
        await began(r, "wa-2", None)
        found = await cli.call("conversations/resolve", conversation="wa-2", create=True)
        assert found["session"] == conversations.id_of("wa-2")
        long = await cli.refused(
            "conversations/resolve", conversation="tg-" + "é" * 200, create=True
        )
        assert (long["code"], "255 bytes" in long["message"]) == (-32602, True)
        for name in ("acp-unknown", "notes"):
            refused = await cli.refused("conversations/resolve", conversation=name, create=True)
            assert refused["code"] == -32602
