"""Exports: documents that people read, whatever was said in the session."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest

from pykoclaw_acp.commands import document, importing
from pykoclaw_acp.commands.document import Item, ShownCall, ShownMessage, ShownPlan, items
from pykoclaw_acp.commands.markdown import closed, markdown
from pykoclaw_acp.commands.page import page
from pykoclaw_acp.commands.prose import html
from pykoclaw_acp.commands.show import stamp
from pykoclaw_acp.commands.transcript import TranscriptPrinter
from pykoclaw_acp.errors import CommandFailed

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
IMAGE = {"type": "image", "mimeType": "image/png", "data": PNG}
SUMMARY: dict[str, Any] = {
    "id": "5e55",
    "conversation": "acp-5e55",
    "title": "The <parser>",
    "cwd": "/w",
}
SUMMARY |= {"createdAt": 0, "updatedAt": 60_000}
HOSTILE = "</div><script>alert(1)</script><img src=x onerror=alert(1)>\" ' \x1b[31m\u202e"


def said(kind: str, message: str, text: str, **meta: Any) -> dict[str, Any]:
    content = {"type": "text", "text": text}
    update = {"sessionUpdate": kind, "messageId": message, "content": content}
    return update | ({"_meta": meta} if meta else {})


def call(tool: str, title: str = "Bash: ls", **more: Any) -> dict[str, Any]:
    return {"sessionUpdate": "tool_call", "toolCallId": tool, "title": title, **more}


def update(tool: str, *texts: str, status: str = "completed") -> dict[str, Any]:
    shown = [{"type": "content", "content": {"type": "text", "text": text}} for text in texts]
    return {
        "sessionUpdate": "tool_call_update", "toolCallId": tool, "status": status, "content": shown,
    }  # fmt: skip


DIFF = {"type": "diff", "path": "a.py", "oldText": "x = 1\n", "newText": "x = 2\n"}
HISTORY = [
    said("user_message_chunk", "u1", "Change "),
    said("user_message_chunk", "u1", "it."),
    said("agent_thought_chunk", "a1", "Hm."),
    said("agent_message_chunk", "a1", "I will"),
    said("agent_message_chunk", "a1", ".\n"),
    call("t", "Edit a.py"),
    call("b"),
    update("b", "one", status="in_progress"),
    update("b", "one\ntwo", status="in_progress"),
    {"sessionUpdate": "plan", "entries": [{"content": "Old", "status": "pending"}]},
    {"sessionUpdate": "plan", "entries": [{"content": "Test", "status": "completed"}]},
    {"sessionUpdate": "usage_update", "used": 1, "size": 2},
    {**update("t"), "content": [DIFF]},
    update("b", "```console\none\ntwo\nthree\n```"),
    call("c", "Read a.py"),
    update("c"),
    call("d", "Bash: pwd"),
    update("d", "/w\n"),
    said("agent_message_chunk", "a2", "Done."),
    said("agent_message_chunk", "n", "It failed.", **{"pykoclaw.dev/note": "failure"}),
    said("user_message_chunk", "u2", "And?"),
]


def rendered(render: Any, updates: list[dict[str, Any]], **summary: Any) -> str:
    return "".join(render({"summary": {**SUMMARY, **summary}}, updates))


def test_each_thing_is_one_item_in_its_place() -> None:
    found = list(items(HISTORY))
    kinds = [one.speaker if isinstance(one, ShownMessage) else type(one).__name__ for one in found]
    assert kinds == [
        "You", "Claude, thinking", "Claude", *["ShownCall"] * 4, "Claude", "pykoclaw-acp", "ShownPlan", "You",
    ]  # fmt: skip
    tools = [one for one in found if isinstance(one, ShownCall)]
    assert [one.title for one in tools] == ["Edit a.py", "Bash: ls", "Read a.py", "Bash: pwd"]
    assert [len(one.content) for one in tools] == [1, 1, 0, 1]
    assert [one.entries for one in found if isinstance(one, ShownPlan)] == [
        [{"content": "Test", "status": "completed"}]
    ]


@pytest.mark.parametrize("after", [[], [said("user_message_chunk", "u2", "And?")]])
def test_tasks_that_were_emptied_are_shown(after: list[dict[str, Any]]) -> None:
    """By a rewind, a lost memory, or at the end of what a fork or an import begins with."""
    entries = [{"content": "Test", "status": "in_progress"}]
    plans = [{"sessionUpdate": "plan", "entries": one} for one in (entries, [], [])]
    note = said("agent_message_chunk", "n", "Rewound.", **{"pykoclaw.dev/note": "rewound"})
    found = [*items([*plans, note, *after])]
    assert [type(one) for one in found] == [ShownPlan, *[ShownMessage] * (1 + len(after))]
    assert isinstance(found[0], ShownPlan)
    assert found[0].entries == entries


def test_a_hunk_shows_what_stays_once() -> None:
    hunk = {**DIFF, "oldText": "a\nb\nc\n", "newText": "a\nB\nc\n"}
    done = {**update("t"), "content": [hunk]}
    assert "--- a.py\n+++ a.py\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n```" in rendered(
        markdown, [call("t"), done]
    )


def test_long_running_tool_does_not_fill_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(document, "HELD", 1000)
    updates = [
        call("t", "Bash: sleep"),
        *(said("agent_message_chunk", f"m{at}", "x" * 100) for at in range(30)),
        update("t", "slept\nwell"),
    ]
    taken, held = 0, 0

    def reading() -> Iterator[dict[str, Any]]:
        nonlocal taken
        for one in updates:
            taken += 1
            yield one

    found: list[Item] = []
    for one in items(reading()):
        held = max(held, taken - len(found))
        found.append(one)
    assert len(found) == len(updates)
    assert held < 15
    last = found[-1]
    assert isinstance(last, ShownCall)
    assert (last.title, last.status) == ("Bash: sleep", "completed")


def test_markdown_is_readable() -> None:
    assert (
        rendered(markdown, HISTORY, title="The parser")
        == f"""\
