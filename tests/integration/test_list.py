"""`session/list`, `session/delete`, archiving and titles, as clients see them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pykoclaw_acp.errors import StoreUnavailable
from pykoclaw_acp.model import conversations
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.model.conversations import Conversation
from pykoclaw_acp.model.found_transcripts import FoundTranscript, Removed
from pykoclaw_acp.model.listing import ListPosition, ListQuery
from pykoclaw_acp.protocol import list_cursor
from pykoclaw_acp.server.side_tasks import remove_transcripts
from pykoclaw_acp.sessions import catalogue
from pykoclaw_acp.store import forking, found_transcripts, summaries
from pykoclaw_acp.store.readers import ReaderPool
from pykoclaw_acp.store.units import Statement, Unit
from tests.databases import files_of
from tests.integration.callers import caller
from tests.integration.programs import upsert_row
from tests.integration.rig import LISTS, Rig, rig
from tests.integration.wires import Wire, client, hanging, new, prompt
from tests.waiting import eventually
from tests.workers import OPTIONS


async def told(wire: Wire, text: str = "say 1") -> str:
    session = await new(wire)
    answer = await wire.call("session/prompt", **prompt(session, text))
    assert answer["result"]["stopReason"] == "end_turn"
    return session


async def page(wire: Wire, **params: Any) -> dict[str, Any]:
    return dict((await wire.call("session/list", **params))["result"])


async def ids(wire: Wire, **params: Any) -> list[str]:
    return [one["sessionId"] for one in (await page(wire, **params))["sessions"]]


async def test_list_pages_hold_while_sessions_come_and_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "PAGE", 2)
    async with rig(tmp_path) as r, client(r) as wire:
        made = [await told(wire) for _ in range(5)]
        await new(wire)  # never prompted
        first = await page(wire)
        assert [one["sessionId"] for one in first["sessions"]] == [made[4], made[3]]
        await wire.call("session/delete", sessionId=made[3])
        made.append(await told(wire))
        second = await page(wire, cursor=first["nextCursor"])
        assert [one["sessionId"] for one in second["sessions"]] == [made[2], made[1]]
        third = await page(wire, cursor=second["nextCursor"])
        assert [one["sessionId"] for one in third["sessions"]] == [made[0]]
        assert "nextCursor" not in third


async def test_sessions_of_one_moment_are_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages end between them, and none is left out or comes twice."""
    monkeypatch.setattr(catalogue, "PAGE", 2)
    async with rig(tmp_path) as r, client(r) as wire:
        made = [await told(wire) for _ in range(5)]
        at_once = Statement("UPDATE acp_sessions SET updated_at = 1767225600000")
        await r.database.commit(Unit((at_once,)))
        listed: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            found = await page(wire, **({"cursor": cursor} if cursor else {}))
            listed += [one["sessionId"] for one in found["sessions"]]
            cursor = found.get("nextCursor")
        assert listed == sorted(made, reverse=True)


