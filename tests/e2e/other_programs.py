"""Other programs that continue a conversation, and what became of it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import claude_agent_sdk

from pykoclaw_acp.model.prompt_text import NOTES_TAG
from tests.double.roles import Role
from tests.e2e.harness import Stack

BUNDLED: Final = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"


def row(stack: Stack, name: str) -> tuple[str, str]:
    """Claude session and directory of a conversation's row."""
    (found,) = stack.rows("SELECT session_id, cwd FROM conversations WHERE name = ?", name)
    return found["session_id"], found["cwd"]


def name_of(stack: Stack, session: str) -> str:
    """Name of a session's conversation."""
    query = "SELECT conversation_name FROM acp_sessions WHERE acp_session_id = ?"
    (found,) = stack.rows(query, session)
    return str(found["conversation_name"])


async def dispatch(stack: Stack, name: str, prompt: str) -> None:
    """A turn as WhatsApp runs it."""
    await Role.run(stack.data, stack.environment, "dispatch", name, prompt, "--claude")


async def terminal(stack: Stack, session: str, prompt: str, *options: str) -> None:
    """`claude --resume` in a terminal."""
    assert await in_terminal(stack, prompt, "--resume", session, *options) == session


async def in_terminal(stack: Stack, prompt: str, *options: str) -> str:
    """`claude -p` in a terminal; returns the id of its Claude session."""
    process = await asyncio.create_subprocess_exec(
        BUNDLED, "-p", "--output-format", "json", *options, prompt, cwd=stack.work,
        env=stack.environment, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    said, _ = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, said
    return str(json.loads(said)["session_id"])


@asynccontextmanager
async def open_terminal(
    stack: Stack, session: str, *, rewound_to: str | None = None
) -> AsyncIterator[Callable[[str], None]]:
    """`claude --resume` in a terminal, which has read the transcript and waits for prompts; gives
    what sends one. `rewound_to`: a prompt, with all that follows it, was rewound there.
    """
    process = await asyncio.create_subprocess_exec(
        BUNDLED, "-p", "--input-format", "stream-json", "--output-format", "stream-json",
        "--verbose", "--resume", session, cwd=stack.work, env=stack.environment,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None

    def send(**line: Any) -> None:
        stdin.write(f"{json.dumps(line)}\n".encode())

    def say(prompt: str) -> None:
        send(type="user", message={"role": "user", "content": prompt})

    try:
        send(type="control_request", request_id="1", request={"subtype": "initialize"})
        async with asyncio.timeout(120):
            assert b"control_response" in await stdout.readline()
            if rewound_to is not None:
                asked = {"subtype": "rewind_conversation", "target_message_uuid": rewound_to}
                send(type="control_request", request_id="2", request=asked)
                while b"control_response" not in (line := await stdout.readline()):
                    assert line
                assert b'"rewound":true' in line
        yield say
        stdin.close()
        await asyncio.wait_for(process.wait(), 120)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


def answers(stack: Stack) -> list[str]:
    """What the newest request to the model holds of answers that it has given."""
    return [
        one["text"]
        for one in stack.asked()[-1]["messages"]
        if one["role"] == "assistant" and one["text"]
    ]


def notes(stack: Stack) -> str:
    """Notes in the newest request."""
    said = "\n".join(one["text"] for one in stack.asked()[-1]["messages"] if one["role"] == "user")
    return "".join(re.findall(f"<{NOTES_TAG}>.*?</{NOTES_TAG}>", said, re.DOTALL))
