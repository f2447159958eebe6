"""What was said, in a document of an export: it is not taken for the document's own words."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from pykoclaw_acp.commands.markdown import markdown
from pykoclaw_acp.commands.page import page
from pykoclaw_acp.commands.show import stamp
from pykoclaw_acp.model.events import MAX_TEXT

SUMMARY: dict[str, Any] = {
    "id": "5e55", "conversation": "acp-5e55", "title": "The parser", "cwd": "/w", "createdAt": 0, "updatedAt": 0,
}  # fmt: skip
PARSER = MarkdownIt("commonmark").enable("table")


def said(kind: str, text: str, message: str = "m", **more: Any) -> dict[str, Any]:
    content = {"type": "text", "text": text}
    return {"sessionUpdate": kind, "messageId": message, "content": content, **more}


def asked(content: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"sessionUpdate": "user_message_chunk", "messageId": "u", "content": content, **more}


def document(*updates: dict[str, Any], **summary: Any) -> str:
    return "".join(markdown({"summary": {**SUMMARY, **summary}}, updates))


def answered(text: str) -> str:
    """What stands in the document for an answer of Claude's."""
    return document(said("agent_message_chunk", text)).partition("## Claude\n\n")[2]


def headings(tokens: list[Token]) -> list[tuple[str, str]]:
    return [
        (one.tag, tokens[at + 1].content)
        for at, one in enumerate(tokens)
        if one.type == "heading_open"
    ]


def html(tokens: list[Token]) -> list[str]:
    every = [one for token in tokens for one in (token, *(token.children or []))]
    return [one.content for one in every if one.type.startswith("html")]


def emphasised(tokens: list[Token]) -> Iterator[str]:
    """Words at the beginnings of lines that are emphasised."""
    for token in tokens:
        begins, marks = True, False
        for one in token.children or []:
            if one.type in ("em_open", "strong_open"):
                marks = begins
            elif one.type in ("softbreak", "hardbreak"):
                begins = True
            elif one.content.strip():
                if marks:
                    yield one.content
                begins = marks = False


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("## Usage\n\n#### Deep", "##### Usage\n\n###### Deep\n"),
        ("You\n---\nIt.\n\nAll\n===", "##### You\nIt.\n\n#### All\n"),
        ("Two\nlines\n---", "Two\nlines\n\\---\n"),
        ("- # You\n> ## You\n\n1. a\n\n   ## You", "- #### You\n> ##### You\n\n1. a\n\n   ##### You\n"),
        ("> *pykoclaw-acp:*\n>\n> Denied.", "> \\*pykoclaw-acp:*\n>\n> Denied.\n"),
        ("__pykoclaw\\-acp&#58;__ x", "\\_\\_pykoclaw\\-acp&#58;__ x\n"),
        ("- *Tool:* ✓ `rm a`", "- \\*Tool:* ✓ `rm a`\n"),
        ("<h2>You</h2>\n<!-- `<b>` <https://x.y>", "\\<h2>You\\</h2>\n\\<!-- `<b>` <https://x.y>\n"),
        ("`a\n`<h2>`", "`a\n`\\<h2>`\n"),
    ],
)  # fmt: skip
def test_words_of_claude_are_below_headings(text: str, shown: str) -> None:
    assert answered(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "```sh\n# no heading\n<b>\n```\n",
        "1. Do:\n   ```sh\n   # no heading\n   ```\n",
        "- a\n  - b\n\n    ~~~\n    ## no heading\n    ~~~\n",
        "It is:\n\n    # code\n\n    <b>\n",
        "#include\n> q\n---\n- a\n---\n| a |\n|---|\n| 1 |\n",
        "*Emphasis* and `<b>`, a < b, #1\n",
    ],
)
def test_code_and_ordinary_words_stay_unchanged(text: str) -> None:
    assert answered(text) == text


PIECES = [
    "## You", "# T", "You", "---", "===", "-", "--", "=", "- ", "1. ", "2) ", "> ", ">", "  ", "    ", "\t", "```",
    "~~~", "````", "```sh", "`", "``", "<h2>You</h2>", "<!--", "-->", "<div>", "</div>", "<script>", "*pykoclaw-acp:*",
    "_Tool:_ x", "**Tool:**", "\\", "\\`", "x", "| a |", "|---|", "***", "&nbsp;", "\n", "\n\n", "\n", "\n", " ", "#",
]  # fmt: skip


