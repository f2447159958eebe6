"""Texts of megabytes, and texts that are made to be slow: every text is gone through a bounded
number of times.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pykoclaw_acp import long_texts
from pykoclaw_acp.channel import frames, long_prompt
from pykoclaw_acp.channel.frames import EventFrame
from pykoclaw_acp.channel.spool import Spool
from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.long_texts import finished
from pykoclaw_acp.model import prompt_text
from pykoclaw_acp.model.events import Text, TextPart, UserMessage, encode, size
from pykoclaw_acp.protocol import jsonrpc, long_lines, prompt
from pykoclaw_acp.protocol.content import TextContent
from pykoclaw_acp.protocol.messages import PromptParams
from pykoclaw_acp.sessions.turns import plain_words, titles
from pykoclaw_acp.translation.results import result
from pykoclaw_acp.trust import markdown
from pykoclaw_acp.worker import failures
from pykoclaw_acp.worker.outbox import Outbox

HISTORY = "[CONVERSATION HISTORY - x]\n"
HISTORY_END = "\n[END OF HISTORY - Continue"
CONTEXT = "[Session Context]\n"
REQUEST = "\n---\n<user_request>\n"
REQUEST_END = "\n</user_request>"


class Counted(str):
    """A text that counts the characters that are looked at in it; what is cut out of it
    counts on.
    """

    looked: list[int]

    @classmethod
    def of(cls, text: str, looked: list[int]) -> Counted:
        made = cls(text)
        made.looked = looked
        return made

    def find(self, sub: str, start: Any = 0, end: Any = None) -> int:
        found = str.find(self, sub, start, end)
        last = len(self) if end is None else min(end, len(self))
        self.looked[0] += (last if found < 0 else found + len(sub)) - start
        return found

    def rfind(self, sub: str, start: Any = 0, end: Any = None) -> int:
        found = str.rfind(self, sub, start, end)
        last = len(self) if end is None else min(end, len(self))
        self.looked[0] += last - (start if found < 0 else found)
        return found

    def __getitem__(self, key: Any) -> Counted:
        cut = str.__getitem__(self, key)
        self.looked[0] += 1 + len(cut)
        return Counted.of(cut, self.looked)

    def _whole(self, name: str, *args: Any) -> Any:
        self.looked[0] += len(self)
        return getattr(str, name)(self, *args)

    def split(self, *args: Any) -> list[str]:
        return list(self._whole("split", *args))

    def strip(self, *args: Any) -> str:
        return str(self._whole("strip", *args))

    def __contains__(self, sub: Any) -> bool:
        return bool(self._whole("__contains__", sub))

    def lower(self) -> str:
        return str(self._whole("lower"))

    def splitlines(self, *args: Any) -> list[str]:
        return [Counted.of(line, self.looked) for line in self._whole("splitlines", *args)]


HOSTILE: dict[str, Callable[[int], str]] = {
    "plain": lambda n: "word " * n,
    "white space": lambda n: " \n" * n,
    "histories that do not end": lambda n: HISTORY * n,
    "ends of histories that are none": lambda n: HISTORY + f"{HISTORY_END} x\n" * n,
    "ends of histories in one line": lambda n: HISTORY + HISTORY_END.strip() * n,
    "one history, many ends": lambda n: HISTORY + f"{HISTORY_END}]\n" * n,
    "contexts": lambda n: CONTEXT * n,
    "requests that do not end": lambda n: CONTEXT + REQUEST * n,
    "ends of requests that are none": lambda n: CONTEXT + REQUEST + f"{REQUEST_END}x" * n,
    "ends of requests, then white space": lambda n: CONTEXT + REQUEST + REQUEST_END * n + "\n" * n + "x",
    "rules": lambda n: CONTEXT + REQUEST + REQUEST_END + "\n---" * n,
    "all of it, again and again": lambda n: (HISTORY + CONTEXT + REQUEST + REQUEST_END + "x" + HISTORY_END) * n,
    "tags that do not end": lambda n: "<a-b>" * n,
    "tags of many names": lambda n: "".join(f"<a-{'b' * (k % 40 + 1)}>" for k in range(n)),
    "tags without an end of their own": lambda n: "<a-b" * n,
    "noise": lambda n: "<a-b>x</a-b>" * n,
    "names": lambda n: "<" + "a-b" * n,
    "a command": lambda n: "/" + "a" * n,
    "digits": lambda n: "413" * n,
    "digits that are not the ones": lambda n: "41 3" * n,
}  # fmt: skip
WORK: dict[str, Callable[[str], object]] = {
    "unwrap": prompt_text.unwrap,
    "without_history": prompt_text.without_history,
    "for_claude": lambda text: prompt_text.for_claude(
        [{"type": "text", "text": text}], remembers=True
    ),
    "title": lambda text: titles.title([{"type": "text", "text": text}]),
    "shorten": titles.shorten,
    "first words": plain_words.without_markdown,
    "failure": failures.in_one_line,
}


def steps(work: Callable[[str], object], text: str) -> int:
    looked = [0]
    work(Counted.of(text, looked))
    return looked[0]


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("shape", HOSTILE)
def test_work_grows_at_most_linearly_with_text(shape: str, work: str) -> None:
    counts = []
    for n in (500, 1_000, 2_000, 4_000):
        text = HOSTILE[shape](n)
        counts.append((len(text), steps(WORK[work], text)))
    for (size_before, before), (size_after, after) in pairwise(counts):
        assert before > 0, (
            "work that cannot be counted, a regular expression's for instance, proves nothing"
        )
        allowed = 2.2 * before * size_after / (2 * size_before) + 20_000
        assert after <= allowed, counts
    assert counts[-1][1] <= 100 * titles.LOOKED_AT + 8 * counts[-1][0], counts


@pytest.mark.parametrize("shape", HOSTILE)
def test_a_title_needs_the_beginning_only(shape: str) -> None:
    text = HOSTILE[shape](20_000)
    if not text.startswith((HISTORY, CONTEXT)):
        assert steps(WORK["title"], text) < 100 * titles.LOOKED_AT


@pytest.mark.parametrize(
    "unit",
    ["\n", "```\n", "---\n", "\u200b" * 400 + "\n", "> " * 200 + "\n", "```\n" + "\u200b" * 400],
)
def test_search_for_first_words_is_limited(unit: str) -> None:
    text = "x\n" + unit * (titles.LOOKED_AT // len(unit))
    most = plain_words.MOST_LINES + plain_words.ROOM + plain_words.LONGEST_LINE
    assert steps(WORK["first words"], text) < len(text) + 2 * most


def test_files_among_words_are_sought_near_them() -> None:
    looked = [0]
    said = {"type": "text", "text": Counted.of("@" * titles.LOOKED_AT, looked)}
    files = [{"type": "resource_link", "name": f"n{at}", "uri": "x"} for at in range(98)]
    titles.title([said, *files, {"type": "text", "text": " x"}])
    assert looked[0] < 100 * 5 * 4096


# --- the scanners against the expressions that they stand for

_HISTORY = re.compile(
    r"\A\s*\[CONVERSATION HISTORY - [^\]\n]*\]\n.*^\[END OF HISTORY - Continue[^\]\n]*\]\n{0,2}",
    re.DOTALL | re.MULTILINE,
)
_REQUEST = re.compile(
    r"\A\s*\[Session Context\]\n.*?^---\n<user_request>\n(.*)^</user_request>(?=\s*(?:---\s*)?\Z|---\n\[)",
    re.DOTALL | re.MULTILINE,
)
_NOISE = re.compile(r"<([a-z]++(?:[-_][a-z]++)++)\b[^>]*>.*?</\1>", re.DOTALL)


_SUBSTITUTED = re.compile(r"\$\{[^}`]*\}|\$\w+(?:\[\w*\])?")
_SHELL = re.compile(r"!`([^`]*)|(?:```|~~~)[ \t]*!\s*([^`~]*)|(\$\{[^}`]*\}`[^`]*)")


def slow_commands(text: str) -> list[str]:
    """The shell commands in the text of a skill, or else those in what its variables leave of it."""
    looked = (text, _SUBSTITUTED.sub("", text))
    found = (list(_SHELL.finditer(some)) for some in looked)
    return [
        re.sub(r"[ \t]+", " ", one[1] or one[2] or one[3] or "…").strip()
        for one in next(filter(None, found), [])
    ]


def slow_unwrap(text: str) -> str:
    rest = _HISTORY.sub("", text, count=1)
    found = _REQUEST.match(rest)
    return rest if found is None else found[1].removesuffix("\n")


def pieces_of(*parts: str) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(parts), max_size=14).map("".join)


MARKS = pieces_of(
    HISTORY, "[CONVERSATION HISTORY - x", HISTORY_END, f"{HISTORY_END}:]\n\n", "[END OF HISTORY - Continue]", CONTEXT,
    REQUEST, "---\n<user_request>\n", REQUEST_END, f"{REQUEST_END}---\n[Mitto]", "</user_request>", "---", "\n", "]",
    " ", "words", "/compact", "\u2028",
)  # fmt: skip


@given(MARKS, st.booleans(), st.booleans())
@example(f"{HISTORY_END}]x", True, True)
def test_nested_and_repeated_marks_are_read_as_before(
    text: str, history: bool, context: bool
) -> None:
    whole = (HISTORY if history else "") + (CONTEXT + REQUEST if context else "") + text
    assert prompt_text.unwrap(whole) == slow_unwrap(whole)
    assert prompt_text.without_history(whole) == _HISTORY.sub("", whole, count=1)


@given(
    pieces_of(
        "<a-b>",
        "</a-b>",
        "<a-b ",
        "<a-c>",
        "</a-c>",
        "<a>",
        "</a>",
        "<a-b-c>",
        ">",
        "<",
        "x",
        " \n",
        "<a_b>",
    )
)
def test_noise_is_what_it_was(text: str) -> None:
    assert titles.without_noise(text) == _NOISE.sub(" ", text)


@given(
    pieces_of("${", "}", "`", "}`", "!`", "$a", "$a[", "]", "!", "~~~", "```", "~", "$", " \n", "x")
)
@example("${a ~~~!x ${b}`c`")
@example("${a `!${b}` ${")
def test_commands_of_skill_are_what_they_were(text: str) -> None:
    head = "runs when it is used: "
    assert markdown.acting(text.encode()) == [head + one for one in slow_commands(text)]


@given(pieces_of("413", "4", "1", "3", " ", "\n", "x", "\u2028", "…"))
def test_misread_digits_are_what_they_were(text: str) -> None:
    assert failures.in_one_line(text) == " ".join(re.sub(r"\S*413\S*", "…", text).split())[:300]


def test_text_with_too_many_marks_stays_unchanged() -> None:
    wrapped = CONTEXT + REQUEST + "words" + REQUEST_END + "---\n["
    assert prompt_text.unwrap(wrapped) == "words"
    assert prompt_text.unwrap(wrapped + f"{REQUEST_END}x" * (prompt_text.MOST_MARKS - 1)) == "words"
    hidden = wrapped + f"{REQUEST_END}x" * prompt_text.MOST_MARKS
    assert prompt_text.unwrap(hidden) == hidden


def test_fence_is_longer_than_any_inside() -> None:
    for said, fence in (
        ("x", "```"),
        ("``", "```"),
        ("```", "````"),
        ("a\n`````\nb ```", "``````"),
    ):
        (part,) = result("Bash", said, failed=False).parts
        assert isinstance(part, TextPart)
        assert part.text == f"{fence}\n{said}\n{fence}"
    (part,) = result("Bash", "`" * 200_000, failed=False).parts
    assert isinstance(part, TextPart)
    assert part.text.startswith("`" * 200_001 + "\n")


def test_quoted_text_in_error_is_not_its_location() -> None:
    hostile = " - at `$.x`" * 50_000
    with pytest.raises(InvalidParams) as refused:
        jsonrpc.decode_params(
            json.dumps({"sessionId": "s", "prompt": [{"type": hostile}]}).encode(), PromptParams
        )
    assert (
        str(refused.value)
        == "`prompt[0].type`: must be one of text, resource_link, image, resource."
    )


# --- JSON in pieces

TEXTS = st.text(max_size=20)
BLOCKS = st.lists(
    st.dictionaries(
        st.sampled_from(["type", "text", "uri"]),
        TEXTS | st.integers() | st.none() | st.lists(TEXTS, max_size=3),
    ),
    max_size=4,
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # on a busy machine
@given(BLOCKS, st.booleans(), st.booleans(), st.sampled_from([1, 2, 3, long_texts.PIECE]))
def test_json_in_pieces_is_what_it_was(
    blocks: list[dict[str, Any]], sort_keys: bool, ascii_only: bool, piece: int
) -> None:
    whole = json.dumps(blocks, sort_keys=sort_keys, ensure_ascii=ascii_only)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_texts, "PIECE", piece)
        assert (
            "".join(long_texts.encode(blocks, sort_keys=sort_keys, ascii_only=ascii_only)) == whole
        )


@pytest.mark.parametrize("ascii_only", [True, False])
def test_each_piece_of_long_json_text_is_bounded(ascii_only: bool) -> None:
    blocks = [
        {"type": "text", "text": 'wörds "x" 😀\n' * 50_000},
        {"type": "text", "text": "short"},
    ]
    made = list(long_texts.encode(blocks, ascii_only=ascii_only))
    assert "".join(made) == json.dumps(blocks, ensure_ascii=ascii_only)
    longest = len(json.dumps("😀")) - 2  # what one character becomes at most
    assert max(map(len, made)) <= longest * long_texts.PIECE
    assert len(made) > 600_000 / long_texts.PIECE


UNITS = ["a", 'say "x"\\\n', "ü", "中", "😀", "\x00\t", "\\", '"', "\u2028"]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("shift", range(7))
def test_a_long_line_is_read_in_pieces(unit: str, ascii_only: bool, shift: int) -> None:
    text = "x" * shift + unit * (200_000 // len(unit))
    content = [{"type": "text", "text": text}, {"type": "text", "text": "short"}]
    params = {"sessionId": "s", "prompt": content, "_meta": {"a": ['"', "\\"]}}
    line = json.dumps({"id": 1, "params": params}, ensure_ascii=ascii_only).encode()
    short = finished(long_lines.shorten(line))
    assert len(short.line) < 300
    read = jsonrpc.decode_params(
        msgspec.json.encode(msgspec.json.decode(short.line)["params"]), PromptParams
    )
    blocks = finished(prompt.restored(read, short.texts)).prompt
    assert [block.text for block in blocks if isinstance(block, TextContent)] == [text, "short"]
    (event,) = {
        len(piece) for piece in long_texts.encode(content) if len(piece) > 6 * long_texts.PIECE * 2
    } or {0}
    assert event == 0, "a piece is bounded"


@given(st.text(st.sampled_from('a"\\/bu0dD8ceEnü中😀 ')), st.integers(1, 9))
def test_strings_of_long_line_are_read_like_msgspec(text: str, times: int) -> None:
    """The strings are JSON as clients write it, broken JSON too."""
    for inside in (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1], text):
        line = b'{"a":"%b"}' % (inside * times * 50).encode()
        try:
            expected: Any = msgspec.json.decode(line, type=dict[str, str])["a"]
        except (msgspec.DecodeError, UnicodeDecodeError):
            expected = None
        short = _shorten_small(line)
        if short is not None and short.texts and expected is not None:
            assert texts(short) == [expected]


def texts(short: long_lines.Short) -> list[str]:
    return [finished(text.joined()) for text in short.texts.values()]


def _shorten_small(line: bytes) -> long_lines.Short | None:
    """In pieces of 64 bytes, so that they meet everywhere."""
    before = long_lines.PIECE
    long_lines.PIECE = 64  # type: ignore[misc]
    try:
        return finished(long_lines.shorten(line))
    except (long_lines.TooComplex, long_lines.NoJson):
        return None
    finally:
        long_lines.PIECE = before  # type: ignore[misc]


def test_lone_surrogate_in_long_line_becomes_question_mark() -> None:
    line = b'{"a":"%b\\ud83d%b"}' % (b"x" * 300_000, b"y" * 300_000)
    short = finished(long_lines.shorten(line))
    assert texts(short) == ["x" * 300_000 + "?" + "y" * 300_000]


@pytest.mark.parametrize(
    "line",
    [b'{"a":"' + b"x" * 300_000, b'{"a":"' + b"x" * 300_000 + b"\xff" + b'"}',
     b'{"a":"' + b"\\" * 300_001 + b'"}', b'{"a":"' + b"\x80" * 300_000 + b'"}', b'{"a":"' + b"\n" * 300_000 + b'"}'],
)  # fmt: skip
def test_invalid_long_string_makes_line_invalid_json(line: bytes) -> None:
    with pytest.raises(long_lines.NoJson):
        finished(long_lines.shorten(line))


@pytest.mark.parametrize("line", [b"x" * 300_000, b'{"a":1}' + b" " * 300_000, b'{"a":["x",2]}'])
def test_line_without_long_strings_stays_unchanged(line: bytes) -> None:
    short = finished(long_lines.shorten(line))
    assert short.line is line
    assert not short.texts


def test_every_step_works_on_a_piece() -> None:
    """Counted in bytes that are decoded at once."""
    decoded: list[int] = []
    decode = msgspec.json.decode

    def counting(data: bytes, **options: Any) -> Any:
        decoded.append(len(data))
        return decode(data, **options)

    line = json.dumps({"a": "word ü\n" * 500_000}).encode()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(msgspec.json, "decode", counting)
        finished(long_lines.shorten(line))
    assert max(decoded) <= long_lines.PIECE + 2
    assert sum(decoded) < len(line) + 3 * len(decoded)


def test_long_prompt_sent_in_pieces_forms_same_frame() -> None:
    blocks = [
        {"type": "text", "text": 'wörds "x" 😀\n' * 100_000},
        {"type": "resource_link", "uri": "file:///a", "name": "a"},
    ]
    made = finished(long_prompt.prompt(3, "turn", blocks))
    assert isinstance(made, long_prompt.LongPrompt)
    assert len(made.pieces) > 10
    assert frames.decode_to_worker(b"".join(made.pieces)) == frames.Prompt(
        epoch=3, turn_id="turn", content=blocks
    )
    short = finished(long_prompt.prompt(3, "turn", blocks[1:]))
    assert type(short) is frames.Prompt


def test_a_prompt_of_very_many_blocks_is_refused() -> None:
    most = finished(prompt.accepted([TextContent(text="x")] * prompt.MAX_BLOCKS)).blocks
    assert len(most) == prompt.MAX_BLOCKS
    with pytest.raises(InvalidParams, match="more than 1000 content blocks"):
        finished(prompt.accepted([TextContent(text="x")] * (prompt.MAX_BLOCKS + 1)))


def test_row_size_is_known_without_reencoding_long_text() -> None:
    message = UserMessage("m", {"type": "text", "text": "x" * 1000})
    assert 1000 < size(message) < 1.2 * len(encode(message))
    assert size(Text("m", "x")) == len(encode(Text("m", "x")))


# --- text that grows


class Growing(str):
    """A delta that counts what is copied when it is added to another."""

    copied = 0

    def __radd__(self, other: str) -> str:
        Growing.copied += len(other) + len(self)
        return str(other) + str(self)


def deltas(count: int) -> Iterator[EventFrame]:
    return (
        EventFrame(epoch=1, turn_id="t", event=Text("m", Growing("12345678"))) for _ in range(count)
    )


def test_waiting_deltas_are_not_copied_for_each_new(tmp_path: Any) -> None:
    Growing.copied = 0
    outbox = Outbox(Spool(str(tmp_path / "spool"), 1), 1 << 30, lambda _: None)
    for frame in deltas(10_000):
        outbox.put(frame)
    assert outbox.number() == 1, "they are one event"
    assert Growing.copied == 0
