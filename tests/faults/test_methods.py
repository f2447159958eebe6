"""The daemon is SIGKILLed in the middle of a method: the next one does the rest, and nothing twice.
The real CLI, behind a front that sends again what was not answered.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.e2e.harness import Client, Stack, script, text

STEER = {"pykoclaw.dev/steering": "steer"}
HOST = ("bash until [ -e over ]; do sleep 0.1; done", "bash echo second", "text Done.")


@contextlib.asynccontextmanager
async def dying_at(stack: Stack, step: str) -> AsyncIterator[Client]:
    """A client whose daemon dies at this step, which has to happen; later ones live."""
    daemon = await stack.daemon(PYKOCLAW_CRASH_AT=step)
    client = await stack.front()
    yield client
    assert daemon.returncode is not None, "it did not get to that step"
    await client.close()
    await stack.end_daemon()


def newest(stack: Stack, words: str) -> int:
    """How often these words are in the newest request to the model."""
    return json.dumps(stack.asked()[-1]["messages"]).count(words)


async def test_steered_prompt_runs_once_when_its_daemon_dies(stack: Stack) -> None:
    async with dying_at(stack, "turn_steered") as client:
        session = await client.new(stack.work)
        running = client.prompting(session, script(*HOST))
        await client.until(lambda: bool(client.of(session, "tool_call")))
        block = {"type": "text", "text": "Look out."}
        first = stack.daemon_pid()
        steered = client.begin("session/prompt", sessionId=session, prompt=[block], _meta=STEER)
        await client.until(lambda: stack.daemon_pid() not in (None, first))
        await client.resume(session, stack.work)  # the next daemon has the worker, and told it
        (stack.work / "over").touch()
        answer = await client.answer(steered)
        assert answer["stopReason"] == (await client.answer(running))["stopReason"] == "end_turn"
        assert answer["_meta"] == {"pykoclaw.dev/steering": "injected"}
        assert newest(stack, "Look out.") == 1
        await client.load(session, stack.work)
        said = [one["content"]["text"] for one in client.of(session, "user_message_chunk")]
        assert said.count("Look out.") == 1
        states = {row["state"] for row in stack.rows("SELECT state FROM acp_turns")}
        assert states == {"done"}


@pytest.mark.long
async def test_methods_are_done_once_whenever_the_daemon_dies(stack: Stack) -> None:
    made = stack.work / "made.txt"
    async with dying_at(stack, "fork_shown") as client:
        source = await client.new(stack.work)
        for count in (1, 2, 3):
            await client.prompt(source, f"Word: {count}\n" + script(
                f"write made.txt <<< {count}", f"text Noted {count}."))  # fmt: skip
        fork = (await _open(client, stack, "session/fork", source))["sessionId"]
        ids = {row["acp_session_id"] for row in stack.rows("SELECT * FROM acp_sessions")}
        assert ids == {source, fork}, "one fork, though it was asked for twice"

    async with dying_at(stack, "choice_committed") as client:
        await client.load(source, stack.work)
        running = client.prompting(source, script("bash true", *HOST))
        await client.until(lambda: len(client.of(source, "tool_call")) >= 5)
        chosen = await client.call(
            "session/set_config_option", sessionId=source, configId="model", value="haiku"
        )
        values = {one["id"]: one["currentValue"] for one in chosen["configOptions"]}
        assert values["model"] == "haiku"
        (stack.work / "over").touch()
        await client.answer(running)
        await client.prompt(source, text("With the new model."))
        assert "haiku" in stack.asked()[-1]["model"], "the worker of the dead daemon was told"
        told = client.of(source, "config_option_update")
        assert len(told) == 1

    for step, kept, turns in (("files_put_back", "2", 3), ("session_rewound", "1", 1)):
        async with dying_at(stack, step) as client:
            if step == "files_put_back":  # the prompts since have changed no file
                message = stack.rows(
                    "SELECT turn_id FROM acp_turns WHERE acp_session_id = ? ORDER BY position",
                    source,
                )[2]["turn_id"]
                done = await _rewind(client, source, message=message)
                assert (done["files"], done["deleted"]) == ([str(made)], [])
            else:  # without a message: the newest prompt, which one more rewind would not find again
                done = await _rewind(client, source)
            assert done["turns"] == turns
            assert made.read_text() == kept
            rewound = stack.rows("SELECT 1 FROM acp_turns WHERE rewound_at IS NOT NULL")
            assert len(rewound) == (3 if step == "files_put_back" else 4)

    async with dying_at(stack, "session_hidden") as client:
        await client.load(source, stack.work)
        await client.prompt(source, "Word: last\n" + text("Noted."))
        asked = "\n".join(stack.asked()[-1]["user_texts"])
        assert ("Word: 1" in asked, "Word: 2" in asked) == (True, False)
        assert await client.call("session/delete", sessionId=source) == {}
        listed = (await client.call("session/list"))["sessions"]
        assert [one["sessionId"] for one in listed] == [fork]
        await client.until(lambda: _nothing_left(stack, source))
        await client.load(fork, stack.work)
        assert "Noted 3." in client.text(fork)


async def test_transcript_is_deleted_although_daemon_dies(stack: Stack) -> None:
    stack.environment |= {"PYKOCLAW_DELETE_TRANSCRIPTS": "on", "PYKOCLAW_LIST_TRANSCRIPTS": "off"}
    async with dying_at(stack, "session_hidden") as client:
        session = await client.new(stack.work)
        await client.prompt(session, text("Said."))
        assert "Said." in stack.transcript(session)
        assert await client.call("session/delete", sessionId=session) == {}
        await client.until(lambda: stack.transcript(session) == "")


async def _open(client: Client, stack: Stack, method: str, session: str) -> dict[str, Any]:
    return await client.call(method, sessionId=session, cwd=str(stack.work), mcpServers=[])


async def _rewind(client: Client, session: str, **params: Any) -> dict[str, Any]:
    return await client.call("_pykoclaw.dev/rewind", session=session, **params)


def _nothing_left(stack: Stack, session: str) -> bool:
    tables = ("acp_turns", "acp_rewinds", "acp_transcripts", "acp_branches")
    left = [stack.rows(f"SELECT 1 FROM {one} WHERE acp_session_id = ?", session) for one in tables]
    logs = stack.rows("SELECT DISTINCT log_key FROM acp_log")
    return not any(left) and len(logs) == 1


async def test_other_client_sees_end_as_closing_daemon_dies(stack: Stack) -> None:
    """The end of the turn that was closed is in the log, and no client has it yet."""
    async with dying_at(stack, "turn_end_committed") as client:
        session = await client.new(stack.work)
        other = await stack.front()
        await other.load(session, stack.work)
        client.prompting(session, script("text I look.", "bash sleep 1000"))
        await other.until(lambda: other.of(session, "tool_call"))
        await client.call("session/close", sessionId=session)
        log = [one["seq"] for one in stack.rows("SELECT MAX(seq) AS seq FROM acp_log")]
        await other.until(
            lambda: [one["_meta"]["pykoclaw.dev/seq"] for one in other.of(session)][-1:] == log
        )
        ends = [one.get("status") for one in other.of(session, "tool_call_update")]
        assert ends[-1] == "failed"
        await other.close()
