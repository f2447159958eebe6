"""Folding: whatever is told live, a replay tells the same, in fewer pieces, from every place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pykoclaw_acp.model import folding
from pykoclaw_acp.model.events import (
    MAX_TEXT,
    WHY,
    DiffPart,
    Event,
    Plan,
    PlanEntry,
    Text,
    TextPart,
    Thinking,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    Usage,
    UserMessage,
    decode,
    encode,
)
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.protocol import projection
from pykoclaw_acp.protocol.updates import ToolCallUpdate
from pykoclaw_acp.server.update_lines import update_line
from pykoclaw_acp.store.folding import LogRow, fold, lengths, rest
from tests.folds import seen
from tests.unit.sequences import anything, plans_in_order

MIB = 1024 * 1024

Told = list[tuple[int | None, Event]]


logs = st.lists(st.tuples(st.sampled_from([None, 1, 1, 1, 2]), anything), max_size=40).map(
    plans_in_order
)


def rows(told: Sequence[tuple[int | None, Event]]) -> list[LogRow]:
    return [
        LogRow(seq, seq, turn, str(event.__struct_config__.tag), 1, seq, None, None, encode(event))
        for seq, (turn, event) in enumerate(told, 1)
    ]


def read(folded: list[LogRow], after: int) -> list[Logged]:
    """As `store.events.read` does."""
    return [
        Logged(
            row.seq,
            None if row.turn is None else str(row.turn),
            rest(decode(row.payload), row.first, row.cuts, after),
            count=row.seq - max(row.first - 1, after),
        )
        for row in folded
        if row.seq > after
    ]


@settings(deadline=None)
@given(logs)
def test_replay_from_any_place_matches_live_events(told: Told) -> None:
    live, folded = rows(told), fold(rows(told))
    assert [seq for row in folded for seq in range(row.first, row.seq + 1)] == list(
        range(1, len(live) + 1)
    )
    for after in range(len(live) + 1):
        before = [one.event for one in read(live, 0)[:after]]
        for replayed in (
            read(folded, after),
            folding.merged(read(folded, after)),
            folding.merged(read(live, after)),
            folding.replayed(folding.merged(read(live, after))),
        ):
            assert seen([*before, *(one.event for one in replayed)]) == seen(
                [one.event for one in read(live, 0)]
            )
            assert [seq for one in replayed for seq in range(one.first, one.seq + 1)] == list(
                range(after + 1, len(live) + 1)
            )


@settings(deadline=None)
@given(logs, st.lists(st.integers(1, 40)))
def test_folding_partly_folded_log_again_is_equivalent(told: Told, cuts: list[int]) -> None:
    live, places = rows(told), sorted({0, *cuts, len(told)})
    parts = [row for at, end in pairwise(places) for row in fold(live[at:end])]
    again = fold(parts)
    assert fold(again) == again
    for after in range(len(live) + 1):
        before = [one.event for one in read(live, 0)[:after]]
        assert seen([*before, *(one.event for one in read(again, after))]) == seen(
            [event for _, event in told]
        )


@given(logs)
def test_the_highest_frame_is_kept(told: Told) -> None:
    folded = fold(rows(told))
    assert max((row.frame or 0 for row in folded), default=0) == len(told)


def test_only_contiguous_pieces_of_message_become_one_row() -> None:
    told: Told = [
        (1, UserMessage("u", {"type": "text", "text": "hi"})),
        *[(1, Thinking("m-0", "hm "))] * 3,
        *[(1, Text("m-1", "so "))] * 4,
        (1, ToolStarted("inner", "Read", "Read a", "read", parent_id="t")),
        *[(1, Text("m-1", "on"))] * 2,
        *[(1, Text("m-2", "!"))] * 2,
        *[(2, Text("m-2", "!"))] * 2,
    ]
    folded = fold(rows(told))
    assert [(row.first, row.seq) for row in folded] == [
        (1, 1),
        (2, 4),
        (5, 8),
        (9, 9),
        (10, 11),
        (12, 13),
        (14, 15),
    ]
    assert decode(folded[2].payload) == Text("m-1", "so so so so ")
    assert folded[2].cuts == "3x4"


def test_a_state_that_was_replaced_has_no_row() -> None:
    told: Told = [
        (1, Usage(1, 9)),
        (1, ToolProgressed("t", (TextPart("still running"),))),
        (1, Text("m", "a")),
        (1, ToolEnded("t", "completed", (TextPart("done"),))),
        (1, Usage(2, 9)),
        (2, Usage(3, 9)),
        (2, ToolProgressed("u", (TextPart("so far"),))),
        (2, ToolEnded("u", "completed")),
    ]
    folded = fold(rows(told))
    assert [(row.first, row.seq, row.kind) for row in folded] == [
        *((1, 3, "text"), (4, 4, "tool_ended"), (5, 5, "usage"), (6, 6, "usage")),
        *((7, 7, "tool_progressed"), (8, 8, "tool_ended")),
    ]


def test_title_that_follows_a_question_stays() -> None:
    """A client that was away still shows that of the question."""
    diff = (DiffPart("/w/a", None, "x"),)
    told: Told = [
        (1, ToolStarted("t", "Write", "Write a", "edit", content=diff)),
        (1, ToolProgressed("t", diff, title="Write a", allowed=True)),
        (1, ToolProgressed("t", (TextPart("so far"),))),
        (1, ToolEnded("t", "completed", diff)),
    ]
    missed = [projection.update(one.seq, one.event) for one in read(fold(rows(told)), 1)]
    titles = [one.title for one in missed if isinstance(one, ToolCallUpdate)]
    assert titles == ["Write a", None]


def test_turn_keeps_last_task_list_and_emptied_one() -> None:
    one, two, three = (Plan(tuple(PlanEntry(name) for name in names)) for names in ("a", "ab", "c"))
    told: Told = [
        *((1, one), (1, Text("m", "a")), (1, two), (2, one), (2, two)),
        *((2, Plan(())), (2, three), (2, one)),
    ]
    kept = [(2, Text("m", "a")), (3, two), (5, two), (6, Plan(())), (8, one)]
    assert [(row.seq, decode(row.payload)) for row in fold(rows(told))] == kept
    assert [(one.seq, one.event) for one in folding.replayed(read(rows(told), 0))] == kept


def test_imported_turns_differ_by_how_they_begin() -> None:
    one, two, three = (Plan(tuple(PlanEntry(name) for name in names)) for names in ("a", "ab", "c"))
    asked = UserMessage("u", {"type": "text", "text": "Go on."})
    why = Text(f"u{WHY}", "\n\n> A command has ended.\n\n", note=True)
    said: list[Event] = [one, two, asked, one, Text("m", "a"), three, why, two, Plan(()), one, two]
    logged = [Logged(at, None, event) for at, event in enumerate(said, 1)]
    assert [one.event for one in folding.replayed(logged)] == [
        *(two, asked, Text("m", "a"), three, why, two, Plan(()), two)
    ]
    assert [folding.open_plan(logged[:upto]) for upto in range(9)] == [
        *(None, 0, 1, None, 3, 3, 5, None, 7)
    ]
    assert folding.open_plan(logged[:9]) is None


def test_imported_and_unreadable_rows_stay_unfolded() -> None:
    pieces = rows([(1, Text("m", "a"))] * 4)
    pieces[1] = replace(pieces[1], source="uuid")
    pieces[3] = replace(pieces[3], payload="{broken")
    assert fold(pieces) == pieces


@pytest.mark.parametrize("letter", ["x", "\x01", "é", "😀", '"'])
def test_every_folded_part_fits_one_mebibyte_line(letter: str) -> None:
    told = [(1, Text("m" * 40, letter * 10_000))] * 110 + [(1, Text("m" * 40, "end"))]
    largest = [(1, Text("m" * 40, letter * MAX_TEXT))] * 3
    for log in (told, largest):
        folded = fold(rows(log))
        merged = folding.merged(read(rows(log), 0))
        for event, seq in [(decode(row.payload), row.seq) for row in folded] + [
            (one.event, one.seq) for one in merged
        ]:
            assert len(update_line("s" * 36, projection.update(seq, event))) < MIB
        assert "".join(
            event.text for row in folded if isinstance(event := decode(row.payload), Text)
        ) == "".join(event.text for _, event in log)
        assert len(folded) == len(merged) <= 9


def test_cuts_are_short() -> None:
    [row] = fold(rows([(1, Text("m", "12345678"))] * 400 + [(1, Text("m", "end"))]))
    assert row.cuts == "8x400,3"
    assert list(lengths(row.cuts)) == [8] * 400 + [3]
