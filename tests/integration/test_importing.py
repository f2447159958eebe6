"""An exported session becomes a session elsewhere, and a hostile file nothing more than that."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import errno
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.model.events import (
    BY_WORDS,
    Event,
    Failure,
    ImagePart,
    Location,
    ModeChanged,
    Plan,
    PlanEntry,
    Text,
    TextPart,
    Thinking,
    TitleChanged,
    ToolEnded,
    ToolStarted,
    Usage,
    UserMessage,
)
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.protocol.control.exports import FORMAT
from pykoclaw_acp.server import import_control, imported_lines
from pykoclaw_acp.sessions.context_summary import ContextSummary
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.store import deletion, forking
from pykoclaw_acp.store.blob_files import DIRECTORY
from pykoclaw_acp.store.database import Database, Unit
from pykoclaw_acp.store.journal.restoring import SqlRestoreStore
from tests.integration.callers import Caller, caller
from tests.integration.rig import Rig, rig
from tests.waiting import eventually

PNG = base64.b64encode(
    base64.b64decode(
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    )
    + b"\0" * 20_000
).decode()
HEAD = {
    "format": FORMAT,
    "version": 1,
    "program": "9.9",
    "session": {"summary": {"title": "A parser"}},
}
SAID: list[Event] = [
    UserMessage("u1", {"type": "text", "text": "Fix the parser."}, "terminal"),
    UserMessage("u2", {"type": "image", "mimeType": "image/png", "data": PNG}),
    UserMessage("u3", {"type": "resource_link", "uri": "file:///a.py", "name": "a.py"}),
    Thinking("a1", "Hm."),
    Text("a2", "I look."),
    ToolStarted("t1", "Bash", "Bash: ls", "execute", {"command": "ls"}, (), (Location("/w/a", 3),)),
    ToolEnded("t1", "completed", (TextPart("a.py"), ImagePart(PNG, "image/png"))),
    Plan((PlanEntry("Fix it", "in_progress"),)),
    Text("n1", "Note.", note=True),
    Failure("f1", "Overloaded.", "overloaded"),
    Text("a3", "It is fixed."),
    ToolStarted("t2", "Bash", "Bash: sleep", "execute"),
]
STATE: list[Event] = [TitleChanged("A parser", BY_WORDS), ModeChanged("plan"), Usage(1, 2)]


async def upload(cli: Caller, lines: list[Any]) -> str:
    data = "".join(json.dumps(line) + "\n" for line in lines).encode()
    name = None
    for at in range(0, len(data), 100_000):
        piece = base64.b64encode(data[at : at + 100_000]).decode()
        name = (await cli.call("import/piece", data=piece, upload=name))["upload"]
    assert name is not None
    return str(name)


async def exported(path: Path, events: list[Event]) -> list[Any]:
    """The lines of an export of a session with these events."""
    async with rig(path) as r, caller(r, path) as cli:
        session = await r.session()
        await r.journal.append(session.id, events)
        session.record.last_seq = len(events)
        await cli.call("follow", session=session.id, events=True)
        return [HEAD, *cli.told("event")]


async def log(r: Rig, session_id: str) -> list[Any]:
    session = await r.sessions.get(session_id)
    return [
        (await session.log.whole(one)).event for one in await r.journal.read(session_id, 0, 1000)
    ]


async def _has_none(r: Rig, sql: str) -> Any:
    return not await r.database.read(sql)


async def listed(r: Rig) -> list[str]:
    return [one.session_id for one in (await r.sessions.catalogue.page()).sessions]


async def test_import_through_link_is_listed_by_place(tmp_path: Path) -> None:
    for name in ("here", "there", "real"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to("real")
    lines = await exported(tmp_path / "here", SAID)
    async with rig(tmp_path / "there") as r, caller(r, tmp_path / "there") as cli:
        name = await upload(cli, lines)
        made = await cli.call("import/finish", upload=name, cwd=str(tmp_path / "link"))
        for directory in ("link", "real"):
            page = await r.sessions.catalogue.page(cwd=str(tmp_path / directory))
            assert [one.session_id for one in page.sessions] == [made["session"]]


async def test_a_session_goes_on_elsewhere(tmp_path: Path) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    cwd = str(tmp_path)
    lines = await exported(tmp_path / "here", [*SAID[:2], *STATE, *SAID[2:]])
    assert not any("event" in one and one["event"] for one in lines[1:3]), "only what updates lack"
    async with rig(tmp_path / "there") as r, caller(r, tmp_path / "there") as cli:
        other = await r.session()
        made = await cli.call("import/finish", upload=await upload(cli, lines), cwd=cwd)
        session: Session = await r.sessions.get(made["session"])
        assert (made["title"], made["leftOut"], made["summary"]) == ("A parser", 0, True)
        *kept, closed, tasks, titled, note = await log(r, session.id)
        assert kept == SAID
        assert (closed, titled) == (ToolEnded("t2", "failed"), TitleChanged("A parser"))
        assert tasks == Plan(()), "this Claude has none"
        assert "exported by pykoclaw-acp `9.9`" in note.text
        names = {row[0] for row in await r.database.read("SELECT sha256 FROM acp_blobs")}
        assert len(names) == 1, "an image is kept once, as a file"
        assert (session.record.cwd, session.record.mode, session.record.claude_session_id) == (
            cwd,
            None,
            None,
        )
        assert session.id in await listed(r)
        assert session.id != other.id
        await r.run(session, "say 1")
        worker = r.launcher.launched[-1]
        assert worker.spec.resume_session_id is None
        told = str(worker.contents[-1][0]["text"])
        assert "You have no record of it yourself" in told
        assert "Asked: Fix the parser." in told
        assert "Tools: Bash (2)" in told
        assert "Answered: I look.\nIt is fixed." in told
        assert "Note." not in told
        await r.run(session, "say 1")
        assert len(worker.contents[-1]) == 1, "once"
        again = await cli.call("import/finish", upload=await upload(cli, lines), cwd=cwd)
        assert again["session"] != session.id


@pytest.mark.parametrize("events", [[], [Text("n1", "Note.", note=True)]])
async def test_import_without_content_promises_no_summary(
    tmp_path: Path, events: list[Event]
) -> None:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    lines = await exported(tmp_path / "here", events)
    async with rig(tmp_path / "there") as r, caller(r, tmp_path / "there") as cli:
        name = await upload(cli, lines)
        made = await cli.call("import/finish", upload=name, cwd=str(tmp_path))
        assert made["summary"] is False
        note = (await log(r, made["session"]))[-1]
        assert "summary" not in note.text
        assert "It has nothing that could be summarized" in note.text
        session: Session = await r.sessions.get(made["session"])
        await r.run(session, "say 1")
        assert len(r.launcher.launched[-1].contents[-1]) == 1


def line(kind: str, content: Any = None, event: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "update": {"sessionUpdate": kind, "messageId": "m", "content": content, **more},
        "event": event,
    }


async def test_hostile_lines_name_nothing_of_this_machine(
    tmp_path: Path,
) -> None:
    secret = {"holds": "data", "sha256": "a" * 64, "size": 20_000}
    image = {"type": "image", "mimeType": "image/png"}
    text = {"type": "text", "text": "x"}
    ended = {"kind": "tool_ended", "tool_call_id": "t", "status": "completed"}
    deep: Any = []
    for _ in range(500):
        deep = [deep]
    lines: list[Any] = [
        HEAD,
        line("user_message_chunk", {**image, **secret}),
        line("user_message_chunk", {**image, "data": "no base64"}),
        line("user_message_chunk", {"type": "resource", **secret, "uri": "file:///etc/passwd"}),
        line("user_message_chunk", text, messageId="x" * 1000),
        line("user_message_chunk", text, messageId=["x"]),
        line("agent_message_chunk", 7),
        line("agent_message_chunk", text, _meta=[1]),
        line("tool_call_update", None, {**ended, "content": [
            {**image, "mime_type": "image/png", "data": "", "sha256": "b" * 64, "size": 1}]}),
        line("tool_call_update", None, {**ended, "tool_call_id": "x" * 1000}),
        line("tool_call_update", None, {**ended, "content": [{"type": "text", "text": "x" * 2_000_000}]}),
        line("tool_call", None, {"kind": "of a newer version"}),
        line("current_mode_update", None, {"kind": "mode_changed", "mode": "bypassPermissions"}),
        line("session_info_update", None, {"kind": "title_changed", "title": "Other"}),
        line("whatever", deep), deep, 7, "x", None, {}, {"update": None},
        line("agent_message_chunk", text, messageId="last"),
    ]  # fmt: skip
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        made = await cli.call("import/finish", upload=await upload(cli, lines), cwd="/w")
        session = await r.sessions.get(made["session"])
        *kept, titled, _ = await log(r, session.id)
        assert titled.title == "A parser"
        assert session.record.mode is None
        words = [one.content["text"] for one in kept if isinstance(one, UserMessage)]
        assert words == [imported_lines.LOST] * 3
        assert [one.content for one in kept if isinstance(one, ToolEnded)] == [
            (TextPart(imported_lines.LOST),)
        ]
        assert kept[-1] == Text("last", "x")
        assert made["leftOut"] == 18
        assert await r.database.read("SELECT * FROM acp_blobs") == []
        rows = await r.database.read("SELECT payload FROM acp_log")
        assert not any("aaaa" in row[0] or "bbbb" in row[0] for row in rows)


async def test_imported_words_hold_no_control_characters(tmp_path: Path) -> None:
    raw = {"type": "text", "text": "a\x1b[31mb\x07"}
    ended = {"kind": "tool_ended", "tool_call_id": "t", "status": "completed", "content": [raw]}
    kinds = ("user_message_chunk", "agent_thought_chunk", "agent_message_chunk")
    lines = [HEAD, *(line(kind, raw) for kind in kinds), line("tool_call_update", None, ended)]
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        made = await cli.call("import/finish", upload=await upload(cli, lines), cwd="/w")
        assert (await log(r, made["session"]))[:4] == [
            UserMessage("m", {"type": "text", "text": "ab"}),
            Thinking("m", "ab"),
            Text("m", "ab"),
            ToolEnded("t", "completed", (TextPart("ab"),)),
        ]


@pytest.mark.parametrize(
    ("head", "words"),
    [
        ({**HEAD, "version": 2}, "has version 2"),
        ({**HEAD, "format": "other"}, "not a session that was exported"),
        ({"session": {}}, "not a session that was exported"),
        ([1], "not a session that was exported"),
    ],
)
async def test_what_cannot_be_read_is_refused_in_words(
    tmp_path: Path, head: Any, words: str
) -> None:
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        name = await upload(cli, [head])
        assert words in (await cli.refused("import/finish", upload=name, cwd="/w"))["message"]
        assert (
            "Begin again" in (await cli.refused("import/finish", upload=name, cwd="/w"))["message"]
        )
        name = await upload(cli, [HEAD])
        assert (
            "absolute" in (await cli.refused("import/finish", upload=name, cwd="../w"))["message"]
        )
        for data in ("!", "ä"):
            assert "base64" in (await cli.refused("import/piece", data=data))["message"]
        assert await listed(r) == []


async def test_uploads_are_few_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pykoclaw_acp.server.import_control.MAX_SIZE", 10)
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        eight = base64.b64encode(b"12345678").decode()
        made = [(await cli.call("import/piece", data=eight))["upload"] for _ in range(4)]
        assert "Try again" in (await cli.refused("import/piece", data=eight))["message"]
        assert await cli.call("import/abandon", upload=made.pop()) == {}
        assert await cli.call("import/abandon", upload="gone") == {}
        made.append((await cli.call("import/piece", data=eight))["upload"])
        with monkeypatch.context() as later:
            later.setattr("pykoclaw_acp.server.import_control.GIVES_WAY", -1)
            made = [(await cli.call("import/piece", data=eight))["upload"]]
        made += [(await cli.call("import/piece", data=eight))["upload"] for _ in range(3)]
        assert (
            "larger" in (await cli.refused("import/piece", data=eight, upload=made[0]))["message"]
        )
        assert not [name for name in os.listdir(tmp_path) if name.startswith("tmp")]
        for name in made[1:]:
            await cli.call("import/abandon", upload=name)


def held(path: Path) -> list[str]:
    """Files in this directory that this process has open, and that are in no directory any more."""
    found: list[str] = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return [one for one in found if one.startswith(str(path)) and one.endswith("(deleted)")]


async def test_abandoned_upload_takes_no_disk_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a command that was killed: no other import has to begin for that."""
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        left = (await cli.call("import/piece", data=""))["upload"]
        assert len(held(tmp_path)) == 1
        monkeypatch.setattr("pykoclaw_acp.server.import_control.ABANDONED", 0.01)
        await cli.call("import/piece", data="", upload=left)
        await eventually(lambda: not held(tmp_path))
        assert "Begin again" in (await cli.refused("import/piece", data="", upload=left))["message"]


