"""The double's turns on the real CLI: what only the CLI can tell about sessions of several
programs.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from tests.double import files
from tests.double.roles import Role
from tests.e2e.harness import Stack, text


def session_of(stack: Stack, name: str) -> str:
    (row,) = stack.rows("SELECT session_id FROM conversations WHERE name = ?", name)
    return str(row["session_id"])


def user_texts(request: dict[str, Any]) -> str:
    return json.dumps([one for one in request["messages"] if one["role"] == "user"])


async def dispatch(stack: Stack, name: str, prompt: str, *options: str) -> Role:
    return await Role.run(
        stack.data, stack.environment, "dispatch", name, prompt, "--claude", *options
    )


async def test_second_dispatch_resumes_first(stack: Stack) -> None:
    first = await dispatch(stack, "wa-andy-1@g.us", text("One."), "--system-prompt", "Be Andy.")
    session = session_of(stack, "wa-andy-1@g.us")
    assert first.output() == "One.\n"
    await dispatch(stack, "wa-andy-1@g.us", text("Two."), "--system-prompt", "Be Andy.")
    assert session_of(stack, "wa-andy-1@g.us") == session
    assert "One." in user_texts(stack.asked()[-1])
    (transcript,) = stack.transcripts(session)
    assert transcript.parent.name.endswith("conversations-wa-andy-1-g-us")


@pytest.mark.long
async def test_unknown_and_malformed_ids_begin_anew(stack: Stack) -> None:
    for number, wrong in enumerate((str(uuid.uuid4()), "no uuid")):
        name = f"wa-{number}"
        files.insert(
            files.current(stack.data),
            "conversations",
            name=name,
            session_id=wrong,
            cwd="/",
            created_at=files.LONG_AGO,
        )
        role = await dispatch(stack, name, text("Anew."))
        assert role.entries("upserted")[0]["session_id"] is None
        assert session_of(stack, name) != wrong


@pytest.mark.long
async def test_turn_elsewhere_continues_the_same_transcript(stack: Stack) -> None:
    """An editor's conversation, continued by the scheduler."""
    client = await stack.start()
    session = await client.new(stack.work)
    await client.prompt(session, text("Ours."))
    await client.close()
    (row,) = stack.rows("SELECT name, session_id FROM conversations")
    name, claude = row["name"], row["session_id"]
    files.insert(
        stack.data / "pykoclaw.db",
        "scheduled_tasks",
        id="0a1b2c3d",
        conversation=name,
        prompt=text("Theirs."),
        schedule_type="once",
        schedule_value="2000-01-01",
        next_run="2000-01-01",
        created_at=files.LONG_AGO,
    )
    await Role.run(stack.data, stack.environment, "scheduler", "--claude", "--rounds", "1")
    assert session_of(stack, name) == claude
    assert "Ours." in user_texts(stack.asked()[-1])
    (transcript,) = stack.transcripts(claude)
    written = transcript.read_text()
    assert "Ours." in written
    assert "Theirs." in written
    (delivery,) = files.contents(stack.data / "pykoclaw.db")["delivery_queue"]
    assert (delivery["conversation"], delivery["message"]) == (name, "Theirs.")


@pytest.mark.long
async def test_tools_of_a_turn_write_to_the_database(stack: Stack) -> None:
    call = {"prompt": "Look.", "schedule_type": "cron", "schedule_value": "0 9 * * *"}
    prompt = "\n".join(
        ["[[script", f"tool mcp__pykoclaw__schedule_task {json.dumps(call)}", "text Done.", "]]"]
    )
    role = await dispatch(stack, "wa-1", prompt)
    (task,) = files.contents(stack.data / "pykoclaw.db")["scheduled_tasks"]
    assert (task["conversation"], task["prompt"]) == ("wa-1", "Look.")
    assert role.output() == "Done.\n"