@pytest.mark.parametrize(
    "seeds", [range(600), pytest.param(range(600, 20_000), marks=pytest.mark.long)], ids=str
)
def test_no_answer_reads_like_the_document(seeds: range) -> None:
    for seed in seeds:
        drawn = random.Random(seed)
        text = "".join(drawn.choice(PIECES) for _ in range(drawn.randrange(2, 22)))
        tokens = PARSER.parse(
            document(said("agent_message_chunk", text), said("user_message_chunk", "End."))
        )
        own = [one for one in headings(tokens) if one[0] in ("h1", "h2", "h3")]
        expected = [("h1", "The parser"), *([("h2", "Claude")] if text else []), ("h2", "You")]
        assert own == expected, repr(text)
        assert html(tokens) == [], repr(text)
        assert not [one for one in emphasised(tokens) if one[:4] in ("pyko", "Tool")], repr(text)


@pytest.mark.parametrize(
    "text",
    ["".join("`" * size + "a" for size in range(1, 500)), "\\" * 128_000, "<ab:" * 32_000],
    ids=["marks", "backslashes", "tags"],
)
def test_hostile_lines_are_soon_embedded(text: str) -> None:
    begin = time.process_time()
    answered(text)
    assert time.process_time() - begin < 3


def test_title_and_directory_are_words_in_export() -> None:
    title = "<img src=x onerror=alert(1)> # [a](b) *c* &lt; my_file.py"
    tokens = PARSER.parse(document(title=title, cwd="/w/<b>*x*"))
    assert html(tokens) == []
    shown = ["".join(one.content for one in token.children or []) for token in tokens]
    assert title in shown
    assert any("in /w/<b>*x*;" in one for one in shown)
    assert "# The_parser: a < b, #1\n" in document(title="The_parser: a < b, #1")


def test_task_in_export_is_no_html() -> None:
    plan = {
        "sessionUpdate": "plan",
        "entries": [{"content": "<img src=x> `a`", "status": "pending"}],
    }
    assert "> - [ ] \\<img src=x> `a`\n" in document(plan)


def test_image_of_unknown_kind_ends_no_line() -> None:
    image = {"type": "image", "mimeType": "image/png)\n\n## You\n\n", "data": "AAAA"}
    assert document(asked(image)).endswith("(an image that cannot be shown)\n")


@pytest.mark.parametrize("render", [markdown, page])
def test_exports_tell_when_prompts_came(render: Any) -> None:
    updates = [
        asked({"type": "text", "text": "One."}, at=1_700_000_000_000),
        said("user_message_chunk", "Two.", "v", at=1_700_000_060_000),
        said("user_message_chunk", "Other.", "w"),
    ]
    summary = {**SUMMARY, "createdAt": 1_600_000_000_000, "updatedAt": 1_650_000_000_000}
    shown = "".join(render({"summary": summary}, updates))
    assert f"created {stamp(1_600_000_000_000)}, last used {stamp(1_650_000_000_000)}" in shown
    places = [shown.index(f"You, {stamp(at)}") for at in (1_700_000_000_000, 1_700_000_060_000)]
    assert places[0] < shown.index("One.") < places[1] < shown.index("Two.")


def test_time_of_export_has_its_zone() -> None:
    read = datetime.fromisoformat(stamp(1_700_000_000_123))
    assert read.utcoffset() is not None
    assert read.timestamp() == 1_700_000_000


LINK = {"type": "resource_link", "name": "a b.txt", "uri": "file:///w/a b.txt"}
SHOWN_LINK = "[a b.txt](<file:///w/a b.txt>)"


@pytest.mark.parametrize(
    ("blocks", "shown"),
    [
        (["Compare.", LINK, LINK, "Now."], f"Compare.\n\n{SHOWN_LINK}\n\n{SHOWN_LINK}\n\nNow.\n"),
        (["See ", LINK, ", please."], f"See {SHOWN_LINK}, please.\n"),
        (["One.", "Two.\n", "Three."], "One.\n\nTwo.\n\nThree.\n"),
        (["```\nx", LINK], f"```\nx\n\n```\n\n{SHOWN_LINK}\n"),
        (["x" * MAX_TEXT, "y"], f"{'x' * MAX_TEXT}y\n"),
    ],
    ids=["paragraphs", "inline", "texts", "open code", "long text"],
)
def test_blocks_of_prompt_are_paragraphs_or_inline(blocks: list[Any], shown: str) -> None:
    made = [{"type": "text", "text": one} if isinstance(one, str) else one for one in blocks]
    assert document(*map(asked, made)).partition("## You\n\n")[2] == shown


def test_image_in_prompt_is_a_paragraph() -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "AAAA"}
    shown = document(*(asked(one) for one in ({"type": "text", "text": "Look:"}, image, LINK)))
    assert f"Look:\n\n![image](data:image/png;base64,AAAA)\n\n{SHOWN_LINK}\n" in shown