async def test_running_import_keeps_no_other_call_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on, begin = list[str](), asyncio.Event(), SqlRestoreStore.begin_restoring

    async def slow(store: SqlRestoreStore, record: SessionRecord) -> None:
        begun.append(record.session_id)
        await goes_on.wait()
        await begin(store, record)

    monkeypatch.setattr(SqlRestoreStore, "begin_restoring", slow)
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        made = [
            cli.begin("import/finish", upload=await upload(cli, [HEAD]), cwd="/w") for _ in range(4)
        ]
        try:
            await eventually(lambda: begun)
            assert await cli.call("questions/list") == []
            assert await cli.call("workers/list") == []
            assert "Try again" in (await cli.refused("import/piece", data=""))["message"]
            assert len(begun) == 1, "one import at a time"
        finally:
            goes_on.set()
        await eventually(lambda: cli.answers.keys() >= set(made))
        assert len({cli.answers[one]["result"]["session"] for one in made}) == 4


async def test_line_of_too_many_values_is_left_out(tmp_path: Path) -> None:
    """They would be built in one call, which takes a second for each MiB."""
    said = {"type": "text", "text": "x"}
    lines = [
        HEAD,
        line("agent_message_chunk", said, more=[[]] * 100_000),
        line("agent_message_chunk", {"type": "text", "text": ", " * 200_000}),
    ]
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        made = await cli.call("import/finish", upload=await upload(cli, lines), cwd="/w")
        assert made["leftOut"] == 1
        kept = await log(r, made["session"])
        assert "".join(one.text for one in kept if isinstance(one, Text) and not one.note) == (
            ", " * 200_000
        )


