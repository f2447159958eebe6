"""A result whose turn the log has from its transcript is not shown again; any other one is."""

from __future__ import annotations

import json
import threading
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.model.events import Event, Text, UserMessage
from pykoclaw_acp.model.imports import ImportedPiece, TranscriptRow, TranscriptTurn
from pykoclaw_acp.sessions import delivered_turns
from pykoclaw_acp.sessions.other_programs import OtherPrograms
from pykoclaw_acp.store.journal.deliveries import SqlDeliveryStore
from pykoclaw_acp.system import disks
from tests.integration.delivering import attached, delivering, name
from tests.integration.queueing import enqueue, execute, fetch, status
from tests.integration.rig import Rig, hanging, rig
from tests.waiting import eventually

CREATED = datetime(2026, 11, 22, 10, 0, tzinfo=UTC)
SOON, LONG_BEFORE = CREATED - timedelta(seconds=5), CREATED - timedelta(hours=1)


def is_delivered(path: Path, delivery: str) -> bool:
    return status(path, delivery) == "delivered"


def times_said(path: Path) -> int:
    """How often the session's log says "Done."."""
    found = fetch(path, "SELECT payload FROM acp_log")
    return sum(payload.count("Done.") for (payload,) in found)


async def imported(
    r: Rig, session: str, transcript: Path, said_at: datetime | None, said: str = "Done."
) -> None:
    """A turn that another program ran, and what Claude said in it."""
    entry = {"uuid": "said", "timestamp": said_at and said_at.isoformat()}
    transcript.write_text(  # noqa: ASYNC240
        "no entry: said\n" + json.dumps(entry) + "\n"
    )
    row = TranscriptRow("claude", str(transcript), 1, 1, 1, 1, "", "asked", related=True)
    asked = UserMessage("asked", {"type": "text", "text": "Is it done?"})
    turn = TranscriptTurn("asked", "claude", last_uuid="said")
    events: list[tuple[str, Event]] = [("asked:0", asked), ("said:0", Text("m", said))]
    await r.journal.commit_piece(session, ImportedPiece(row, events, [turn]))


@pytest.mark.parametrize(
    ("said_at", "created", "shown"),
    [
        (SOON, CREATED.isoformat(), False),
        (LONG_BEFORE, CREATED.isoformat(), True),
        (None, CREATED.isoformat(), True),
        (SOON, "some day", True),
    ],
)
async def test_result_is_omitted_only_if_run_was_imported(
    tmp_path: Path, said_at: datetime | None, created: str, *, shown: bool
) -> None:
    path = tmp_path / "pykoclaw.db"
    async with rig(tmp_path) as r:
        session, _ = await attached(r)
        await imported(r, session.id, tmp_path / "claude.jsonl", said_at)
        delivery = enqueue(path, name(session), "Done.", at=created)
        async with delivering(r):
            await eventually(partial(is_delivered, path, delivery))
        assert times_said(path) == (2 if shown else 1)


@pytest.mark.parametrize("followed", ["claude", "another"])
async def test_claude_gets_whole_result_that_it_lacks(tmp_path: Path, followed: str) -> None:
    path, result = tmp_path / "pykoclaw.db", f"{'long ' * 1000}Done."
    async with rig(tmp_path) as r:
        session, _ = await attached(r)
        await imported(r, session.id, tmp_path / "claude.jsonl", SOON, result)
        await r.journal.follow_transcript(session.id, followed, told=False)
        delivery = enqueue(path, name(session), result, at=CREATED.isoformat())
        async with delivering(r):
            await eventually(partial(is_delivered, path, delivery))
        assert times_said(path) == 1
        notes = await r.journal.pending_notes(session.id)
        assert [result in one.text for one in notes] == ([] if followed == "claude" else [True])


