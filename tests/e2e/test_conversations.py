"""Several ACP ids of one conversation, as an adopted table has them: one Claude, one log, each
client's own id.
"""

from __future__ import annotations

import asyncio
import signal
from contextlib import closing
from functools import partial
from typing import Any, Final

import pytest

from pykoclaw_acp.store.sqlite import sqlite3
from tests.e2e.harness import Stack, script
from tests.e2e.harness.client import selected
from tests.e2e.harness.stack import PROGRAM
from tests.waiting import eventually

FIRST: Final = "11111111-aaaa-4aaa-8aaa-aaaaaaaaaaaa"
SECOND: Final = "22222222-bbbb-4bbb-8bbb-bbbbbbbbbbbb"
ADOPTED: Final = """
CREATE TABLE conversations (name TEXT PRIMARY KEY, session_id TEXT, cwd TEXT, created_at TEXT NOT NULL,
    system_prompt_hash TEXT);
CREATE TABLE acp_sessions (acp_session_id TEXT PRIMARY KEY, conversation_name TEXT NOT NULL);
"""


def adopted(stack: Stack) -> None:
    """The database that the program before this one has left: two ids of one conversation."""
    stack.data.mkdir(parents=True, mode=0o700)
    with closing(sqlite3.connect(stack.data / "pykoclaw.db")) as connection:
        connection.executescript(ADOPTED)
        row = ("acp-11111111", None, str(stack.work), "2025-03-01T10:20:30+00:00", None)
        connection.execute("INSERT INTO conversations VALUES (?, ?, ?, ?, ?)", row)
        ids = [(FIRST, "acp-11111111"), (SECOND, "acp-11111111")]
        connection.executemany("INSERT INTO acp_sessions VALUES (?, ?)", ids)
        connection.commit()


def claudes(stack: Stack) -> set[int]:
    return {process.pid for process in stack.processes() if process.is_claude}


async def history(stack: Stack, session: str) -> list[dict[str, Any]]:
    """What a new client is told of the conversation under this id, and under no other."""
    client = await stack.front()
    await client.load(session, stack.work)
    assert set(client.updates) == {session}
    return client.of(session)


async def test_two_ids_of_conversation_share_claude_queue_log(stack: Stack) -> None:
    adopted(stack)
    one, other = await stack.front(), await stack.front()
    await one.load(FIRST, stack.work)
    await other.load(SECOND, stack.work)
    gate = stack.root / "gate"
    first = one.prompting(
        FIRST, script(f"bash while [ ! -e {gate} ]; do sleep 0.05; done", "text First is done.")
    )
    await one.until(lambda: one.of(FIRST, "tool_call"))
    second = other.prompting(SECOND, script("bash touch second-ran", "text Second is done."))
    await eventually(lambda: len(stack.rows("SELECT 1 FROM acp_turns")) == 2)
    assert [row["state"] for row in stack.rows("SELECT state FROM acp_turns ORDER BY created_at")][
        1
    ] == "queued"
    # A tool's process looks like Claude's until it runs its own program.
    await eventually(lambda: len(claudes(stack)) == 1)
    began = claudes(stack)
    gate.touch()
    assert (await one.answer(first))["stopReason"] == "end_turn"
    assert (await other.answer(second))["stopReason"] == "end_turn"
    await eventually(lambda: claudes(stack) == began)
    assert len(began) == 1
    assert (stack.work / "second-ran").exists()
    for client, session in ((one, FIRST), (other, SECOND)):
        await client.until(
            partial(
                lambda client, session: "Second is done." in client.text(session), client, session
            )
        )
        assert set(client.updates) == {session}
        assert client.text(session) == "First is done.Second is done."
    assert await history(stack, FIRST) == await history(stack, SECOND) != []


@pytest.mark.long
async def test_question_is_asked_of_clients_of_both_ids(stack: Stack) -> None:
    adopted(stack)
    one, other = await stack.front(), await stack.front()
    one.permit = other.permit = lambda _: None
    await one.load(FIRST, stack.work)
    await other.load(SECOND, stack.work)
    answer = one.prompting(FIRST, script("bash touch made-it", "text Done."))
    await one.until(lambda: one.questions)
    await other.until(lambda: other.questions)
    assert one.questions[0]["params"]["sessionId"] == FIRST
    assert other.questions[0]["params"]["sessionId"] == SECOND
    other.reply(other.questions[0], selected("allow_once"))
    assert (await one.answer(answer))["stopReason"] == "end_turn"
    assert (stack.work / "made-it").exists()
    await one.until(lambda: one.withdrawn)