async def test_import_that_fails_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it would fill the disk until the next start, where nobody can delete it."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    lines = await exported(tmp_path / "here", [SAID[1]] * 3)
    monkeypatch.setattr(imported_lines, "MOST_LINES", 2)
    monkeypatch.setattr(import_control, "MOST_EVENTS", 1)
    async with rig(tmp_path / "there") as r, caller(r, tmp_path / "there") as cli:
        session = await r.session()
        await r.journal.append(session.id, [Text("m", "Kept.")])
        await cli.refused("import/finish", upload=await upload(cli, lines), cwd="/w")

        async def is_gone() -> Any:
            rows = "SELECT 1 FROM acp_log WHERE kind <> 'text' UNION SELECT 1 FROM acp_blobs"
            files = (tmp_path / "there" / DIRECTORY).rglob("*")
            return not await r.database.read(rows) and not any(one.is_file() for one in files)

        await eventually(is_gone)
        assert len(await log(r, session.id)) == 1


@pytest.mark.parametrize("full", ["at once", "later"])
async def test_full_disk_refuses_export_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full: str
) -> None:
    def temporary(**_: object) -> object:
        if full == "at once":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return open("/dev/full", "w+b")

    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        with monkeypatch.context() as disk:
            disk.setattr(tempfile, "TemporaryFile", temporary)
            for _ in range(import_control.MOST_UPLOADS + 1):
                refused = await cli.refused("import/piece", data=PNG[:64])
                assert "export cannot be kept in" in refused["message"]
                assert "No space left on device" in refused["message"]
                assert refused["data"]["errorKind"] == "store_blocked"
        await cli.call("import/finish", upload=await upload(cli, [HEAD]), cwd="/w")


