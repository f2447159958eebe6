"""Contract of `sessions.ports.DeliveryStore`: what waits is shown once, or given up."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from pykoclaw_acp.errors import Conflict
from pykoclaw_acp.model.deliveries import Delivery, ImportedDelivery, WaitingDeliveries, note, shown
from pykoclaw_acp.model.events import Event, Text, UserMessage
from pykoclaw_acp.model.imports import ImportedPiece, TranscriptRow, TranscriptTurn
from pykoclaw_acp.model.turns import SessionRecord
from tests.integration.journals import BOTH, Subject, events, places, subject
from tests.integration.programs import TASK
from tests.twins.rows import QueuedDelivery

AT = "2026-01-01T00:0{}:00+00:00"
NEWS = QueuedDelivery("d1", "acp-one", "News.", created_at=AT.format(1))
BRANCHES = {"first": None, "side": None, "newest": "first"}  # turns, and which each goes on from


@pytest.fixture(params=BOTH)
async def s(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as made:
        yield made


async def statuses(s: Subject) -> list[str]:
    return [one.status for one in await s.others.queue()]


async def queued(s: Subject, row: QueuedDelivery = NEWS) -> Delivery:
    await s.others.enqueue(row)
    delivery = await s.deliveries.delivery(row.delivery_id or "")
    assert delivery is not None
    return delivery


async def test_deliveries_wait_by_session_in_their_order(s: Subject) -> None:
    await s.session(), await s.session("two")
    assert await s.deliveries.waiting() == []
    later = replace(NEWS, delivery_id="d0", created_at=AT.format(2))
    for row in (
        later,
        NEWS,
        replace(NEWS, delivery_id="d2"),
        replace(NEWS, delivery_id="d3", conversation="two", created_at=AT.format(3)),
        replace(NEWS, delivery_id="d4", status="delivered"),
        replace(NEWS, delivery_id="d5", conversation="acp-nobody"),
        replace(NEWS, delivery_id="d6", channel="wa"),
        replace(NEWS, delivery_id="d7", conversation="one", channel="12345678"),
        replace(NEWS, delivery_id="d8", channel="12345678"),
    ):
        await s.others.enqueue(row)
    expected = [
        WaitingDeliveries("one", False, ["d1", "d2", "d7", "d0"]),
        WaitingDeliveries("two", False, ["d3"]),
    ]
    assert await s.deliveries.waiting() == expected
    assert await s.deliveries.waiting() == expected


async def test_delivery_of_deleted_session_waits_for_it(s: Subject) -> None:
    await s.session()
    await s.others.enqueue(NEWS)
    await s.others.enqueue(replace(NEWS, delivery_id="d2", conversation="alias"))
    await s.journal.add_alias("alias", "one", only=True)
    assert await s.deliveries.waiting() == [WaitingDeliveries("one", False, ["d1", "d2"])]
    await s.journal.delete("one")
    assert await s.deliveries.waiting() == [WaitingDeliveries("one", True, ["d1", "d2"])]


async def test_deliveries_without_id_are_given_one(s: Subject) -> None:
    await s.session()
    for conversation in ("acp-one", "acp-one", "acp-nobody"):
        await s.others.enqueue(replace(NEWS, delivery_id=None, conversation=conversation))
    (found,) = await s.deliveries.waiting()
    assert len(set(found.delivery_ids)) == 2
    assert await s.deliveries.waiting() == [found]
    ids = [one.delivery_id for one in await s.others.queue()]
    assert ids == [*found.delivery_ids, None]


async def test_delivery_is_read_while_it_waits(s: Subject) -> None:
    await s.session()
    await s.others.schedule(TASK)
    sent = await queued(s)
    assert sent == Delivery("d1", "send-cli", "News.", 5, AT.format(1), own=True, prompt="")
    row = replace(NEWS, delivery_id="d2", task_id=TASK.id)
    assert await queued(s, row) == Delivery("d2", TASK.id, "News.", 5, AT.format(1), prompt="Look.")
    mine = await queued(s, replace(row, delivery_id="d3", conversation=TASK.conversation))
    assert mine.own
    gone = await queued(s, replace(NEWS, delivery_id="d4", task_id="deleted"))
    assert (gone.own, gone.prompt) == (False, "")
    await s.deliveries.give_up("d1", "No room.")
    assert await s.deliveries.delivery("d1") is None
    assert await s.deliveries.delivery("nothing") is None


async def test_delivery_is_logged_once_with_its_note(s: Subject) -> None:
    session = await s.session()
    delivery = await queued(s)
    said = shown(delivery)
    assert await s.deliveries.deliver(session, delivery) == ([1], said)
    assert await statuses(s) == ["delivered"]
    with pytest.raises(Conflict):
        await s.deliveries.deliver(session, delivery)
    logged = await s.journal.read(session, 0, 9)
    assert (events(logged), places(logged)) == (said, [1])
    assert await s.journal.pending_notes(session) == [note(delivery)]
    found = await s.journal.find(session)
    assert found is not None
    assert found.prompted
    assert await s.deliveries.waiting() == []


async def imported(s: Subject, session: str, claude: str) -> dict[str, ImportedDelivery]:
    """Turns that said it, each in a Claude session of its own, by that."""
    found = {}
    for number, (name, parent) in enumerate(BRANCHES.items()):
        asked = UserMessage(name, {"type": "text", "text": "What is new?"}, "terminal")
        said: list[tuple[str, Event]] = [
            (f"{name}:0", asked),
            (f"said-{name}:0", Text("m", "News.")),
        ]
        row = TranscriptRow(name, f"/t/{name}.jsonl", 1, 1, 1, 1, "{}", name, related=True)
        turn = TranscriptTurn(name, name, parent, last_uuid=f"said-{name}")
        await s.imports.commit_piece(session, ImportedPiece(row, said, [turn]))
        found[name] = ImportedDelivery(2 * number + 1, row.path, f"said-{name}", name)
    await s.imports.follow_transcript(session, claude, told=False)
    return found


async def test_claude_is_told_of_turns_that_it_lacks(s: Subject) -> None:
    session = await s.session()
    turns = await imported(s, session, "newest")
    for name in BRANCHES:
        delivery = await queued(s, replace(NEWS, delivery_id=name))
        told = await s.journal.pending_notes(session)
        assert await s.deliveries.deliver(session, delivery, known=turns[name]) == ([], [])
        lacked = [note(delivery)] if name == "side" else []
        assert await s.journal.pending_notes(session) == [*told, *lacked]
    assert await statuses(s) == ["delivered"] * 3
    assert len(await s.journal.read(session, 0, 99)) == 2 * len(BRANCHES)


async def test_deliveries_that_say_nothing_new_are_only_marked(s: Subject) -> None:
    session = await s.session()
    turn = (await imported(s, session, "newest"))["first"]
    logged = await s.journal.read(session, 0, 99)
    known = await queued(s)
    empty = await queued(s, replace(NEWS, delivery_id="d2", message=" \n"))
    assert await s.deliveries.deliver(session, known, known=turn) == ([], [])
    assert await s.deliveries.deliver(session, empty) == ([], [])
    assert await statuses(s) == ["delivered", "delivered"]
    assert await s.journal.read(session, 0, 99) == logged
    assert await s.journal.pending_notes(session) == []


async def test_empty_delivery_is_no_use_of_session(s: Subject) -> None:
    session = await s.session()
    empty = await queued(s, replace(NEWS, message=" \n"))
    assert await s.deliveries.deliver(session, empty) == ([], [])
    found = await s.journal.find(session)
    assert found is not None
    assert not found.prompted


async def test_deleted_session_is_delivered_nothing(s: Subject) -> None:
    session = await s.session()
    delivery = await queued(s)
    await s.journal.delete(session)
    for gone in (session, "nothing"):
        with pytest.raises(Conflict):
            await s.deliveries.deliver(gone, delivery)
    assert await statuses(s) == ["pending"]


async def test_attempts_are_counted_until_given_up(s: Subject) -> None:
    await queued(s)
    other = await queued(s, replace(NEWS, delivery_id="d2"))
    assert [await s.deliveries.count_attempt("d1", "Busy.") for _ in range(2)] == [1, 2]
    assert await s.deliveries.count_attempt("d2", "Busy.") == 1
    await s.deliveries.give_up("d1", "Busy.")
    assert await statuses(s) == ["failed", "pending"]
    assert await s.deliveries.count_attempt("d1", "Busy.") == 4
    session = await s.session()
    await s.deliveries.deliver(session, other)
    await s.deliveries.give_up("d2", "Busy.")
    assert await statuses(s) == ["failed", "delivered"]


async def test_same_result_of_run_is_a_twin(s: Subject) -> None:
    done = replace(NEWS, delivery_id="d0", task_id="t", status="delivered")
    await s.others.enqueue(done)
    cases = [
        (done, True),
        (replace(done, created_at=AT.format(2)), True),
        (replace(done, created_at=AT.format(3)), False),
        (replace(done, created_at="soon"), False),
        (replace(done, message="Other."), False),
        (replace(done, task_id="u"), False),
        (replace(done, channel="wa"), False),
    ]
    for number, (row, expected) in enumerate(cases):
        waiting = replace(row, delivery_id=f"w{number}", status="pending")
        assert await s.deliveries.has_twin(await queued(s, waiting)) == expected, row


async def test_imported_turns_that_said_it_are_found(s: Subject) -> None:
    session = await s.session()
    delivery = await queued(s)
    said: list[tuple[str, Event]] = []
    turns = []
    for number, text in enumerate(("<reply>News.</reply>", "Something else.", " News. ")):
        uuid, answer = f"prompt-{number}", f"answer-{number}"
        words = {"type": "text", "text": "What is new?"}
        said.append((f"{uuid}:0", UserMessage(uuid, words, "terminal")))
        said.append((f"{answer}:0", Text(answer, text)))
        turns.append(TranscriptTurn(uuid, "claude", last_uuid=answer))
    row = TranscriptRow("claude", "/t/claude.jsonl", 1, 1, 1, 1, "{}", "prompt-2", related=True)
    assert await s.deliveries.taken_in(session, delivery, 0) == []
    await s.imports.commit_piece(session, ImportedPiece(row, said, turns))
    await s.journal.append(session, [Text("m", "News.")])
    newest, oldest = (
        ImportedDelivery(5, row.path, "answer-2", "prompt-2"),
        ImportedDelivery(1, row.path, "answer-0", "prompt-0"),
    )
    assert await s.deliveries.taken_in(session, delivery, 0) == [newest, oldest]
    assert await s.deliveries.taken_in(session, delivery, 4) == [newest]
    assert await s.deliveries.taken_in(session, delivery, 6) == []
    other = SessionRecord("two", "acp-two", "/work")
    await s.journal.create(other)
    assert await s.deliveries.taken_in("two", delivery, 0) == []


@pytest.mark.parametrize(
    ("texts", "last", "end"),
    [
        (("News.", "Other."), 0, 0),
        (("Other.", "News."), 1, 1),
        (("Other.", "News.", "More."), 1, 1),
        (("Other.", " Ne", "ws. ", "More."), 2, 2),
        (("Ne", "News.", "More."), 1, 1),
        (("Nil.", "News, more."), 1, None),
        (("News.", "Of the same turn."), 1, None),
    ],
)
async def test_turn_is_found_among_words_of_others(
    s: Subject, texts: tuple[str, ...], last: int, end: int | None
) -> None:
    session, delivery = await s.session(), await queued(s)
    words = UserMessage("prompt", {"type": "text", "text": "What is new?"}, "terminal")
    said: list[tuple[str, Event]] = [("prompt:0", words)]
    said += [(f"said-{at}:0", Text(f"said-{at}", text)) for at, text in enumerate(texts)]
    turn = TranscriptTurn("prompt", "claude", last_uuid=f"said-{last}")
    row = TranscriptRow("claude", "/t/claude.jsonl", 1, 1, 1, 1, "{}", "prompt", related=True)
    await s.imports.commit_piece(session, ImportedPiece(row, said, [turn]))
    found = [] if end is None else [ImportedDelivery(1, row.path, f"said-{end}", "prompt")]
    assert await s.deliveries.taken_in(session, delivery, 0) == found
