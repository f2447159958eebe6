"""Texts without what a terminal would obey."""

from __future__ import annotations

import pickle
from random import Random

import pytest

from pykoclaw_acp.long_texts import finished
from pykoclaw_acp.model.events import UserMessage
from pykoclaw_acp.model.plain import PlainPieces, plain
from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.sessions.turns import outcomes
from pykoclaw_acp.transcripts.content import user_messages
from pykoclaw_acp.transcripts.entries import Entry


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\r\nb\nc", "a\nb\nc"),
        ("rm -rf a\rb", "rm -rf a\nb"),
        ("a\fb\vc", "a\nb\nc"),
        ("a\x1b[31mb\x1b[0m\x07\tc", "ab\tc"),
    ],
)
def test_only_line_breaks_remain_of_control_characters(text: str, shown: str) -> None:
    assert plain(text) == shown
    for cut in range(len(text) + 1):
        pieces = PlainPieces()
        assert pieces.feed(text[:cut]) + pieces.feed(text[cut:]) == shown, cut


def test_pieces_and_rest_are_the_whole_text() -> None:
    parts = ("a", " b", "\r", "\n", "\x1b", "[", "]", "(B", "7", "31m", ";", "\x07", "\\", "\x9b")
    draw = Random(13)
    for _ in range(5000):
        text = "".join(draw.choices(parts, k=draw.randrange(1, 9)))
        one, several = PlainPieces(), PlainPieces()
        cut = draw.randrange(len(text) + 1)
        assert one.feed(text[:cut]) + one.feed(text[cut:]) + one.rest() == plain(text), repr(text)
        said = [several.feed(letter) for letter in text]
        assert "".join(said) + several.rest() == plain(text), repr(text)


def test_only_what_may_become_a_sequence_waits() -> None:
    pieces = PlainPieces()
    assert pieces.feed("Reset it with \x1b(B and") == "Reset it with (B and"
    assert pieces.feed(" go on \x1b]0;a title") == " go on "
    assert pieces.feed(" that has no end.\n") == "0;a title that has no end.\n"


@pytest.mark.parametrize("sequence", ["\x1b[0m", "\x1b]0;title\x07", "\x1bM"])
def test_whole_sequences_after_line_end_are_dropped(sequence: str) -> None:
    pieces = PlainPieces()
    assert pieces.feed("a\r") == "a"
    size = len(pickle.dumps(pieces))
    for _ in range(1000):
        assert "".join(pieces.feed(letter) for letter in sequence) == ""
    assert len(pickle.dumps(pieces)) <= size + 1
    assert pieces.feed("\nb") == "\nb"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("one \x1b]two\x07 three", "one two three"),
        ("a \x1b]0;title\x1b\\ \x1bPb\x1b\\", "a 0;title b"),
        ("\x1b\x1b]]two\x07", "]two"),
        ("a\x1b[31mb\x1b[2J\x1b[0m\rc", "ab\nc"),
        ("\x1b\x1b][31mb", "[31mb"),
    ],
)
async def test_prompt_hides_no_words_in_sequences(text: str, shown: str) -> None:
    block = {"type": "text", "text": text}
    said = [UserMessage("m", {"type": "text", "text": shown})]
    assert finished(outcomes.user_messages(Turn("m", "s", [block]))) == said
    assert user_messages(Entry("user", uuid="m"), [block]) == said