@pytest.mark.long
async def test_old_version_logs_merge_during_running_turn(stack: Stack) -> None:
    """Two used logs, both clients attached, a turn in the middle, at the moment of the upgrade."""
    await stack.daemon()
    one, other = await stack.front(), await stack.front()
    first, second = await one.new(stack.work), await other.new(stack.work)
    await one.prompt(first, script("text one,"))
    await other.prompt(second, script("text two,"))
    gate = stack.root / "gate"
    going = one.prompting(
        first, script(f"bash while [ ! -e {gate} ]; do sleep 0.05; done", "text three.")
    )
    await one.until(lambda: one.of(first, "tool_call"))
    worker = stack.worker(first)
    with closing(sqlite3.connect(stack.data / "pykoclaw.db", timeout=30)) as connection:
        connection.execute(
            "UPDATE acp_sessions SET conversation_name = (SELECT conversation_name FROM acp_sessions"
            " WHERE acp_session_id = ?)",
            (first,),
        )
        connection.commit()
    await stack.end_daemon(signal.SIGKILL)
    await eventually(
        lambda: bool(stack.rows("SELECT 1 FROM acp_sessions WHERE alias_of IS NOT NULL"))
    )
    gate.touch()
    assert (await one.answer(going))["stopReason"] == "end_turn"
    assert stack.worker(first).pid == worker.pid
    assert len(claudes(stack)) == 1
    await other.until(lambda: "three." in other.text(second))
    assert one.text(first) == "one,three."
    assert other.text(second) == "two,three."
    told = await history(stack, second)
    assert told == await history(stack, first)
    said = "".join(
        update["content"]["text"]
        for update in told
        if update["sessionUpdate"] == "agent_message_chunk"
    )
    assert said == "one,two,three."
    await asyncio.gather(
        one.prompt(first, script("text four")), other.prompt(second, script("text five"))
    )
    for client, session in ((one, first), (other, second)):
        await client.until(
            partial(lambda client, session: "four" in client.text(session), client, session)
        )
        await client.until(
            partial(lambda client, session: "five" in client.text(session), client, session)
        )
    assert len(claudes(stack)) == 1


@pytest.mark.long
async def test_start_killed_between_conversations_is_finished_by_next(stack: Stack) -> None:
    await stack.daemon()
    client = await stack.front()
    ids = [await client.new(stack.work) for _ in range(4)]
    for number, session in enumerate(ids):
        await client.prompt(session, script(f"text said-{number}"))
    await client.close()
    await stack.end_daemon()
    with closing(sqlite3.connect(stack.data / "pykoclaw.db", timeout=30)) as connection:
        for one, other in (ids[:2], ids[2:]):
            connection.execute(
                "UPDATE acp_sessions SET conversation_name = (SELECT conversation_name FROM acp_sessions"
                " WHERE acp_session_id = ?) WHERE acp_session_id = ?",
                (one, other),
            )
        connection.commit()
    with (stack.root / "doomed.log").open("ab") as log:
        doomed = await asyncio.create_subprocess_exec(
            *PROGRAM, "serve", stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
            env={**stack.environment, "PYKOCLAW_CRASH_AT": "conversation_united"}, cwd="/",
        )  # fmt: skip
    assert await asyncio.wait_for(doomed.wait(), 60) == -signal.SIGKILL
    assert len(stack.rows("SELECT 1 FROM acp_sessions WHERE alias_of IS NOT NULL")) == 1
    for number in (0, 2):
        told = [await history(stack, session) for session in ids[number : number + 2]]
        assert told[0] == told[1]
        assert [
            update["content"]["text"]
            for update in told[0]
            if update["sessionUpdate"] == "agent_message_chunk"
            and "pykoclaw.dev/note" not in update["_meta"]  # on what Claude does not remember
        ] == [
            f"said-{number}",
            f"said-{number + 1}",
        ]
