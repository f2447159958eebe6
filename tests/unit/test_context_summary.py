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
