"""Seams inside of messages."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from pykoclaw_acp.model.events import Text, Usage
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.markdown import Blocks
from pykoclaw_acp.model.seams import (
    CONTINUED,
    MOST_AGAIN,
    CutMessage,
    ParsedMessage,
    Seam,
    original,
    read,
)
from pykoclaw_acp.sessions.seams import SeamInserter
from pykoclaw_acp.tasks import Pace


def whole(reading: Generator[None, None, ParsedMessage]) -> ParsedMessage:
    while True:
        try:
            next(reading)
        except StopIteration as end:
            found: ParsedMessage = end.value
            return found


def inserter(text: str, *, lacks_block: bool = False, over: bool = False) -> SeamInserter:
    message = whole(read(CutMessage("m", text, over)))
    return SeamInserter(Seam(message, lacks_block=lacks_block))


def test_messages_rest_needing_nothing_stays_unchanged() -> None:
    logged = Logged(7, "t", Text("m", " goes on"))
    assert inserter("A paragraph").follow(logged) == ("", logged)


def test_usage_does_not_end_a_message() -> None:
    made = inserter("```\n")
    assert made.follow(Logged(6, "t", Usage(1, 2)))[0] == ""
    before, logged = made.follow(Logged(7, "t", Text("m", "code\n")))
    assert before == "```\n"
    assert isinstance(logged.event, Text)
    assert original(logged.event.message_id) == "m"
    assert made.message_id == logged.event.message_id
    assert made.follow(Logged(8, "t", Text("m", "more\n")))[0] == ""


def test_another_message_needs_nothing_of_the_one_before() -> None:
    made = inserter("```\n")
    other = Logged(7, "t", Text("n", "```\n"))
    assert made.follow(other) == ("", other)
    assert made.follow(Logged(8, "t", Text("m", "x")))[0] == ""


def test_long_block_restarts_at_its_last_parts_line() -> None:
    lines = "".join(f"line {number}\n" for number in range(20_000))
    again = inserter("```py\n" + lines, lacks_block=True).again()
    assert again.startswith(f"{CONTINUED}```py\nline ")
    assert again.endswith("line 19999\n")
    assert MOST_AGAIN - 100 < len(again) <= MOST_AGAIN + 100


def test_a_complete_block_does_not_begin_again() -> None:
    assert inserter("A paragraph.\n\n", lacks_block=True).again() == ""
    assert inserter("A paragraph.", lacks_block=True, over=True).again() == ""
    assert inserter("A paragraph.").again() == ""


@pytest.mark.parametrize("message_id", ["m", "a~b", "~", "m~12x"])
def test_ids_that_are_no_rests(message_id: str) -> None:
    assert original(message_id) == message_id


@pytest.mark.parametrize("text", ["- x\n" * 30_000, "```\n" + "x\n" * 60_000, "> a" * 40_000])
def test_text_before_seam_is_read_in_steps(text: str) -> None:
    reading = read(CutMessage("m", text, over=False))
    steps = 0
    for _ in reading:
        steps += 1
    assert steps > len(text) / 3000
    made = inserter(text, lacks_block=True)
    assert len(made.again()) > MOST_AGAIN / 2
    alone = inserter(text).follow(Logged(7, "t", Text("m", "rest\n")))[0]
    assert alone == Blocks(text).reopening("rest\n")


async def test_long_text_is_gone_through_in_steps() -> None:
    """While the client is shown it, others have their turns."""
    steps = 0

    class Steps(Pace):
        async def step(self) -> None:
            nonlocal steps
            steps += 1

    text = "- x\n" * 40_000 + "```\n"
    made = SeamInserter(ends_line=True)
    made.follow(Logged(1, "t", Text("m", text)))
    await made.read(Steps())
    assert steps > 50
    made.follow(Logged(2, "t", Text("m", "code\n")))  # not gone through when it is asked for
    assert made.take_ending() == Blocks(text + "code\n").ending + "\n\n" == "```\n\n\n"
    made.follow(Logged(3, "t", Text("m", "more")))
    assert made.take_ending() == ""  # once


async def test_nothing_is_gone_through_for_no_ending() -> None:
    class NoStep(Pace):
        async def step(self) -> None:
            raise AssertionError

    made = SeamInserter()
    made.follow(Logged(1, "t", Text("m", "- x\n" * 1000)))
    await made.read(NoStep())
    assert made.take_ending() == ""