@pytest.mark.parametrize(("last", "times"), [("said", 1), ("more", 2)])
async def test_turn_counts_though_another_ends_after_it(
    tmp_path: Path, last: str, times: int
) -> None:
    path, transcript = tmp_path / "pykoclaw.db", tmp_path / "claude.jsonl"
    async with rig(tmp_path) as r:
        session, _ = await attached(r)
        await imported(r, session.id, transcript, SOON)
        row = TranscriptRow("claude", str(transcript), 2, 2, 2, 2, "", "asked", related=True)
        more = [("more:0", Text("n", "Of a program that was killed."))]
        await r.journal.commit_piece(session.id, ImportedPiece(row, more, last={"asked": last}))
        delivery = enqueue(path, name(session), "Done.", at=CREATED.isoformat())
        async with delivering(r):
            await eventually(partial(is_delivered, path, delivery))
        assert times_said(path) == times


async def test_turn_counts_once_also_for_the_next_daemon(tmp_path: Path) -> None:
    path = tmp_path / "pykoclaw.db"
    async with rig(tmp_path) as r:
        session, _ = await attached(r)
        await imported(r, session.id, tmp_path / "claude.jsonl", SOON)
        for count in (1, 2):
            delivery = enqueue(path, name(session), "Done.", at=CREATED.isoformat())
            async with delivering(r):
                await eventually(partial(is_delivered, path, delivery))
            assert times_said(path) == count


async def test_result_is_shown_though_its_transcript_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()
    monkeypatch.setattr(disks, "WAIT", 0.05)
    monkeypatch.setattr(delivered_turns, "written_at", lambda *_: answers.wait() and SOON)
    path = tmp_path / "pykoclaw.db"
    async with rig(tmp_path) as r:
        session, _ = await attached(r)
        await imported(r, session.id, tmp_path / "claude.jsonl", SOON)
        delivery = enqueue(path, name(session), "Done.", at=CREATED.isoformat())
        try:
            async with delivering(r):
                await eventually(partial(is_delivered, path, delivery), timeout=20)
        finally:
            answers.set()
        assert times_said(path) == 2


async def test_others_turn_counts_if_taken_in_late(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pykoclaw.db"
    looks, look = 0, OtherPrograms.look_if_possible

    async def counted(others: OtherPrograms) -> None:
        nonlocal looks
        await look(others)
        looks += 1

    async with rig(tmp_path) as r:
        session, turn, channel = await hanging(r)
        monkeypatch.setattr(OtherPrograms, "look_if_possible", counted)
        delivery = enqueue(path, name(session), "Done.", at=CREATED.isoformat())
        async with delivering(r):
            await eventually(lambda: looks == len(delivered_turns.LOOKS))
            await imported(r, session.id, tmp_path / "claude.jsonl", SOON)  # which ours had delayed
            channel.say(channel.event(turn.turn_id, "Mine."), channel.ended(turn.turn_id))
            await eventually(partial(is_delivered, path, delivery))
        assert times_said(path) == 1


async def test_twin_is_looked_for_beside_the_row_only(tmp_path: Path) -> None:
    path = tmp_path / "pykoclaw.db"
    async with rig(tmp_path) as r:
        session, _ = await attached(r)
        store, read, plans = SqlDeliveryStore(r.database), r.database.read, list[str]()
        enqueue(path, name(session), "Done.", at=CREATED.isoformat())
        execute(path, "UPDATE delivery_queue SET status = 'delivered'")
        execute(
            path,
            "INSERT INTO delivery_queue (id, task_id, conversation, channel_prefix, message, status, created_at)"
            " SELECT 'odd', task_id, conversation, channel_prefix, message, status, CAST(x'ff' AS TEXT)"
            " FROM delivery_queue",
        )
        delivery = await store.delivery(enqueue(path, name(session), "Done.", at=SOON.isoformat()))
        assert delivery is not None

        async def explained(sql: str, parameters: tuple[Any, ...]) -> list[tuple[Any, ...]]:
            plans.extend(step[3] for step in await read(f"EXPLAIN QUERY PLAN {sql}", parameters))
            return await read(sql, parameters)

        r.database.read = explained  # type: ignore[assignment]
        assert await store.has_twin(delivery)
        assert any("rowid>? AND rowid<?" in step for step in plans), plans