async def test_a_row_says_where_when_and_what(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        cwd = str(tmp_path)
        params = {"cwd": cwd, "mcpServers": [], "additionalDirectories": ["/tmp"]}
        session = (await wire.call("session/new", **params))["result"]["sessionId"]
        await wire.call("session/prompt", **prompt(session, "say 1"))
        (row,) = (await page(wire))["sessions"]
        assert row.pop("updatedAt").endswith("Z")
        assert row == {
            "sessionId": session,
            "cwd": cwd,
            "additionalDirectories": ["/tmp"],
            "title": "say 1",
            "archived": False,
        }
        link = tmp_path / "link"
        link.symlink_to(tmp_path)
        assert await ids(wire, cwd=str(link)) == [session]
        assert await ids(wire, cwd="/") == []


async def test_session_with_added_directories_is_listed_once(tmp_path: Path) -> None:
    """Where it works, however often its directories are among those that were added."""
    work, added = tmp_path / "work", tmp_path / "added"
    for one in (work, added, work / "below"):
        one.mkdir()
    async with rig(tmp_path) as r, client(r) as wire:
        more = [str(work), str(added), str(work / "below")]
        params = {"cwd": str(work), "mcpServers": [], "additionalDirectories": more}
        session = (await wire.call("session/new", **params))["result"]["sessionId"]
        await wire.call("session/prompt", **prompt(session, "say 1"))
        assert await ids(wire) == [session]
        assert await ids(wire, cwd=str(work)) == [session]
        assert await ids(wire, cwd=str(added)) == []


async def test_all_paths_to_a_directory_list_its_sessions(tmp_path: Path) -> None:
    real, link, other = tmp_path / "real", tmp_path / "link", tmp_path / "other"
    real.mkdir()
    other.mkdir()
    link.symlink_to(real)
    paths = [str(link), f"{real}/", str(real)]
    async with rig(tmp_path) as r, client(r) as wire:
        made = []
        for cwd in paths:
            answer = await wire.call("session/new", cwd=cwd, mcpServers=[])
            made.append(answer["result"]["sessionId"])
            await wire.call("session/prompt", **prompt(made[-1], "say 1"))
        for cwd in paths:
            rows = (await page(wire, cwd=cwd))["sessions"]
            assert {one["sessionId"]: one["cwd"] for one in rows} == dict(
                zip(made, paths, strict=True)
            )
        earlier = Statement("UPDATE acp_sessions SET real_cwd = NULL")  # as before the column
        await r.database.commit(Unit((earlier,)))
        assert made[0] not in await ids(wire, cwd=str(real))
        await wire.call("session/load", sessionId=made[0], cwd=str(link), mcpServers=[])
        assert made[0] in await ids(wire, cwd=str(real))
        link.unlink()
        link.symlink_to(other)
        await wire.call("session/load", sessionId=made[0], cwd=str(link), mcpServers=[])
        assert await ids(wire, cwd=str(other)) == [made[0]]


@pytest.mark.parametrize(
    ("column", "damaged", "shown"),
    [
        ("updated_at", "zzz", {"updatedAt": None}),
        ("updated_at", b"\xff", {"updatedAt": None}),
        ("updated_at", -5, {"updatedAt": None}),
        ("updated_at", 10**18, {"updatedAt": None}),
        ("title", b"\xff\x00", {"title": None}),
        ("additional_directories", "[5, ", {"additionalDirectories": None}),
        ("additional_directories", '["/a", 5]', {"additionalDirectories": ["/a"]}),
        ("conversation_name", b"\xff", {"title": "say 1"}),
    ],
)
async def test_damaged_row_hides_no_other_from_list(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    column: str,
    damaged: object,
    shown: dict[str, Any],
) -> None:
    monkeypatch.setattr(catalogue, "PAGE", 1)
    async with rig(tmp_path) as r, client(r) as wire:
        made = [await told(wire) for _ in range(3)]
        damage = f"UPDATE acp_sessions SET {column} = ? WHERE acp_session_id = ?"
        await r.database.commit(Unit((Statement(damage, (damaged, made[1]), rows=1),)))
        listed: dict[str, dict[str, Any]] = {}
        cursor: str | None = ""
        while cursor is not None:
            found = await page(wire, **({"cursor": cursor} if cursor else {}))
            assert not listed.keys() & {one["sessionId"] for one in found["sessions"]}
            listed |= {one["sessionId"]: one for one in found["sessions"]}
            cursor = found.get("nextCursor")
        assert listed.keys() >= set(made)  # and the conversation that lost its session's name
        for name, value in shown.items():
            assert listed[made[1]].get(name) == value
        rows = summaries.listing(r.database, every=True, limit=10)
        assert {one.id async for one in await rows} >= set(listed)


@pytest.mark.parametrize(
    "params",
    [
        {"cursor": "no cursor"},
        {"cursor": ""},
        {"cursor": "é"},
        {"cursor": list_cursor.encode(ListPosition(1, "x")) + "="},
        {"cursor": "Mjo1Ong"},
        {"cursor": "a" * 100_000},
        {"cursor": 5},
        {"cwd": "relative"},
        {"archived": "maybe"},
    ],
)
async def test_unlistable_request_is_refused(tmp_path: Path, params: dict[str, Any]) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        error = (await wire.call("session/list", **params))["error"]
        assert error["code"] == -32602
        assert f"`{next(iter(params))}`" in error["message"]


async def test_other_channels_conversation_is_named_or_hidden(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        await upsert_row(r.database, Conversation("wa-andy", "claude", str(tmp_path)))
        (row,) = (await page(wire))["sessions"]
        assert row["_meta"] == {"pykoclaw.dev/channel": "wa"}
        assert row["sessionId"] == conversations.id_of("wa-andy")
        assert "result" in await wire.call(
            "session/load", sessionId=row["sessionId"], cwd=row["cwd"], mcpServers=[]
        )
        (row,) = (await page(wire))["sessions"]
        assert row["_meta"] == {"pykoclaw.dev/channel": "wa"}
        r.sessions.catalogue.settings = replace(LISTS, hide_channels=("wa",))
        assert await ids(wire) == []


@pytest.mark.parametrize("name", ["wa-andy", "acp-1a2b3c4d"])
async def test_directorys_list_has_what_can_open_there(tmp_path: Path, name: str) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        await upsert_row(r.database, Conversation(name, "claude", "/folders"))
        cwd = str(tmp_path)
        (row,) = (await page(wire, cwd=cwd))["sessions"]
        assert (row["sessionId"], row["cwd"]) == (conversations.id_of(name), cwd)
        params = {"sessionId": row["sessionId"], "mcpServers": []}
        assert "result" in await wire.call("session/load", **params, cwd=row["cwd"])
        assert (await wire.call("session/load", **params, cwd="/"))["error"]["code"] == -32602
        assert await ids(wire, cwd="/") == []
        assert await ids(wire, cwd=cwd) == [row["sessionId"]]


async def test_two_column_tables_session_is_everywhere_until_opened(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        await upsert_row(r.database, Conversation("acp-1a2b3c4d", "claude", "/folders"))
        adopted = (
            "INSERT INTO acp_sessions (acp_session_id, conversation_name, cwd, created_at, updated_at)"
            " VALUES ('1a2b3c4d-x', 'acp-1a2b3c4d', '/folders', 5, 5)"
        )
        await r.database.commit(Unit((Statement(adopted, rows=1),)))
        cwd = str(tmp_path)
        assert [one["cwd"] for one in (await page(wire))["sessions"]] == ["/folders"]
        (row,) = (await page(wire, cwd=cwd))["sessions"]
        assert (row["sessionId"], row["cwd"]) == ("1a2b3c4d-x", cwd)
        await wire.call("session/load", sessionId=row["sessionId"], cwd=cwd, mcpServers=[])
        assert await ids(wire, cwd="/") == await ids(wire, cwd="/folders") == []
        assert await ids(wire, cwd=cwd) == [row["sessionId"]]


async def test_conversation_that_replaces_another_is_listed(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        for name in ("acp-11111111", "acp-22222222"):
            await upsert_row(r.database, Conversation(name, "claude", "/"))
            assert await ids(wire) == [conversations.id_of(name)]
            await r.database.commit(Unit((Statement("DELETE FROM conversations"),)))


async def test_deleting_ends_turn_and_removes_words(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session, running, _, _ = await hanging(r, wire)
        assert "result" in await wire.call("session/delete", sessionId=session)
        assert (await wire.answer(running))["result"]["stopReason"] == "cancelled"
        assert not r.pool.is_live(session)
        assert await ids(wire) == []
        for table in ("acp_turns", "acp_log"):
            assert await r.database.read(f"SELECT 1 FROM {table}") == []
        error = (await wire.call("session/load", sessionId=session, cwd="/", mcpServers=[]))[
            "error"
        ]
        assert error["code"] == -32002
        assert "result" in await wire.call("session/delete", sessionId=session)
        assert "result" in await wire.call("session/delete", sessionId="never there")
        kept = await r.database.read("SELECT claude_session_id FROM acp_deleted_transcripts")
        assert (session,) in kept


async def test_a_conversation_that_nobody_opened_can_be_deleted(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        await upsert_row(r.database, Conversation("wa-andy", "claude", "/"))
        assert "result" in await wire.call(
            "session/delete", sessionId=conversations.id_of("wa-andy")
        )
        assert await ids(wire) == []
        assert await r.database.read("SELECT session_id FROM conversations") == [("claude",)]


async def test_archiving_closes_the_session_and_keeps_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session, running, _, _ = await hanging(r, wire)
        assert (await wire.call("session/archive", sessionId=session))["result"] == {}
        assert (await wire.answer(running))["result"]["stopReason"] == "cancelled"
        assert await ids(wire) == []
        assert await ids(wire, archived="only") == await ids(wire, archived="include") == [session]
        for every in (True, False):
            shown = await summaries.listing(r.database, every=every, limit=9)
            assert [one.archived_at is None async for one in shown] == [False] * every
        error = (await wire.call("session/prompt", **prompt(session, "say 1")))["error"]
        assert error["code"] == -32600
        await wire.call("session/load", sessionId=session, cwd="/", mcpServers=[])
        assert (await wire.call("session/unarchive", sessionId=session))["result"] == {}
        assert await ids(wire) == [session]
        answer = await wire.call("session/prompt", **prompt(session, "say 2"))
        assert answer["result"]["stopReason"] == "end_turn"
        for method in ("session/archive", "session/unarchive"):
            assert (await wire.call(method, sessionId="unknown"))["error"]["code"] == -32002


async def test_a_title_is_stored_told_and_kept(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire, client(r) as other:
        session = await told(wire)
        await other.call("session/load", sessionId=session, cwd="/", mcpServers=[])
        stored = await wire.call("session/set_title", sessionId=session, title="  My\n title ")
        assert stored["result"] == {"title": "My title"}
        for one in (wire, other):
            await eventually(lambda one=one: "My title" in [u.get("title") for u in one.updates()])  # type: ignore[misc]
        await wire.call("session/prompt", **prompt(session, "say 2"))
        assert [one["title"] for one in (await page(wire))["sessions"]] == ["My title"]
        refused = await wire.call("session/set_title", sessionId=session, title=" \n ")
        assert refused["error"]["code"] == -32602
        unknown = await wire.call("session/set_title", sessionId="unknown", title="x")
        assert unknown["error"]["code"] == -32002


CLAUDE = "cccccccc-cccc-4ccc-8ccc-cccccccccccc"


class Transcripts:
    """Claude's transcripts: one session, in `cwd`."""

    def __init__(self, cwd: str) -> None:
        self.there = {CLAUDE: FoundTranscript("/x", CLAUDE, 1, 1, cwd, "A title", 5, True)}
        self.removed: list[set[str]] = []
        self.left: tuple[str, ...] = ()
        self.refreshed = 0

    async def refresh(self) -> None:
        self.refreshed += 1

    async def find(self, claude_session_id: str) -> FoundTranscript | None:
        return self.there.get(claude_session_id)

    async def remove(self, claude_session_ids: Collection[str]) -> Removed:
        self.removed.append(set(claude_session_ids))
        left_of = frozenset({CLAUDE} if self.left else ())
        return Removed(CLAUDE in claude_session_ids, self.left, left_of)


def with_transcripts(r: Rig, cwd: str = "/", **settings: str) -> Transcripts:
    made = Transcripts(cwd)
    r.sessions.catalogue.transcripts = made
    r.sessions.catalogue.settings = replace(LISTS, **{"list_transcripts": "on", **settings})  # type: ignore[arg-type]
    return made


async def test_a_transcript_becomes_one_session_and_is_resumed(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire, client(r) as other:
        with_transcripts(r)
        params = {"sessionId": CLAUDE, "cwd": "/", "mcpServers": []}
        calls = [one.begin("session/load", **params) for one in (wire, other)]
        for one, call in zip((wire, other), calls, strict=True):
            assert "result" in await one.answer(call)
        (row,) = (await page(wire))["sessions"]
        assert (row["sessionId"], row["title"], row["cwd"]) == (CLAUDE, "A title", "/")
        await wire.call("session/prompt", **prompt(CLAUDE, "say 1"))
        (launched,) = r.launcher.launched
        assert launched.spec.resume_session_id == CLAUDE
        assert len(await r.database.read("SELECT 1 FROM conversations")) == 1


@pytest.mark.parametrize(
    ("left", "mode"),
    [
        (None, "dontAsk"),
        ("plan", "plan"),
        ("acceptEdits", "acceptEdits"),
        ("default", "dontAsk"),
        ("bypassPermissions", "dontAsk"),
        ("auto", "dontAsk"),
        ("whatever", "dontAsk"),
    ],
)
async def test_transcript_brings_only_modes_that_ask(
    tmp_path: Path, left: str | None, mode: str
) -> None:
    options = msgspec.structs.replace(OPTIONS, permission_mode="dontAsk", bypass=True)
    async with rig(tmp_path, options=options) as r, client(r) as wire:
        found = with_transcripts(r)
        found.there[CLAUDE] = replace(found.there[CLAUDE], mode=left)
        opened = await wire.call("session/resume", sessionId=CLAUDE, cwd="/", mcpServers=[])
        assert opened["result"]["modes"]["currentModeId"] == mode
        await wire.call("session/prompt", **prompt(CLAUDE, "say 1"))
        assert r.launcher.launched[0].spec.options.permission_mode == mode


async def test_commands_know_sessions_of_a_terminal(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as command:
        found = with_transcripts(r)
        shown = await command.call("sessions/show", session=CLAUDE)
        assert (shown["summary"]["id"], shown["summary"]["title"]) == (CLAUDE, "A title")
        prompted = await command.call("prompt", session=CLAUDE, text="say 1")
        assert (prompted["session"], prompted["state"]) == (CLAUDE, "done")
        assert r.launcher.launched[0].spec.resume_session_id == CLAUDE
        for word in ("unknown", CLAUDE[:8].replace("c", "d")):
            assert (await command.refused("sessions/show", session=word))["code"] == -32002
        await command.call("sessions/delete", session=CLAUDE)
        assert CLAUDE in found.there
        assert (await command.refused("sessions/show", session=CLAUDE))["code"] == -32002


async def test_a_transcript_keeps_its_directory(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        with_transcripts(r, "/usr")
        params = {"sessionId": CLAUDE, "mcpServers": []}
        error = (await wire.call("session/load", **params, cwd="/"))["error"]
        named = {"sessionCwd": "/usr", "cwd": "/", "instead": "session/fork"}
        assert (error["code"], error["data"]) == (-32602, named)
        assert await r.database.read("SELECT 1 FROM acp_sessions") == []
        assert "result" in await wire.call("session/load", **params, cwd="/usr")


@pytest.mark.parametrize("cwd", ["/gone/since", "/"])
async def test_transcript_of_gone_directory_is_opened(tmp_path: Path, cwd: str) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        with_transcripts(r, "/gone/since")
        params = {"sessionId": CLAUDE, "mcpServers": []}
        assert "result" in await wire.call("session/load", **params, cwd=cwd)
        rows = await r.database.read("SELECT cwd FROM acp_sessions")
        assert rows == [(cwd,)]


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_transcript_of_other_account_is_not_opened(tmp_path: Path, method: str) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        found = with_transcripts(r)
        found.there[CLAUDE] = replace(found.there[CLAUDE], account="work")
        params = {"sessionId": CLAUDE, "mcpServers": [], "cwd": "/"}
        other = await wire.call(method, **params, _meta={"pykoclaw.dev/account": "default"})
        assert (other["error"]["code"], other["error"]["data"]) == (-32602, {"account": "work"})
        assert await r.database.read("SELECT 1 FROM acp_sessions") == []
        same = {"pykoclaw.dev/account": "work"}
        assert "result" in await wire.call("session/load", **params, _meta=same)


async def test_newest_of_terminals_stand_among_sessions(tmp_path: Path) -> None:
    """A limit leaves out the oldest, whatever began them."""
    async with rig(tmp_path) as r, client(r) as wire:
        ours = await new(wire)
        await wire.call("session/prompt", **prompt(ours, "say 1"))
        later = await r.database.read("SELECT updated_at FROM acp_sessions")
        for name, at in (("old", 1), ("new", later[0][0] + 1)):
            found = FoundTranscript(f"/{name}", name, 1, 1, "/", name, at, True)
            await r.database.commit(Unit(tuple(found_transcripts.keep("/f", found))))
        for limit, expected in ((2, ["new", ours]), (9, ["new", ours, "old"])):
            listed = await summaries.listing(r.database, every=False, limit=limit, terminals=True)
            assert [one.id async for one in listed] == expected


async def test_transcripts_make_no_sessions_if_that_is_off(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        found = with_transcripts(r, list_transcripts="off")
        params = {"sessionId": CLAUDE, "cwd": "/", "mcpServers": []}
        assert (await wire.call("session/load", **params))["error"]["code"] == -32002
        await page(wire)
        assert found.refreshed == 0


async def test_unopened_transcript_can_be_named_archived_and_deleted(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        found = with_transcripts(r)
        await wire.call("session/set_title", sessionId=CLAUDE, title="Mine")
        await wire.call("session/archive", sessionId=CLAUDE)
        (row,) = (await page(wire, archived="only"))["sessions"]
        assert (row["title"], row["updatedAt"]) == ("Mine", "1970-01-01T00:00:00.005Z")
        await wire.call("session/delete", sessionId=CLAUDE)
        params = {"sessionId": CLAUDE, "cwd": "/", "mcpServers": []}
        assert (await wire.call("session/load", **params))["error"]["code"] == -32002
        assert found.removed == []


async def test_a_deleted_transcript_makes_no_session(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        found = with_transcripts(r, delete_transcripts="on")
        await wire.call("session/delete", sessionId=CLAUDE)
        await wire.call("session/delete", sessionId="unknown")
        assert found.removed == [{CLAUDE}]
        params = {"sessionId": CLAUDE, "cwd": "/", "mcpServers": []}
        assert (await wire.call("session/load", **params))["error"]["code"] == -32002
        session = await told(wire)
        await wire.call("session/delete", sessionId=session)
        assert session in found.removed[1]


async def test_transcript_is_deleted_where_lists_lack_it(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        with_transcripts(r, list_transcripts="off")
        assert (await wire.call("session/delete", sessionId=CLAUDE))["result"] == {}
        with_transcripts(r)
        params = {"sessionId": CLAUDE, "cwd": "/", "mcpServers": []}
        assert (await wire.call("session/load", **params))["error"]["code"] == -32002


async def test_deletion_says_what_became_of_the_transcript(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        catalogue = r.sessions.catalogue
        assert await catalogue.delete(await told(wire)) is None, "no transcript is deleted at all"
        with_transcripts(r, delete_transcripts="on")
        assert await catalogue.delete(CLAUDE) == Removed(some=True)
        assert await catalogue.delete(await told(wire)) == Removed()


async def test_undeleted_transcript_is_tried_by_the_next_server(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        found = with_transcripts(r, delete_transcripts="on")
        found.left = ("/x",)
        session = await told(wire)
        for one in (CLAUDE, session):
            await wire.call("session/delete", sessionId=one)
    async with rig(tmp_path) as r:
        catalogue = r.sessions.catalogue
        unwanted = with_transcripts(r)
        await catalogue.finish_removals()
        assert unwanted.removed == [], "the setting is off now"
        for left in (("/x",), ()):
            found = with_transcripts(r, delete_transcripts="on")
            found.left = left
            await catalogue.finish_removals()
            assert found.removed == [{CLAUDE}]
        await catalogue.finish_removals()
        assert len(found.removed) == 1, "nothing is left"


async def test_deletion_itself_removes_its_transcript(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no earlier one: that is for whoever finishes removals, who leaves those under way."""
    async with rig(tmp_path) as r, client(r) as wire:
        catalogue, found = r.sessions.catalogue, with_transcripts(r, delete_transcripts="on")
        found.left = ("/x",)
        await catalogue.delete(CLAUDE)
        session, remove = await told(wire), found.remove

        async def finishing(claude_session_ids: Collection[str]) -> Removed:
            monkeypatch.setattr(found, "remove", remove)
            await catalogue.finish_removals()
            return await remove(claude_session_ids)

        monkeypatch.setattr(found, "remove", finishing)
        await catalogue.delete(session)
        assert found.removed[:2] == [{CLAUDE}, {CLAUDE}]
        assert len(found.removed) == 3
        assert session in found.removed[2]


async def test_deletion_does_not_wait_for_removals_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def locked(_: object) -> None:
        raise StoreUnavailable(DatabaseState.LOCKED, "Another program keeps it locked.")

    async with rig(tmp_path) as r, client(r) as wire:
        found = with_transcripts(r, delete_transcripts="on")
        monkeypatch.setattr(r.journal, "transcripts_removed", locked)
        assert (await wire.call("session/delete", sessionId=CLAUDE))["result"] == {}
        assert found.removed == [{CLAUDE}]
        assert await r.journal.transcripts_to_remove() == {CLAUDE}


async def test_transcript_stays_for_unprompted_fork(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        found = with_transcripts(r, delete_transcripts="on")
        session = await told(wire)
        params = {"sessionId": session, "cwd": "/", "mcpServers": []}
        fork = (await wire.call("session/fork", **params))["result"]["sessionId"]
        await wire.call("session/delete", sessionId=session)
        await r.sessions.catalogue.finish_removals()  # as the next server
        assert found.removed == []
        removing = asyncio.create_task(remove_transcripts(r.sessions, r.database), name="remove")
        await wire.call("session/prompt", **prompt(fork, "say 1"))
        await r.sessions.catalogue.finish_removals()
        assert found.removed == [], "the fork may be rewound to before its first turn"
        await wire.call("session/delete", sessionId=fork)
        assert fork in found.removed[0]
        await eventually(lambda: len(found.removed) == 2)
        assert session in found.removed[1], "no fork needs it any more"
        removing.cancel()
        await asyncio.wait([removing])
        await r.sessions.catalogue.finish_removals()
        assert len(found.removed) == 2


async def test_transcript_stays_for_fork_made_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r, client(r) as wire, client(r) as other:
        found = with_transcripts(r, delete_transcripts="on")
        session = await told(wire)
        fork, delete = forking.fork, r.journal.delete
        copying, deleting = asyncio.Event(), asyncio.Event()

        async def slow_fork(*given: Any) -> None:
            copying.set()
            await deleting.wait()
            await fork(*given)

        async def late_delete(*given: Any) -> None:
            deleting.set()
            forked.append((await other.answer(call))["result"]["sessionId"])
            await delete(*given)

        monkeypatch.setattr(forking, "fork", slow_fork)
        monkeypatch.setattr(r.journal, "delete", late_delete)
        forked: list[str] = []
        call = other.begin("session/fork", sessionId=session, cwd="/", mcpServers=[])
        await copying.wait()
        assert (await wire.call("session/delete", sessionId=session))["result"] == {}
        await r.sessions.catalogue.finish_removals()  # as the next server
        assert found.removed == []
        await wire.call("session/delete", sessionId=forked[0])
        await r.sessions.catalogue.finish_removals()
        assert found.removed[1:] == [{session}]


async def test_a_transcript_is_forked_unopened_into_another_directory(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        with_transcripts(r, "/gone/since")
        params = {"sessionId": CLAUDE, "cwd": "/", "mcpServers": []}
        fork = (await wire.call("session/fork", **params))["result"]["sessionId"]
        listed = {one["sessionId"]: one["cwd"] for one in (await page(wire))["sessions"]}
        assert listed[CLAUDE] == "/gone/since"
        assert fork != CLAUDE


async def test_transcripts_of_other_channels_stay(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        found = with_transcripts(r, delete_transcripts="on")
        await upsert_row(r.database, Conversation("wa-andy", CLAUDE, "/"))
        await wire.call("session/delete", sessionId=conversations.id_of("wa-andy"))
        assert found.removed == []


async def test_earlier_plugins_conversation_is_found_by_transcript(
    tmp_path: Path,
) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        with_transcripts(r)
        await upsert_row(r.database, Conversation("acp-12345678", CLAUDE, "/"))
        params = {"sessionId": CLAUDE, "cwd": "/", "mcpServers": []}
        assert "result" in await wire.call("session/load", **params)
        rows = await r.database.read("SELECT conversation_name FROM acp_sessions")
        assert rows == [("acp-12345678",)]


async def test_a_page_costs_the_same_among_many_sessions(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        few = await _pages(r, 200)
        many = await _pages(r, 5_000)
        assert many < 1.5 * few, (few, many)


async def test_deletion_costs_the_same_among_many_deleted(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        few = await _deletion(r, 200)
        many = await _deletion(r, 5_000)
        assert many < 1.5 * few, (few, many)


async def _pages(r: Rig, count: int) -> int:
    """Steps of SQLite for a page of the list, and one of a directory, with so many sessions more."""
    await _insert(r, count)
    await r.journal.listed(ListQuery(1))  # the conversations are looked through once
    async with _counted(r) as steps:
        for cwds in (None, ("/w",)):
            query = ListQuery(51, ListPosition(100, "x"), cwds, transcripts=True)
            assert len(await r.journal.listed(query)) == 51
    return steps()


async def _deletion(r: Rig, count: int) -> int:
    """Steps of SQLite for a deletion, with so many deleted sessions more."""
    await _insert(r, count)
    deleted = Statement("UPDATE acp_sessions SET deleted_at = 1, alias_of = NULL")
    await r.database.commit(Unit((deleted,)))
    session = await r.session()
    async with _counted(r) as steps:
        await r.journal.delete(session.id)
    return steps()


async def _insert(r: Rig, count: int) -> None:
    for first in range(0, count, 500):
        rows = [Statement(_SESSION, (f"{count}-{n}", n)) for n in range(first, first + 500)]
        rows += [Statement(_CONVERSATION, (f"{count}-{n}",)) for n in range(first, first + 500)]
        found = [Statement(_FOUND, (f"t{count}-{n}", n)) for n in range(first, first + 500)]
        await r.database.commit(Unit((*rows, *found)))


@asynccontextmanager
async def _counted(r: Rig) -> AsyncIterator[Callable[[], int]]:
    """Counts the steps of all that reads meanwhile."""
    steps = 0

    def count_steps() -> int:
        nonlocal steps
        steps += 1
        return 0

    readers = files_of(r.database).readers
    for reader in readers:
        await reader.run(lambda connection: connection.set_progress_handler(count_steps, 10))
    yield lambda: steps
    for reader in readers:
        await reader.run(lambda connection: connection.set_progress_handler(None, 0))


_SESSION = (
    "INSERT INTO acp_sessions (acp_session_id, conversation_name, cwd, created_at, updated_at, prompted_at)"
    " SELECT ?1, 'acp-' || ?1, '/w', ?2, ?2, 1"
)
_CONVERSATION = (
    "INSERT INTO conversations (name, session_id, created_at) VALUES ('acp-' || ?, 'claude', '')"
)
_FOUND = (
    "INSERT INTO acp_found_transcripts (path, folder, claude_session_id, size, mtime, cwd, updated_at, listed)"
    " SELECT ?1, '/p', ?1, 1, '1', '/w', ?2, 1"
)


def test_a_place_before_1970_is_a_place() -> None:
    place = ListPosition(-86_400_000, "one")
    assert list_cursor.decode(list_cursor.encode(place)) == place


async def test_a_page_is_one_trip_to_a_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        trips: list[object] = []
        read = ReaderPool.read_with

        async def counted(self: ReaderPool, work: Any) -> Any:
            trips.append(work)
            return await read(self, work)

        monkeypatch.setattr(ReaderPool, "read_with", counted)
        await r.journal.listed(ListQuery(10, None, ("/a", "/b"), transcripts=True))
        assert len(trips) == 1
