"""Texts without what a terminal would obey."""

from __future__ import annotations

import pytest

from pykoclaw_acp.model.plain import PlainPieces, plain


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
