"""Markdown that breaks off and goes on. markdown-it, an implementation of CommonMark, is the judge."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from pykoclaw_acp.model.markdown import Blocks

JUDGE = MarkdownIt("commonmark").enable("table")


def fences(text: str) -> list[tuple[str, str]]:
    """Info string and content of each fence."""
    return [(one.info, one.content) for one in JUDGE.parse(text) if one.type == "fence"]


def blocks(text: str) -> list[str]:
    """The blocks at the top."""
    lines = text.split("\n")
    return [
        "\n".join(lines[one.map[0] : one.map[1]]).rstrip()
        for one in JUDGE.parse(text)
        if one.level == 0 and one.map is not None and one.nesting >= 0
    ]


# --- documents


def indented(text: str, first: str, rest: str) -> str:
    lines = text.split("\n")
    return "\n".join([first + lines[0], *(rest + line if line else line for line in lines[1:])])


PARAGRAPHS = st.lists(
    st.sampled_from(["one", "two words", "`code` here", "a **bold** word"]), min_size=1, max_size=3
).map("\n".join)
CODE = st.lists(
    st.sampled_from(["x = 1", "", "    deep", "```", "~~~", "- a", "| a |", "```py", "# no title"]),
    max_size=6,
)


@st.composite
def codes(draw: st.DrawFn) -> str:
    mark = draw(st.sampled_from("`~")) * draw(st.sampled_from([4, 4, 5]))
    info = draw(st.sampled_from(["", "py", " python title=x"]))
    indent = " " * draw(st.sampled_from([0, 0, 1, 3]))
    return "\n".join(indent + line for line in [mark + info, *draw(CODE), mark])


TABLES = st.lists(st.sampled_from(["| 1 | 2 |", "| x | |"]), max_size=3).map(
    lambda rows: "\n".join(["| a | b |", "|---|:-:|", *rows])
)
HEADINGS = st.sampled_from(["# Title", "### Title three", "---"])
QUOTES = st.one_of(PARAGRAPHS, codes()).map(
    lambda text: "\n".join(f"> {line}" for line in text.split("\n"))
)


@st.composite
def lists(draw: st.DrawFn) -> str:
    ordered = draw(st.booleans())
    first = draw(st.sampled_from([1, 3, 9]))
    items: list[str] = []
    for number in range(draw(st.integers(1, 3))):
        marker = f"{first + number}. " if ordered else "- "
        body = draw(PARAGRAPHS)
        kind = draw(st.sampled_from(["", "", "code", "list"]))
        if kind == "code":
            body += "\n" + draw(st.sampled_from(["", "\n"])) + draw(codes())
        elif kind == "list":
            body += "\n- inner\n- inner two"
        items.append(indented(body, marker, " " * len(marker)))
    return "\n".join(items)


DOCUMENTS = st.lists(
    st.one_of(PARAGRAPHS, codes(), TABLES, HEADINGS, QUOTES, lists()), min_size=1, max_size=5
).map(lambda found: "\n\n".join(found) + "\n")
CUT = st.tuples(DOCUMENTS, st.floats(0, 1)).map(
    lambda one: (one[0][: int(len(one[0]) * one[1])], one[0][int(len(one[0]) * one[1]) :])
)


# --- what follows a seam


@given(CUT)
@example(("````py\nx\n", "y\n````\n\nThe next answer\n"))
@example(("~~~~\nx\n~~", "~~\n\nNext\n"))
@example(("````\nx\n````", "\n\nNext\n"))
@example(("```", "`\nx\n````\n"))
def test_text_after_seam_has_code_that_followed(cut: tuple[str, str]) -> None:
    """The code that was open goes on as code of its language; what was text is no code."""
    before, rest = cut
    found = Blocks(before)
    expected = fences(before + rest)[len(fences(before)) - found.in_fence :]
    after = fences(found.reopening(rest) + rest)
    if len(after) > len(expected) and not after[0][1]:
        del after[0]  # what ended it had begun
    assert [info for info, _ in after] == [info for info, _ in expected]
    for (_, code), (_, whole) in zip(after, expected, strict=True):
        assert whole.endswith(code)
    assert [code for _, code in after[1:]] == [code for _, code in expected[1:]]


@given(CUT)
def test_pieces_make_no_difference(cut: tuple[str, str]) -> None:
    before, rest = cut
    fed = Blocks()
    for at in range(0, len(before), 3):
        fed.feed(before[at : at + 3])
    once = Blocks(before)
    assert (fed.begin, fed.reopening(rest), fed.ending) == (
        once.begin,
        once.reopening(rest),
        once.ending,
    )


@given(CUT)
def test_what_begins_again_has_the_last_blocks_whole(cut: tuple[str, str]) -> None:
    before, rest = cut
    begin = Blocks(before).begin
    again = blocks(before[begin:] + rest)
    assert again == blocks(before + rest)[len(blocks(before + rest)) - len(again) :]


@given(CUT)
def test_what_is_kept_before_is_complete(cut: tuple[str, str]) -> None:
    """Whoever keeps complete blocks only has all that lies before the place of the beginning."""
    before, rest = cut
    kept = before[: Blocks(before).begin]
    whole = blocks(before + rest)
    assert blocks(kept) == whole[: len(blocks(kept))]


@given(CUT)
def test_the_ending_ends_open_code(cut: tuple[str, str]) -> None:
    before, _ = cut
    found = Blocks(before)
    ended = JUDGE.parse(f"{before}{found.ending}\nThe next answer.\n")
    assert found.in_fence == bool(found.ending)
    assert "The next answer." in [
        one.content.split("\n")[-1] for one in ended if one.type == "inline"
    ]


@pytest.mark.parametrize(
    ("before", "rest", "reopened"),
    [
        ("Hi\n\n```py\nfoo(", "bar)\n```\n", "```py\n"),
        ("```py\nfoo()\n``", "`\n", "```py\n``"),
        ("```p", "y\nfoo\n```\n", "```p"),
        ("1. a\n   ```py\n   foo()\n", "   bar\n   ```\n2. b\n", "1. ```py\n"),
        ("> ~~~~ sh\n> foo", "bar\n> ~~~~\n", "> ~~~~ sh\n> "),
        ("| a | b |\n|---|---|\n| 1 ", "| 2 |\n", "| a | b |\n|---|---|\n| 1 "),
        ("| a | b |\n|---|---|\n", "| 1 | 2 |\n", "| a | b |\n|---|---|\n"),
        ("7. a\n   - b\n     par", "tial\n8. c\n", "7. - …"),
        ("- a\n  - b\n", "    - c\n", "- - …\n"),
        ("A paragraph", " goes on\n", ""),
        ("- a\n- b\n\n", "Another\n", ""),
        ("## Ti", "tle\n", "## Ti"),
    ],
)  # fmt: skip
def test_rest_reopens_what_was_open(before: str, rest: str, reopened: str) -> None:
    assert Blocks(before).reopening(rest) == reopened


@pytest.mark.parametrize(
    ("before", "open_part"),
    [
        ("Done.\n\nNow a long", "Now a long"),
        ("Done.\n\n", ""),
        ("Here:\n```py\nx\n", "Here:\n```py\nx\n"),
        ("Here:\n\n```py\nx\n```\n", ""),
        ("- a\n- b\n\nThen", "- a\n- b\n\nThen"),
        ("- a\n- b\n\nThen\n", "Then\n"),
        ("- a\n\n```py\nx", "- a\n\n```py\nx"),
        ("| a |\n|---|\n| 1", "| a |\n|---|\n| 1"),
        ("# Title\nText", "# Title\nText"),
    ],
)
def test_where_what_is_open_begins(before: str, open_part: str) -> None:
    """As Mitto keeps text: complete paragraphs, fences, tables, and lists once something follows."""
    assert before[Blocks(before).begin :] == open_part


def test_long_lines_pieces_are_not_copied_repeatedly() -> None:
    """Each copy of this line takes a millisecond, all of them half a minute."""
    blocks = Blocks("x" * 10_000_000)
    began = time.thread_time()
    for _ in range(20_000):
        blocks.feed("a word, ")
    assert time.thread_time() - began < 3
    assert blocks.size == 10_160_000
    assert blocks.begin == 0


@pytest.mark.parametrize(
    "text",
    [
        "- " * 20_000 + "x",
        ">" * 20_000 + "x",
        "1) " * 20_000 + "x",
        "* " * 20_000,
        "> " * 20_000 + "- - x",
        "a|b\n:-" + " " * 40_000 + "x",
        "a|b\n" + "|-" * 20_000 + "x",
        "a|b\n" + "|" * 40_000 + "x",
        "- " * 20_000 + "x" + "\n" * 20_000,
    ],
)
def test_hostile_line_takes_no_quadratic_time(text: str) -> None:
    """Each of them takes some milliseconds; quadratic work on it, ten seconds and more."""
    began = time.thread_time()
    blocks = Blocks(text)
    blocks.reopening("z")
    blocks.feed("\n")
    assert time.thread_time() - began < 2
    assert blocks.size == len(text) + 1