# The parser

Session 5e55, in /w; created {stamp(0)}, last used {stamp(60_000)}.

## You

Change it.

## Claude

> *Claude, thinking:*
>
> Hm.

I will.

### Tool: ✓ `Edit a.py`

```diff
--- a.py
+++ a.py
@@ -1,1 +1,1 @@
-x = 1
+x = 2
```

### Tool: ✓ `Bash: ls`

```
one
two
three
```

- *Tool:* ✓ `Read a.py`
- *Tool:* ✓ `Bash: pwd` — `/w`

Done.

> *pykoclaw-acp:*
>
> It failed.

> *Claude's tasks:*
>
> - [x] Test

## You

And?
"""
    )


def test_task_in_progress_is_seen_in_markdown() -> None:
    states = ("completed", "in_progress", "pending")
    entries = [{"content": one.title(), "status": one} for one in states]
    document = rendered(markdown, [{"sessionUpdate": "plan", "entries": entries}])
    shown = "> - [x] Completed\n> - [ ] *In progress:* In_Progress\n> - [ ] Pending\n"
    assert document.endswith(shown)


def test_a_prompt_after_a_note_has_a_heading() -> None:
    shown = rendered(
        markdown,
        [
            said("user_message_chunk", "u1", "/clear"),
            said("agent_message_chunk", "n", "Cleared.", **{"pykoclaw.dev/note": "note"}),
            said("user_message_chunk", "u2", "Go on."),
        ],
    )
    assert shown.index("Cleared.") < shown.rindex("## You") < shown.index("Go on.")


def test_a_quote_of_this_program_is_quoted_once() -> None:
    quote = "\n\n> The agent has **ended**.\n>\n> It said > 1.\n\n"
    note = said("agent_message_chunk", "n", quote, **{"pykoclaw.dev/note": "note"})
    assert rendered(markdown, [note]).endswith(
        "> *pykoclaw-acp:*\n>\n> The agent has **ended**.\n>\n> It said > 1.\n"
    )
    shown = rendered(page, [note])
    assert "The agent has <strong>ended</strong>.\n\nIt said &gt; 1." in shown
    assert shown.partition("<div")[2].count("&gt;") == 1
    other = {**note, "content": {"type": "text", "text": "It said:\n> no"}}
    assert rendered(markdown, [other]).endswith("> It said:\n> > no\n")


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("1. a\n   ```\n   x", "\n   ```"),
        ("```py\nx", "\n```"), ("~~~~\n```\nx", "\n~~~~"), ("```\nx\n```", ""), ("````\n```\n", "````"),
        ("no ```code```", ""), ("```\nx\n```\n~~~", "\n~~~"),
    ],
)  # fmt: skip
def test_open_code_block_does_not_swallow_the_rest(text: str, end: str) -> None:
    assert closed(text) == text + end
    document = rendered(markdown, [said("agent_message_chunk", "a", text), HISTORY[-1]])
    assert f"{text}{end}".strip("\n") + "\n\n## You\n" in document


def test_output_and_title_cannot_end_their_code() -> None:
    shown = [call("t", "Bash: echo '```'"), update("t", "x\n```\ncode\n```")]
    document = rendered(markdown, shown)
    assert "### Tool: ✓ ````Bash: echo '```'````\n" in document
    assert "\n````\nx\n```\ncode\n```\n````\n" in document
    shown = [
        call("t"),
        update("t", "````\n```\nx\n````"),
        call("u"),
        update("u", "```sh\na\n```\nb"),
    ]
    document = rendered(markdown, shown)
    assert "\n````\n```\nx\n````\n" in document, "in one block, not in two"
    assert "\n````\n```sh\na\n```\nb\n````\n" in document


@pytest.mark.parametrize(
    ("content", "words", "html"),
    [
        (IMAGE, f"![image](data:image/png;base64,{PNG})", f'src="data:image/png;base64,{PNG}"'),
        ({"type": "resource_link", "name": "a.py", "uri": "file:///a.py"}, "[a.py](file:///a.py)", "[a.py]"),
        ({"type": "resource", "resource": {"uri": "file:///b", "text": "its text"}}, "its text", "<pre>its text"),
        ({"type": "resource", "resource": {"uri": "file:///b.pdf", "blob": "AAAA"}}, "base64,AAAA",
         '<a download="b.pdf" href="data:application/octet-stream;base64,AAAA">'),
    ],
)  # fmt: skip
def test_every_kind_of_content_is_shown(content: dict[str, Any], words: str, html: str) -> None:
    updates = [{"sessionUpdate": "user_message_chunk", "messageId": "u", "content": content}]
    assert words in rendered(markdown, updates)
    assert html in rendered(page, updates)
    if content is IMAGE:
        shown = [{"type": "content", "content": content}]
        tool = [call("t"), {**update("t"), "content": shown}]
        assert words in rendered(markdown, tool)
        assert html in rendered(page, tool)


class _Page(HTMLParser):
    """Tags that stand open, all attributes, and visible text."""

    VOID = ("meta", "img", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> _Page:
    found = _Page()
    found.feed(html)
    found.close()
    assert found.open == []
    return found


def test_page_shows_everything_and_loads_nothing() -> None:
    html = rendered(page, HISTORY)
    found = read(html)
    for words in (
        "The <parser>",
        "Change it.",
        "Hm.",
        "I will.",
        "+x = 2",
        "three",
        "/w",
        "It failed.",
        "Claude's tasks:☑ Test",
    ):
        assert words in found.text, words
    assert html.count("two") == 1, "output once"
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    assert style is not None
    hashed = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    (policy,) = [
        a["content"] for _, a in found.tags if a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    assert policy.startswith(f"default-src 'none'; img-src data:; style-src 'sha256-{hashed}'")
    assert not {"script", "link", "iframe", "form", "object", "base"} & {
        tag for tag, _ in found.tags
    }
    assert not {name for _, attrs in found.tags for name in attrs if name.startswith("on")}


@pytest.mark.parametrize(
    ("name", "given", "asked"),
    [
        ("mcp__db__query", {"sql": "select 1"}, '{\n  "sql": "select 1"\n}'),
        ("Agent", {"description": "Look", "prompt": "Find ```it```."}, "Find ```it```."),
        ("Bash", {"command": "ls"}, None),
        ("mcp__db__list", {}, None),
    ],
)
def test_what_a_call_was_asked_is_shown(
    name: str, given: dict[str, Any], asked: str | None
) -> None:
    updates = [call("t", "x: y", name=name, rawInput=given), update("t", "done")]
    document = rendered(markdown, updates)
    found = read(rendered(page, updates)).text
    if asked is None:
        assert document.endswith("- *Tool:* ✓ `x: y` — `done`\n")
        assert found.endswith("✓ x: y — done\n\n")
    else:
        assert f"\n{asked}\n" in document
        assert f"{asked}" in found
        assert document.index(asked) < document.index("\ndone\n")
        stopped = [call("t", name=name, rawInput=given), update("t", asked, status="failed")]
        assert name == "mcp__db__query" or rendered(markdown, stopped).count(asked) == 1


def options(**values: str) -> dict[str, Any]:
    """An update of the options that have these values."""
    shown = [
        {
            "name": name,
            "currentValue": value,
            "options": [{"value": value, "name": value.title()}],
        }
        for name, value in values.items()
    ]
    return {"sessionUpdate": "config_option_update", "configOptions": shown}


def test_changes_of_options_are_notes() -> None:
    history = [
        options(Mode="plan", Model="opus"),
        said("user_message_chunk", "u1", "Go on."),
        options(Mode="plan", Model="opus"),
        options(Mode="plan", Model="haiku"),
    ]
    found = [one for one in items(history) if isinstance(one, ShownMessage)]
    assert [(one.speaker, one.blocks[0]["text"]) for one in found] == [
        ("pykoclaw-acp", "Mode: Plan. Model: Opus."),
        ("You", "Go on."),
        ("pykoclaw-acp", "Model: Haiku."),
    ]


def test_changed_option_does_not_divide_message() -> None:
    """The note follows the message, and stands before what comes next."""
    first, rest = (said("agent_message_chunk", "a1", text) for text in ("Hello ", "world."))
    history = [call("t"), first, options(Mode="plan"), update("t", "one"), rest]
    ends: list[tuple[dict[str, Any], list[str]]] = [
        (said("agent_message_chunk", "a2", "Done."), ["Done."]),
        (call("u", "Bash: pwd"), ["Bash: pwd"]),
        ({"sessionUpdate": "plan", "entries": [{"content": "Test"}]}, ["Test"]),
        (options(Mode="auto"), ["Mode: Auto."]),
        ({}, []),
    ]
    for end, after in ends:
        assert [name(one) for one in items([*history, end])] == [
            *("Bash: ls", "Hello world.", "Mode: Plan."),
            *after,
        ]


def name(item: Item) -> str:
    if isinstance(item, ShownMessage):
        return "".join(block["text"] for block in item.blocks)
    return item.title if isinstance(item, ShownCall) else str(item.entries[0]["content"])


def test_content_of_written_file_is_no_outcome() -> None:
    """It stands below the title, not beside it; why the call has failed may."""
    for status in ("completed", "in_progress"):
        write = [call("t", "Write a", kind="edit"), update("t", "```\nx = 1\n```", status=status)]
        assert "Write a`\n\n```\nx = 1\n```\n" in rendered(markdown, write)
        assert "<pre>x = 1</pre></details>" in rendered(page, write)
    refused = [call("t", "Write a", kind="edit"), update("t", "```\nNo.\n```", status="failed")]
    assert rendered(markdown, refused).endswith("✗ `Write a` — `No.`\n")


def test_links_to_web_are_links_in_page() -> None:
    shown = html('See **[the "docs"](https://x.org/?a=1&b="2")** and [it](http://y.org).')
    assert (
        '<strong><a href="https://x.org/?a=1&amp;b=&quot;2&quot;">the &quot;docs&quot;</a></strong>'
        ' and <a href="http://y.org">it</a>.'
    ) in shown
    for other in (
        "[x](javascript:alert(1))", "[x](file:///etc/passwd)", "`[x](https://x.org)`", "[x] (https://x.org)",
        "[x](https://x.org/ onclick=y)", "[**x](https://x.org)** y",
    ):  # fmt: skip
        assert "<a" not in html(other)


@pytest.mark.parametrize("fence", ["", "```\n", "```html\n", "# ", "`", "**"])
def test_nothing_said_becomes_part_of_page(fence: str) -> None:
    text = f"{fence}{HOSTILE}{fence}"
    parts = [
        {**DIFF, "path": text, "oldText": text, "newText": text},
        {"type": "content", "content": {**IMAGE, "mimeType": text}},
        {"type": "content", "content": {**IMAGE, "data": text}},
    ]
    resource = {"uri": text, "mimeType": text, "text": text}
    updates: list[dict[str, Any]] = [
        *(said(kind, "m", text) for kind in ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk")),
        said("agent_message_chunk", "n", text, **{"pykoclaw.dev/note": "note"}),
        said("user_message_chunk", "o", text, **{"pykoclaw.dev/origin": text}),
        {"sessionUpdate": "user_message_chunk", "messageId": "r",
         "content": {"type": "resource", "resource": resource}},
        {"sessionUpdate": "user_message_chunk", "messageId": "b",
         "content": {"type": "resource", "resource": {**resource, "blob": "AAAA"}}},
        {"sessionUpdate": "user_message_chunk", "messageId": "k", "content": {"type": text}},
        {"sessionUpdate": "plan", "entries": [{"content": text, "status": text}]},
        call("t", text, status=text), update("t", text), {**update("t2"), "content": parts},
        call("e", text, status="failed", content=parts),
    ]  # fmt: skip
    html = rendered(page, updates, title=text, cwd=text, id=text)
    found = read(html)
    assert not {"script", "a b"} & {tag for tag, _ in found.tags}
    assert not {name for _, attrs in found.tags for name in attrs if name.startswith("on")}
    assert all((attrs.get("src") or "data:").startswith("data:") for _, attrs in found.tags)
    assert all((attrs.get("href") or "data:").startswith("data:") for _, attrs in found.tags)
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert found.text.count("alert(1)</script>") >= 10, "it is shown, as text"


# --- files that are imported

EXPORT = """{"format": "pykoclaw-acp/session", "version": 1, "session": {"summary": {}}, "events": [
{"seq": 1, "update": {"a": "é"}},
{"seq": 2, "update": {}}
]}
"""


def lines_of(text: str) -> list[Any]:
    """What is sent of such a file."""
    sent = bytearray()

    def ask(method: str, **params: Any) -> Any:
        if method == "import/piece":
            sent.extend(base64.b64decode(params["data"]))
            return {"upload": "u"}
        return {"session": "5e55", "title": "T", "events": 3, "leftOut": 0}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(importing, "ask", ask)
        importing.main(io.BytesIO(text.encode()), ".")
    return [json.loads(line) for line in sent.splitlines()]


def test_export_is_read_linewise_and_reformatted_whole() -> None:
    expected = lines_of(EXPORT)
    assert [sorted(one) for one in expected] == [
        ["format", "session", "version"], ["seq", "update"], ["seq", "update"],
    ]  # fmt: skip
    assert expected[1]["update"] == {"a": "é"}
    assert lines_of(json.dumps(json.loads(EXPORT), indent=2)) == expected
    assert lines_of(json.dumps(json.loads(EXPORT))) == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (EXPORT.removesuffix("]}\n"), "ends in the middle"),
        (EXPORT[:140], "ends in the middle"),
        ("", "not a session that was exported"),
        ("no JSON", "not a session that was exported"),
        ("[" * 100_000, "not a session that was exported"),
        ('{"session": {}, "events": [\n]}\n', "one of an earlier version"),
        ('{"format": "pykoclaw-acp/session"}', "has no events"),
        ("\x00\xff", "not a session that was exported"),
    ],
)
def test_another_file_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(CommandFailed, match=words):
        lines_of(text)


def test_a_file_is_sent_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, dict[str, Any]]] = []

    def ask(method: str, **params: Any) -> Any:
        sent.append((method, params))
        made = {"session": "5e55", "title": "T", "events": 3, "leftOut": 1}
        return {"upload": "u"} if method == "import/piece" else made

    monkeypatch.setattr(importing, "ask", ask)
    monkeypatch.setattr(importing, "MAX_PIECE", 30)
    importing.main(io.BytesIO(EXPORT.encode()), "relative")
    *pieces, (method, finish) = sent
    whole = b"".join(base64.b64decode(params["data"]) for _, params in pieces)
    assert [json.loads(line) for line in whole.splitlines()] == lines_of(EXPORT)
    assert [params["upload"] for _, params in pieces] == [None] + ["u"] * (len(pieces) - 1)
    assert (method, finish["upload"]) == ("import/finish", "u")
    assert finish["cwd"] == os.path.abspath("relative")


def test_upload_that_breaks_off_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, dict[str, Any]]] = []

    def ask(method: str, **params: Any) -> Any:
        sent.append((method, params))
        return {"upload": "u"}

    monkeypatch.setattr(importing, "ask", ask)
    with pytest.raises(CommandFailed, match="in the middle"):
        importing.main(io.BytesIO(EXPORT.encode()[:-4]), "relative")
    assert sent == []  # nothing was sent yet
    monkeypatch.setattr(importing, "MAX_PIECE", 30)
    with pytest.raises(CommandFailed, match="in the middle"):
        importing.main(io.BytesIO(EXPORT.encode()[:-4]), "relative")
    assert sent[-1] == ("import/abandon", {"start": False, "upload": "u"})


ODD: list[Any] = [
    None,
    7,
    "x",
    [],
    [7],
    {},
    {"type": 7},
    {"type": "text"},
    {"type": "text", "text": 5},
]
ODD += [{"type": "image", "data": 5, "mimeType": {}}, {"type": "resource", "resource": 7}]
ODD += [{"type": "resource", "resource": {"uri": 5, "blob": []}}, {"type": "content", "content": 7}]
ODD += [{"type": "diff", "oldText": 7, "newText": None, "_meta": 7}, {"type": "content"}]


@pytest.mark.parametrize("odd", ODD, ids=str)
def test_odd_content_ends_no_command(odd: Any) -> None:
    """As a daemon of another version may send, or a log that is damaged."""
    kinds = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "plan", odd)
    history: list[dict[str, Any]] = [
        {"sessionUpdate": kind, "messageId": odd, "content": odd, "entries": odd, "_meta": odd}
        for kind in kinds
        for _ in range(2)
    ]
    for value in (odd, [odd]):
        history += [
            {"sessionUpdate": "plan", "entries": value},
            {"sessionUpdate": "tool_call", "toolCallId": odd, "title": odd, "content": value},
            {
                "sessionUpdate": "tool_call_update",
                "toolCallId": odd,
                "status": odd,
                "rawInput": odd,
            },
            {**update(str(odd)), "content": value},
        ]
    history = [*HISTORY, *history, said("agent_message_chunk", "last", "The end.")]
    printed: list[str] = []
    terminal = TranscriptPrinter(lambda text: printed.append(str(text)))
    for one in history:
        terminal.show(one)
    for text in (
        "".join(printed),
        *("".join(made({"summary": SUMMARY}, history)) for made in (markdown, page)),
    ):
        assert "The end." in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("| a | `b` |\n|---|:-:|\n| 1 | x \\| y |\nAfter", ("<table><tr><th>a</th><th><code>b</code></th></tr>"
         "<tr><td>1</td><td>x | y</td></tr></table>After")),
        ("| no | table |", "| no | table |"),
        ("- one\n  - deep\n- **two**", "<ul><li>one<ul><li>deep</li></ul></li><li><strong>two</strong></li></ul>"),
        ("3. three\n4. four", '<ol start="3"><li>three</li><li>four</li></ol>'),
        ("Said:\n> # Loud\n> > twice", ("Said:<blockquote><strong>Loud</strong>"
         "<blockquote>twice</blockquote></blockquote>")),
        ("- <b>x</b>\n> <script>\n| <i> |\n|---|", ("<ul><li>&lt;b&gt;x&lt;/b&gt;</li></ul>"
         "<blockquote>&lt;script&gt;</blockquote><table><tr><th>&lt;i&gt;</th></tr></table>")),
        ("```\n- no item\n```", "<pre>- no item</pre>"),
    ],
)  # fmt: skip
def test_markdown_is_html_and_html_is_text(text: str, shown: str) -> None:
    assert f">{shown}</div>" in rendered(page, [said("agent_message_chunk", "a", text)])


def test_hostile_markdown_is_as_long_as_it_was() -> None:
    deep = "\n".join(f"{' ' * (2 * n)}- {'> ' * n}x" for n in range(200)) + "\n" + "> " * 5000
    assert len(html(deep)) < 10 * len(deep)


def test_persons_code_blocks_and_lines_survive_in_html() -> None:
    typed = "Fix **this**:\n```py\nif a < b:\n    c()\n```\nplease,\nnow"
    shown = '<div class="text you">Fix **this**:<pre>if a &lt; b:\n    c()</pre>please,\nnow</div>'
    update = {**said("user_message_chunk", "u", typed)}
    assert shown in rendered(page, [update])
