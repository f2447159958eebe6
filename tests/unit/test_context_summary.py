"""What Claude is told of a conversation that it does not remember."""

from __future__ import annotations

import pytest

from pykoclaw_acp.model.deliveries import Delivery, shown
from pykoclaw_acp.model.events import Text, UserMessage
from pykoclaw_acp.sessions.context_summary import ContextSummary


def asked(message_id: str, text: str) -> UserMessage:
    return UserMessage(message_id, {"type": "text", "text": text})


def test_summary_keeps_spaces_between_pieces() -> None:
    told = ContextSummary()
    told.follow(asked("u", "go"))
    for message, text in (("a", "I look "), ("a", "now."), ("b", "It is done. ")):
        told.follow(Text(message, text))
    assert told.text() == "Asked: go\nAnswered: I look now.\nIt is done."


def test_summary_gives_each_turn_its_own_answer() -> None:
    """Turns of two programs at once are between each other in the log."""
    told = ContextSummary(forgotten={"c", "other"})
    for turn, event in (
        (None, Text("w", "Noted before.")),
        ("a", asked("a", "ours")),
        (None, asked("b", "theirs")),
        (None, asked("b", "and more")),
        ("a", Text("x", "Noted ours.")),
        ("c", asked("c", "rewound")),
        (None, Text("y", "Noted theirs.")),
        ("c", Text("z", "Noted rewound.")),
    ):
        told.follow(event, turn)
    assert told.text() == (
        "Asked: ours\nAnswered: Noted ours.\n\nAsked: theirs\nand more\nAnswered: Noted theirs."
    )


def test_adjacent_prompts_of_two_programs_stay_apart() -> None:
    told = ContextSummary()
    told.follow(asked("a", "theirs"), None)
    told.follow(asked("b", "ours"), "b")
    told.follow(Text("x", "Noted ours."), "b")
    told.follow(Text("y", "Noted theirs."), None)
    assert (
        told.text()
        == "Asked: theirs\nAnswered: Noted theirs.\n\nAsked: ours\nAnswered: Noted ours."
    )


@pytest.mark.parametrize("others", [False, True])
def test_delivery_is_of_the_newest_turn(*, others: bool) -> None:
    delivery = Delivery("d1", "task", "The pot boils.", 14, "2026-11-30T12:00:00Z")
    told = ContextSummary()
    if others:
        told.follow(asked("a", "theirs"))
        told.follow(Text("w", "Noted theirs."))
    told.follow(asked("b", "ours"), "b")
    told.follow(Text("x", "Noted ours."), "b")
    for event in shown(delivery):
        told.follow(event)
    assert told.text().partition("Asked: ours\n")[2] == (
        "Answered: Noted ours.\n\n\n**Result of the scheduled task task.**\n\nThe pot boils."
    )
    assert told.text().count("boils") == 1


def test_delivery_after_forgotten_turn_is_passed() -> None:
    told = ContextSummary(forgotten={"b"})
    told.follow(asked("a", "lost"), "a")
    told.follow(asked("b", "kept"), "b")
    for event in shown(Delivery("d1", "task", "It boils.", 9, "2026-11-30T12:00:00Z")):
        told.follow(event)
    assert told.text() == "Asked: lost\nAnswered: (nothing yet)"


def test_claudes_turn_is_passed_with_ours() -> None:
    told = ContextSummary(forgotten={"b"})
    for turn, event in (
        ("a", asked("a", "lost")),
        ("a", Text("w", "Noted lost.")),
        ("b", asked("b", "kept")),
        ("b", Text("x", "Noted kept.")),
        ("by-itself", Text("y", "The task of kept has ended.")),
    ):
        told.follow(event, turn)
    assert told.text() == "Asked: lost\nAnswered: Noted lost."


def test_claudes_turn_belongs_to_ours() -> None:
    told = ContextSummary()
    for turn, event in (
        ("a", asked("a", "ours")),
        (None, asked("b", "theirs")),
        ("by-itself", Text("y", "The task has ended.")),
        (None, Text("x", "Noted theirs.")),
    ):
        told.follow(event, turn)
    assert told.text() == (
        "Asked: ours\nAnswered: The task has ended.\n\nAsked: theirs\nAnswered: Noted theirs."
    )
