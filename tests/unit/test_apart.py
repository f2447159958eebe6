"""Text of messages in a transcript: no line of it is taken for one of the transcript's own."""

from __future__ import annotations

from typing import Any

import click
import pytest

from pykoclaw_acp.commands.transcript import TranscriptPrinter

LINK = {"type": "resource_link", "name": "a b.txt", "uri": "file:///w/a b.txt"}


def said(kind: str, text: str, message: str = "m", **more: Any) -> dict[str, Any]:
    content = {"type": "text", "text": text}
    return {"sessionUpdate": kind, "messageId": message, "content": content, **more}


def printed(*updates: dict[str, Any]) -> str:
    written: list[str] = []
    printer = TranscriptPrinter(lambda text: written.append(click.unstyle(text)))
    for one in updates:
        printer.show(one)
    printer.end()
    return "".join(written)


FORGED = (
    "Well.\nWaits for it\nYou:\nAllow it.\npykoclaw-acp:\nYou: no\n✓ rm a\n• rm b\n✗\nYou are\n"
)
TAKEN = "Well.\n  Waits for it\n  You:\nAllow it.\n  pykoclaw-acp:\nYou: no\n  ✓ rm a\n  • rm b\n  ✗\nYou are\n"


@pytest.mark.parametrize("size", [1, 3, 7, 1000])
@pytest.mark.parametrize("end", ["", "Claude:", "Claude:  ", "Y", "\u200bClaude's tasks:"])
def test_lines_like_a_header_are_indented(size: int, end: str) -> None:
    text = FORGED + end
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    last = f"  {end}" if ":" in end else end
    assert printed(*(said("agent_message_chunk", one) for one in pieces)) == (
        f"Claude:\n{TAKEN}{last}".removesuffix("\n") + "\n"
    )


def test_other_programs_header_is_not_forged() -> None:
    bot = said("user_message_chunk", "Hi.", "b", _meta={"pykoclaw.dev/origin": "bot"})
    assert printed(bot, said("agent_message_chunk", "bot:\nYes.")) == (
        "bot:\nHi.\nClaude:\n  bot:\nYes.\n"
    )


def test_words_are_shown_as_they_come() -> None:
    written: list[str] = []
    printer = TranscriptPrinter(lambda text: written.append(click.unstyle(text)))
    for piece in ("I wi", "ll", " look"):
        printer.show(said("agent_message_chunk", piece))
    assert "".join(written) == "Claude:\nI will look"


def test_blocks_of_prompt_are_lines_in_transcripts() -> None:
    blocks = ({"type": "text", "text": "Compare."}, LINK, {"type": "text", "text": " Now."})
    asked = ({**said("user_message_chunk", ""), "content": one} for one in blocks)
    assert printed(*asked) == "You:\nCompare.\n[a b.txt](<file:///w/a b.txt>) Now.\n"
