"""Other programs that continue a conversation, and what became of it."""

from __future__ import annotations

from tests.double.roles import Role
from tests.e2e.harness import Stack


def row(stack: Stack, name: str) -> tuple[str, str]:
    """Claude session and directory of a conversation's row."""
    (found,) = stack.rows("SELECT session_id, cwd FROM conversations WHERE name = ?", name)
    return found["session_id"], found["cwd"]


async def dispatch(stack: Stack, name: str, prompt: str) -> None:
    """A turn as WhatsApp runs it."""
    await Role.run(stack.data, stack.environment, "dispatch", name, prompt, "--claude")


def answers(stack: Stack) -> list[str]:
    """What the newest request to the model holds of answers that it has given."""
    return [
        one["text"]
        for one in stack.asked()[-1]["messages"]
        if one["role"] == "assistant" and one["text"]
    ]
