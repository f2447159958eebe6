"""What Claude is told of a conversation that it does not remember."""

from __future__ import annotations

from pykoclaw_acp.model.events import Text, UserMessage
from pykoclaw_acp.sessions.context_summary import ContextSummary


def test_summary_keeps_spaces_between_pieces() -> None:
    told = ContextSummary()
    told.follow(UserMessage("u", {"type": "text", "text": "go"}))
    for message, text in (("a", "I look "), ("a", "now."), ("b", "It is done. ")):
        told.follow(Text(message, text))
    assert told.text() == "Asked: go\nAnswered: I look now.\nIt is done."


def test_summary_gives_each_turn_its_own_answer() -> None:
    """Turns of two programs at once are between each other in the log."""
    told = ContextSummary(forgotten={"c", "other"})
    for turn, event in (
        (None, Text("w", "Noted before.")),
        ("a", UserMessage("a", {"type": "text", "text": "ours"})),
        (None, UserMessage("b", {"type": "text", "text": "theirs"})),
        (None, UserMessage("b", {"type": "text", "text": "and more"})),
        ("a", Text("x", "Noted ours.")),
        ("c", UserMessage("c", {"type": "text", "text": "rewound"})),
        (None, Text("y", "Noted theirs.")),
        ("c", Text("z", "Noted rewound.")),
    ):
        told.follow(event, turn)
    assert told.text() == (
        "Asked: ours\nAnswered: Noted ours.\n\nAsked: theirs\nand more\nAnswered: Noted theirs."
    )


def test_adjacent_prompts_of_two_programs_stay_apart() -> None:
    told = ContextSummary()
    told.follow(UserMessage("a", {"type": "text", "text": "theirs"}), None)
    told.follow(UserMessage("b", {"type": "text", "text": "ours"}), "b")
    told.follow(Text("x", "Noted ours."), "b")
    told.follow(Text("y", "Noted theirs."), None)
    assert (
        told.text()
        == "Asked: theirs\nAnswered: Noted theirs.\n\nAsked: ours\nAnswered: Noted ours."
    )
