"""Previews by which the choices of a question are compared."""

from __future__ import annotations

from typing import Any

import msgspec

from pykoclaw_acp.model import questions
from pykoclaw_acp.model.permissions import PermissionRequest
from pykoclaw_acp.protocol.questions import form, poll
from pykoclaw_acp.translation import deciding


def request(*previews: str, multiple: bool = False) -> PermissionRequest:
    options = [
        {"label": f"L{at}", "description": "", "preview": one} for at, one in enumerate(previews)
    ]
    asked = {"question": "Which?", "header": "H", "multiSelect": multiple, "options": options}
    arguments = {"questions": [asked]}
    return PermissionRequest(
        epoch=1, ask_id="ask", turn_id="turn", tool_call_id="call", title="Ask: Which?",
        tool_kind="other", tool=questions.ASKS, questions=questions.read(arguments),
        content=deciding.content(questions.ASKS, arguments),
    )  # fmt: skip


def choices(asked: PermissionRequest) -> list[dict[str, Any]]:
    fields = (form("session", asked).requested_schema or {})["properties"]["question_0"]
    found: list[dict[str, Any]] = fields.get("oneOf") or fields["items"]["anyOf"]
    return found


def test_form_has_previews_where_clients_look() -> None:
    for multiple in (False, True):
        first, second = choices(request("CREATE TABLE x", "", multiple=multiple))
        assert first["_meta"] == {"_claude/askUserQuestionOption": {"preview": "CREATE TABLE x"}}
        assert "_meta" not in second


def test_preview_stands_below_its_choice() -> None:
    asked = request("+---+\n|   |\n\n+---+", "")
    shown = "1. L0\n\n   ```\n   +---+\n   |   |\n\n   +---+\n   ```\n\n2. L1"
    params = poll("session", asked, 0, chat_first=False)
    for text in (
        questions.described(asked.questions),
        msgspec.to_builtins(asked.content[0])["text"],
        msgspec.to_builtins(params)["toolCall"]["content"][0]["content"]["text"],
    ):
        assert text == f"**Which?**\n\n{shown}"


def test_preview_in_markdown_stays_markdown() -> None:
    asked = request("**New:**\n```ts\nlet a\n```", "it\n```\nends not")
    text = questions.described(asked.questions)
    assert "1. L0\n\n   **New:**\n   ```ts\n   let a\n   ```\n\n2. L1" in text
    assert text.endswith("2. L1\n\n   it\n   ```\n   ends not\n   ```")


def test_long_preview_is_cut_with_mark() -> None:
    asked = request("x" * 100_000 + "\x1b[8m")
    (choice,) = choices(asked)
    sent = choice["_meta"]["_claude/askUserQuestionOption"]["preview"]
    assert sent.startswith("xxx")
    assert len(sent) < questions.MOST_OF_PREVIEW + 100
    assert "characters left out" in sent
    assert "characters left out" in questions.described(asked.questions)


def test_preview_hides_nothing_from_readers() -> None:
    text = questions.described(request("a\x1b[8mb\u202e").questions)
    assert r"a\x1b[8mb\u202e" in text