async def test_import_that_fails_says_so_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while what it has left cannot be deleted, as on a full disk."""
    given_up = asyncio.Event()
    monkeypatch.setattr(imported_lines, "MOST_LINES", 0)
    monkeypatch.setattr(SqlRestoreStore, "give_up", lambda *_: given_up.wait())
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        name = await upload(cli, [HEAD, line("agent_message_chunk", {"type": "text", "text": "x"})])
        refusing = cli.refused("import/finish", upload=name, cwd="/w")
        assert "more than 0 entries" in (await asyncio.wait_for(refusing, 60))["message"]
        given_up.set()


async def test_partial_session_is_never_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [
        HEAD,
        *(line("agent_message_chunk", {"type": "text", "text": "x"}) for _ in range(1200)),
    ]
    monkeypatch.setattr(imported_lines, "MOST_LINES", 1000)
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        refused = await cli.refused("import/finish", upload=await upload(cli, many), cwd="/w")
        assert "more than 1,000 entries" in refused["message"]
        hidden = "SELECT 1 FROM acp_sessions WHERE deleted_at = 0"
        await eventually(lambda: _has_none(r, hidden))
        session = await r.session()
        store = SqlRestoreStore(r.database)
        await store.begin_restoring(session.record.__class__("hidden", "acp-hidden", "/w"))
        await store.restore("hidden", 0, [Text("m", "Half.")], {})  # and the daemon dies
        assert await r.sessions.find("hidden") is None
        await forking.abandon(r.database)
        await deletion.purge(r.database)
        assert await r.database.read("SELECT * FROM acp_log") == []
        assert (
            await r.database.read(
                "SELECT name FROM conversations WHERE name <> ?",
                (session.record.conversation_name,),
            )
            == []
        )


async def test_calls_without_ends_are_ended_in_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One commit for all of them would keep the other sessions' waiting."""
    sizes: list[int] = []
    real = Database.commit

    async def commit(self: Database, unit: Unit, *, patient: bool = False) -> list[int]:
        sizes.append(len(unit.events))
        return await real(self, unit, patient=patient)

    monkeypatch.setattr(Database, "commit", commit)
    calls = [
        line(
            "tool_call",
            None,
            {
                "kind": "tool_started",
                "tool_call_id": f"t{n}",
                "name": "Read",
                "title": "Read",
                "tool_kind": "read",
            },
        )
        for n in range(1000)
    ]
    async with rig(tmp_path) as r, caller(r, tmp_path) as cli:
        made = await cli.call("import/finish", upload=await upload(cli, [HEAD, *calls]), cwd="/w")
        events = [one.event for one in await r.journal.read(made["session"], 0, 5000)]
        ended = {one.tool_call_id for one in events if isinstance(one, ToolEnded)}
        assert len(ended) == 1000
        assert max(sizes) < 500


def test_summary_has_newest_turns_and_counts_missing() -> None:
    told = ContextSummary()
    assert told.text() == ""
    for n in range(10):
        told.follow(UserMessage(f"u{n}", {"type": "text", "text": f"Question {n},"}))
        told.follow(UserMessage(f"i{n}", {"type": "image", "mimeType": "image/png"}))
        told.follow(Text(f"a{n}", f"answer {n}" + "x" * 10_000))
    assert told.text().startswith(
        "(2 earlier turns are left out.)\n\nAsked: Question 2,\n(image)\n"
    )
    assert "Question 9," in told.text()
    assert len(told.text()) < 20_000
