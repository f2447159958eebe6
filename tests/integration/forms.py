"""Forms of MCP servers, and what becomes of them."""

from __future__ import annotations

from typing import Any

from pykoclaw_acp.model.permissions import Form
from tests.integration.asking import Asking, Person
from tests.waiting import eventually

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
FORM = Form("secretary", "Who are you?", SCHEMA)
PAGE = Form("web", "Sign in.", {}, "https://example.org/authorize")
ADA = {"action": "accept", "content": {"name": "Ada"}}


async def given(asking: Asking) -> tuple[str, Any]:
    """What the worker was told: the decision and the content."""
    (answer,) = await eventually(lambda: asking.answers)
    return answer.decision, answer.content


async def person_asked(person: Person) -> None:
    await eventually(lambda: person.ids)
