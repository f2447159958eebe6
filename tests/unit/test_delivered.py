"""What is said of deliveries, where results go, and what the answer of a turn is."""

from __future__ import annotations

import pytest

from pykoclaw_acp.model.deliveries import (
    LONGEST,
    LONGEST_NOTE,
    SENT,
    Delivery,
    note,
    shown,
    target,
    without_reply_tags,
)
from pykoclaw_acp.model.events import MAX_TEXT, Event, Text, ToolStarted
from pykoclaw_acp.model.scheduled import answer
from tests.double import rules

NAMES = (
    "wa-andy-1@g.us", "acp-12345678", "acp-12345678-90ab-4cde-8f01-234567890abc", "daily-report", "notes",
    "matrix-!abc:matrix.org", "-x", "acp-", "WA-1", "chat-1-2",
)  # fmt: skip
TARGETS = (
    None, "", "1@g.us", "andy-1@g.us", "2@g.us", "12345678", "12345678-90ab-4cde-8f01-234567890abc", "wa-2", "acp-1",
    "report", "-", "x-y",
)  # fmt: skip


@pytest.mark.parametrize("conversation", NAMES)
@pytest.mark.parametrize("wanted", TARGETS)
def test_results_go_where_pykoclaw_sends_them(conversation: str, wanted: str | None) -> None:
    assert target(conversation, wanted) == rules.delivery_target(conversation, wanted)


@pytest.mark.parametrize(
    "text",
    [
        "as it is",
        "<reply>one</reply>",
        "thinking <reply> one </reply> more <reply>two\nlines</reply>",
        "<reply></reply>",
        "<reply> </reply><reply>kept</reply>",
        "<reply>never closed",
        "</reply><reply>later</reply>",
        "<reply><reply>inner</reply></reply>",
    ],
)
def test_reply_tags_are_read_as_pykoclaw_reads_them(text: str) -> None:
    assert without_reply_tags(text) == rules.without_reply_tags(text)


def test_many_open_tags_take_no_longer_than_one() -> None:
    assert without_reply_tags("<reply>" * 200_000).startswith("<reply>")


def delivery(message: str, task: str = "12345678", length: int | None = None) -> Delivery:
    return Delivery("d1", task, message, length or len(message), "2026-01-01T00:00:00+00:00")


def test_message_stands_alone_under_its_source() -> None:
    (said,) = shown(delivery("All is well."))
    assert isinstance(said, Text)
    assert said.text.startswith("\n\n")
    assert said.text.endswith("All is well.\n\n")
    assert "12345678" in said.text
    (sent,) = shown(delivery("All is well.", SENT))
    assert isinstance(sent, Text)
    assert "pykoclaw send" in sent.text


def test_long_message_shows_parts_and_short_note() -> None:
    long = delivery("x" * LONGEST, length=LONGEST + 1)
    parts = shown(long)
    assert all(isinstance(part, Text) and len(part.text) <= MAX_TEXT for part in parts)
    assert len({part.message_id for part in parts if isinstance(part, Text)}) == 1
    assert len(note(long).text) < LONGEST_NOTE + 1000
    assert "delivery_queue, id d1" in note(long).text


def test_empty_message_says_nothing() -> None:
    assert shown(delivery(" \n")) == []


def test_answer_has_rule_between_words_around_tools() -> None:
    tool = ToolStarted("t", "Bash", "ls", "execute")
    events: list[Event | None] = [
        tool, Text("m", "Look"), Text("m", "ing."), tool, None, tool, Text("n", "Done."), tool,
    ]  # fmt: skip
    assert answer(events) == "Looking.\n\n---\n\nDone."
    assert answer([tool]) == ""
    assert answer([Text("n", "A plugin could not be loaded.", note=True), Text("m", "Done.")]) == (
        "Done."
    )
