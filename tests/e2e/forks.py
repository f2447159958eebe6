"""What tests of forks share."""

from __future__ import annotations

from typing import Any

from tests.e2e.harness import Client, Stack, script, text


async def fork(client: Client, stack: Stack, session: str, **more: Any) -> dict[str, Any]:
    """The answer to `session/fork`; `more`: other parameters."""
    params = {"cwd": str(stack.work), "mcpServers": [], **more}
    return await client.call("session/fork", sessionId=session, **params)


def remembered(stack: Stack) -> list[str]:
    """The user's words in the newest request to the model."""
    return [line for text in stack.asked()[-1]["user_texts"] for line in text.splitlines()
            if line.startswith("Word:")]  # fmt: skip


def word(word: str, *steps: str) -> str:
    """A prompt that `remembered` finds again."""
    return f"Word: {word}\n" + (script(*steps) if steps else text(f"Noted {word}."))
