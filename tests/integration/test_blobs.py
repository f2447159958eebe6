"""Images and files of prompts: kept once, beside the database, as long as a session has them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import stat
import threading
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pykoclaw_acp.model.events import Event, ImagePart, ToolEnded, UserMessage
from pykoclaw_acp.model.imports import ImportedPiece, TranscriptRow
from pykoclaw_acp.model.turns import SessionRecord
from pykoclaw_acp.store import blobs, deletion, forking
from pykoclaw_acp.store.blob_files import BlobFiles
from pykoclaw_acp.store.database import Statement, Unit
from pykoclaw_acp.store.journal.restoring import SqlRestoreStore
from tests.integration.rig import Rig, rig
from tests.integration.wires import Wire, client, new, prompt
from tests.pictures import file, image, png
from tests.waiting import eventually

PICTURE = png(5, 5)
NAME = hashlib.sha256(PICTURE).hexdigest()
OTHER = png(6, 6)
LARGE = png(80, 80, noise=True)
SAY = {"type": "text", "text": "say 1"}


def files(path: Path) -> list[str]:
    return sorted(one.name for one in (path / "blobs").glob("*"))


def pictures(session: str, *content: dict[str, Any]) -> dict[str, Any]:
    return {**prompt(session, ""), "prompt": [*(content or (image(PICTURE),)), SAY]}


async def test_shared_bytes_go_with_last_session(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        first, second = await new(wire), await new(wire)
        for session in (first, second):
            await wire.call("session/prompt", **pictures(session))
        await wire.call("session/prompt", **pictures(second, image(OTHER), file("f:a", PICTURE)))
        assert len(files(tmp_path)) == 2
        contents = r.launcher.launched[1].contents
        assert contents[0][0] == image(PICTURE)
        assert contents[1][1]["blob"] == image(PICTURE)["data"]
        await r.journal.delete(first)
        assert len(files(tmp_path)) == 2
        await r.journal.delete(second)
        assert files(tmp_path) == []
        assert await r.database.read("SELECT * FROM acp_blobs") == []


async def test_interrupted_deletion_is_completed(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        await wire.call("session/prompt", **pictures(session))
        hide = Statement(
            "UPDATE acp_sessions SET deleted_at = 1 WHERE acp_session_id = ?", (session,)
        )
        await r.database.commit(Unit(statements=(hide,)))
        await blobs.remove_unused(r.database, session)  # and then the daemon died
        assert files(tmp_path) == []
        await deletion.purge(r.database)
        assert await r.database.read("SELECT * FROM acp_blobs") == []


async def test_irremovable_file_holds_up_no_deletion(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        one, other = await new(wire), await new(wire)
        await wire.call("session/prompt", **pictures(one))
        await wire.call("session/prompt", **prompt(other, "say 1"))
        (tmp_path / "blobs" / NAME).unlink()
        (tmp_path / "blobs" / NAME).mkdir()
        for session in (one, other):
            assert (await wire.call("session/delete", sessionId=session))["result"] == {}
        assert await r.database.read("SELECT * FROM acp_turns") == []
        assert await r.database.read("SELECT * FROM acp_blobs") == []


async def test_what_is_being_committed_is_spared(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        await wire.call("session/prompt", **pictures(session))
        async with r.database.blobs.kept({NAME: PICTURE}):
            await r.journal.delete(session)
            assert files(tmp_path) == [NAME]


async def test_file_that_is_being_written_is_no_orphan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, looked = threading.Event(), threading.Event()
    fsync = os.fsync

    def slowly(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith(".part"):
            writing.set()
            assert looked.wait(60)
        fsync(descriptor)

    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        monkeypatch.setattr(os, "fsync", slowly)
        prompt = asyncio.ensure_future(wire.call("session/prompt", **pictures(session)))
        await eventually(writing.is_set)
        await blobs.remove_orphans(r.database)
        looked.set()
        assert (await prompt)["result"]["stopReason"] == "end_turn"


async def test_damaged_bytes_are_words_until_they_come_again(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        await wire.call("session/prompt", **pictures(session))
        for damage in (b"x" * len(PICTURE), b"", None):
            path = tmp_path / "blobs" / NAME
            path.unlink()
            if damage is not None:
                path.write_bytes(damage)
            await wire.call("session/load", sessionId=session, cwd="/", mcpServers=[])
            assert "is missing or damaged" in str(wire.updates())
            await wire.call("session/prompt", **pictures(session))
            assert path.read_bytes() == PICTURE


async def test_prompt_whose_bytes_cannot_be_written_is_refused(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        (tmp_path / "blobs").write_text("no directory")
        error = (await wire.call("session/prompt", **pictures(session)))["error"]
        assert error["code"] == -32011
        assert error["data"]["retryable"] is True
        assert await r.states() == {}
        assert await r.database.read("SELECT * FROM acp_blobs") == []
        await wire.call("session/prompt", **prompt(session, "say 1"))


async def test_worker_of_an_earlier_version_is_replaced(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        r.launcher.blocks = False
        await wire.call("session/prompt", **prompt(session, "say 1"))
        await wire.call("session/prompt", **prompt(session, "say 1"))
        assert len(r.launcher.launched) == 1
        r.launcher.blocks = True
        await wire.call("session/prompt", **pictures(session))
        old, made = r.launcher.launched
        assert len(old.contents) == 2
        assert made.contents == [[image(PICTURE), SAY]]


async def test_a_copied_log_keeps_its_bytes(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        first, second = await new(wire), await new(wire)
        await wire.call("session/prompt", **pictures(first))
        await r.database.commit(Unit(statements=(blobs.share(first, second),)))
        await r.journal.delete(first)
        assert files(tmp_path) == [NAME]


async def _half_imported(r: Rig, store: SqlRestoreStore, deleted: str) -> SessionRecord:
    """A session in the making that has a picture of one that is deleted meanwhile."""
    made = SessionRecord("made", "acp-made", "/")
    await store.begin_restoring(made)
    said = ToolEnded("call", "completed", content=(ImagePart(image(LARGE)["data"], "image/png"),))
    await store.restore("made", 0, [said], {})
    await r.journal.delete(deleted)
    return made


async def test_import_keeps_its_bytes_whatever_is_deleted(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session, store = await new(wire), SqlRestoreStore(r.database)
        await wire.call("session/prompt", **pictures(session, image(LARGE)))
        made = await _half_imported(r, store, session)
        await store.end_restoring(made, [], None)
        await wire.call("session/load", sessionId="made", cwd="/", mcpServers=[])
        assert shows(wire) == [["image", image(LARGE)["data"]]]
        await r.journal.delete("made")
        assert files(tmp_path) == []


async def test_abandoned_import_leaves_no_bytes(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, client(r) as wire:
        session, store = await new(wire), SqlRestoreStore(r.database)
        await wire.call("session/prompt", **pictures(session, image(LARGE)))
        await _half_imported(r, store, session)  # and then the daemon died
        assert len(files(tmp_path)) == 1
        await forking.abandon(r.database)
        await deletion.purge(r.database)
        assert files(tmp_path) == []


async def test_images_of_tools_are_kept_as_files(tmp_path: Path) -> None:
    """Shown live and in a replay as they came; in the row if no file can be written."""
    data = png(80, 80, noise=True)
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        running = wire.begin("session/prompt", **prompt(session, "hang"))
        await eventually(lambda: r.launcher.launched and r.launcher.launched[0].prompts)
        (worker,) = r.launcher.launched
        (turn,) = await r.states()
        parts = (ImagePart(image(data)["data"], "image/png"), ImagePart("AAAA", "image/png"))
        ends = [ToolEnded(f"call-{at}", "completed", content=parts) for at in range(2)]

        async def say(event: Event, shown: int) -> None:
            frame = worker.event(turn, "")
            worker.say(msgspec.structs.replace(frame, event=event))
            await eventually(lambda: len(shows(wire)) == shown)

        await say(ends[0], 1)
        assert files(tmp_path) == [hashlib.sha256(data).hexdigest()]
        (tmp_path / "blobs").rename(tmp_path / "away")
        (tmp_path / "blobs").write_text("no directory")
        await say(ends[1], 2)
        (tmp_path / "blobs").unlink()
        (tmp_path / "away").rename(tmp_path / "blobs")
        rows = await r.database.read(
            "SELECT LENGTH(payload) FROM acp_log WHERE kind = 'tool_ended' ORDER BY seq"
        )
        assert rows[0][0] < 1000 < len(data) < rows[1][0]
        wire.send({"method": "session/cancel", "params": {"sessionId": session}})
        await wire.answer(running)
        live = shows(wire)
        wire.lines.clear()
        await wire.call("session/load", sessionId=session, cwd="/", mcpServers=[])
        assert shows(wire) == live == [["image", image(data)["data"], "AAAA"]] * 2
        await r.journal.delete(session)
        assert files(tmp_path) == []


def shows(wire: Wire) -> list[list[str]]:
    """What the ends of tool calls show."""
    return [
        ["image", *(part["content"]["data"] for part in one["content"])]
        for one in wire.updates()
        if one["sessionUpdate"] == "tool_call_update"
    ]


async def test_images_of_a_transcript_are_kept_as_files(tmp_path: Path) -> None:
    data = png(80, 80, noise=True)
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        said = UserMessage("m", image(data), origin="terminal")
        row = TranscriptRow("claude", "/x", 1, 1, 1, 1, "", None, False)
        await r.journal.commit_piece(session, ImportedPiece(row, [("source", said)]))
        assert files(tmp_path) == [hashlib.sha256(data).hexdigest()]
        (logged,) = await r.journal.read(session, 0, 10)
        assert logged.size < 1000


async def test_files_are_private(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir(mode=0o755)
    mask = os.umask(0)
    try:
        async with BlobFiles(tmp_path).kept({NAME: PICTURE}):
            pass
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "blobs").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "blobs" / NAME).stat().st_mode) == 0o600


async def test_only_one_large_prompt_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others wait in the pipe, until its bytes are on disk; other clients do not."""
    async with rig(tmp_path) as r, client(r) as wire, client(r) as other:
        sessions = [await new(wire) for _ in range(3)]
        kept, gate, begun = r.database.blobs.kept, asyncio.Event(), 0

        @contextlib.asynccontextmanager
        async def slow(given: Mapping[str, bytes]) -> AsyncIterator[None]:
            nonlocal begun
            begun += bool(given)
            if given:
                await gate.wait()
            async with kept(given):
                yield

        monkeypatch.setattr(r.database.blobs, "kept", slow)
        large = image(png(700, 700, noise=True))
        asked = [wire.begin("session/prompt", **pictures(one, large)) for one in sessions]
        await eventually(lambda: begun == 1)
        await other.call("session/prompt", **prompt(await new(other), "say 1"))
        assert begun == 1
        gate.set()
        for one in asked:
            assert (await wire.answer(one))["result"]["stopReason"] == "end_turn"
        assert begun == 3


@pytest.mark.parametrize("link", [True, False])
async def test_links_and_pipes_as_blobs_are_unread(tmp_path: Path, link: bool) -> None:
    (tmp_path / "secret").write_bytes(PICTURE)
    (tmp_path / "blobs").mkdir()
    path = tmp_path / "blobs" / NAME
    if link:
        path.symlink_to(tmp_path / "secret")
    else:
        os.mkfifo(path)
    assert await BlobFiles(tmp_path).read(NAME, len(PICTURE)) is None
