"""Turns that cannot end well: one clear error each, nothing pretended, and the next prompt works
with the context.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable

import pytest

from pykoclaw_acp.worker.translate import CUT
from tests.e2e.harness import Client, RpcError, Stack, script, text

ENDLESS = script("repeat 5000x20ms word{n} ")
SOON = 5.0  # seconds in which what a dead worker started must be gone


async def failed(client: Client, session: str, prompt: str) -> RpcError:
    """Prompt and get the error, which the client is told in words too."""
    with pytest.raises(RpcError) as error:
        await client.prompt(session, prompt)
    assert error.value.message in client.text(session)
    return error.value


async def goes_on(stack: Stack, client: Client, session: str, *before: str) -> None:
    assert (await client.prompt(session, text("It goes on.")))["stopReason"] == "end_turn"
    assert client.text(session).endswith("It goes on.")
    assert stack.asked()[-1]["user_texts"] == [*before, text("It goes on.")]


def states(stack: Stack, session: str) -> list[str]:
    """Of the session's turns."""
    rows = stack.rows(
        "SELECT state FROM acp_turns WHERE acp_session_id = ? ORDER BY position", session
    )
    return [row["state"] for row in rows]


def kill_worker(stack: Stack, session: str) -> None:
    stack.worker(session).kill()


def kill_claude(stack: Stack, session: str) -> None:
    claude = stack.claude(session)
    assert claude is not None
    claude.kill()


@pytest.mark.long
@pytest.mark.parametrize("kill", [kill_worker, kill_claude], ids=lambda kill: kill.__name__)
async def test_killed_while_a_tool_runs(shared: Stack, kill: Callable[[Stack, str], None]) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    await client.prompt(session, text("Before."))
    prompt = script(
        "text Let me look.", "bash touch begun; setsid sleep 322 & sleep 321", "text Never said."
    )
    pending = client.prompting(session, prompt)
    await client.until(lambda: len(shared.find("sleep 32")) >= 2)
    await client.until(lambda: "Let me look." in shared.transcript(session))
    kill(shared, session)
    with pytest.raises(RpcError) as error:
        await client.answer(pending)
    assert error.value.code == -32010
    assert error.value.kind == "worker_lost"
    assert error.value.data["turnState"] == "failed"
    assert error.value.message in client.text(session)
    assert "Never said." not in client.text(session)
    (call,) = client.of(session, "tool_call")
    ended = client.of(session, "tool_call_update")[-1]
    assert (ended["toolCallId"], ended["status"]) == (call["toolCallId"], "failed")
    await client.until(lambda: not any(one.session for one in shared.processes()), SOON)
    await goes_on(shared, client, session, text("Before."), prompt)


@pytest.mark.parametrize(
    "kill",
    [pytest.param(kill_worker, marks=pytest.mark.long), kill_claude],
    ids=lambda kill: kill.__name__,
)
async def test_killed_in_the_middle_of_the_answer(
    shared: Stack, kill: Callable[[Stack, str], None]
) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    pending = client.prompting(session, ENDLESS)
    await client.until(
        lambda: "word3" in client.text(session) and "word{n}" in shared.transcript(session)
    )
    kill(shared, session)
    with pytest.raises(RpcError) as error:
        await client.answer(pending)
    assert (error.value.code, error.value.kind, error.value.data["turnState"]) == (
        -32010,
        "worker_lost",
        "failed",
    )
    assert states(shared, session) == ["failed"]
    await goes_on(shared, client, session, ENDLESS)
    assert [one["user_texts"][-1] for one in shared.asked()] == [ENDLESS, text("It goes on.")]


@pytest.mark.long
async def test_killed_before_claude_said_anything(shared: Stack) -> None:
    """Whether Claude had begun is not known: the turn says so, and is not run again."""
    client = await shared.start()
    session = await client.new(shared.work)
    await client.prompt(session, text("Before."))
    silent = script("hang")
    pending = client.prompting(session, silent)
    await client.until(lambda: len(shared.asked()) == 2)
    kill_worker(shared, session)
    with pytest.raises(RpcError) as error:
        await client.answer(pending)
    assert error.value.data["turnState"] == "unknown"
    await client.prompt(session, text("It goes on."))
    assert [one["user_texts"][-1] for one in shared.asked()] == [
        text("Before."),
        silent,
        text("It goes on."),
    ]


@pytest.mark.long
async def test_killed_while_a_question_is_open(shared: Stack) -> None:
    client = await shared.start()
    client.permit = lambda _: None
    session = await client.new(shared.work)
    pending = client.prompting(session, script("bash mkdir never", "text Never said."))
    await client.until(lambda: client.questions)
    kill_worker(shared, session)
    with pytest.raises(RpcError):
        await client.answer(pending)
    await client.until(lambda: client.withdrawn == [client.questions[0]["id"]])
    assert not (shared.work / "never").exists()
    assert client.of(session, "tool_call_update")[-1]["status"] == "failed"


@pytest.mark.long
async def test_worker_that_hangs(stack: Stack) -> None:
    client = await stack.start(PYKOCLAW_STALL_TIMEOUT="12")
    session = await client.new(stack.work)
    pending = client.prompting(session, ENDLESS)
    await client.until(
        lambda: "word3" in client.text(session) and "word{n}" in stack.transcript(session)
    )
    stack.worker(session).signal(signal.SIGSTOP)
    with pytest.raises(RpcError) as error:
        await client.answer(pending)
    assert error.value.code == -32010
    await client.until(lambda: not any(one.session for one in stack.processes()), SOON)
    await goes_on(stack, client, session, ENDLESS)


@pytest.mark.long
async def test_errors_of_the_model(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    for directive, code, kind, status in (
        ("error 400 you said something wrong", -32010, "invalid_request", 400),
        ("error 400 Could not process image", -32010, "image_refused", 400),
        ("error 400 The PDF specified is password protected.", -32010, "document_refused", 400),
        ("error 401", -32000, "authentication_gateway", 401),
        ("error 429", -32010, "rate_limit", 429),
        ("error 500", -32010, "server_error", 500),
        ("error 529", -32010, "overloaded", 529),
    ):
        error = await failed(client, session, script(directive))
        assert (error.code, error.kind, error.data["httpStatus"]) == (code, kind, status)
        assert error.data["turnState"] == "failed"
        assert client.text(session).count(error.message) == 1
        client.updates.clear()
        assert states(shared, session)[-1] == "failed"
        assert (await client.prompt(session, text(f"It goes on after {status}.")))[
            "stopReason"
        ] == "end_turn"
        assert client.text(session).endswith(f"It goes on after {status}.")


async def test_error_after_a_tool_asks_for_no_repeat(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    error = await failed(client, session, script("bash echo once >> begun.txt", "error 500"))
    assert (error.kind, error.data["retryable"]) == ("server_error", False)
    assert (
        error.message == "Claude's service had an error. Send “Go on”. What was done before stays."
    )
    error = await failed(client, session, script("error 500"))
    assert (error.kind, error.data["retryable"]) == ("server_error", True)


def messages(client: Client, session: str) -> list[str]:
    """The texts of the agent's messages: one that broke off and was begun anew is two; the line
    that says so is left out.
    """
    joined: dict[str, str] = {}
    for chunk in client.of(session, "agent_message_chunk"):
        joined[chunk["messageId"]] = joined.get(chunk["messageId"], "") + chunk["content"]["text"]
    return [text for text in joined.values() if text.strip() != CUT]


WORDS = " ".join(f"word{n}" for n in range(1, 31))


@pytest.mark.long
@pytest.mark.parametrize(
    ("directive", "kind"),
    [("stream-error overloaded_error", "overloaded"), ("cut", "server_error")],
)
async def test_stream_that_breaks(shared: Stack, directive: str, kind: str) -> None:
    """What was said stays, what is missing is an error and no end of turn."""
    client = await shared.start()
    session = await client.new(shared.work)
    error = await failed(client, session, script("repeat 30x20ms word{n} ", directive))
    assert (error.code, error.kind) == (-32010, kind)
    *said, failure = messages(client, session)
    assert said
    assert all(one.startswith("word1 ") and WORDS.startswith(one.strip()) for one in said)
    assert error.message in failure
    assert (await client.prompt(session, text("It goes on.")))["stopReason"] == "end_turn"


@pytest.mark.parametrize("fault", ["stream-error overloaded_error times=1", "cut times=1"])
@pytest.mark.long
async def test_stream_that_breaks_once(shared: Stack, fault: str) -> None:
    """The CLI asks again by itself: the answer is complete, and nothing in it is said twice."""
    client = await shared.start()
    session = await client.new(shared.work)
    prompt = script(f"# {shared.root}", "repeat 30x20ms word{n} ", fault, "text Now it goes on.")
    assert (await client.prompt(session, prompt))["stopReason"] == "end_turn"
    *broken, complete = messages(client, session)
    assert complete == f"{WORDS}\nNow it goes on."
    assert all(WORDS.startswith(one.strip()) for one in broken)


@pytest.mark.long
async def test_error_that_passes(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    prompt = script(f"# {shared.root}", "error 529 times=1", "text It worked in the end.")
    assert (await client.prompt(session, prompt))["stopReason"] == "end_turn"
    assert client.text(session) == "It worked in the end."


@pytest.mark.parametrize(
    "prompt",
    [
        pytest.param(
            script("error 400 prompt is too long: 210000 tokens > 200000 maximum"),
            id="says the model",
        ),
        pytest.param("x" * 4_000_000, id="says the CLI", marks=pytest.mark.long),
    ],
)
async def test_prompt_that_is_too_long(shared: Stack, prompt: str) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    error = await failed(client, session, prompt)
    assert (error.code, error.kind) == (-32010, "context_too_large")


@pytest.mark.long
async def test_directory_that_is_gone(shared: Stack) -> None:
    client = await shared.start()
    gone = shared.root / "gone"
    gone.mkdir()
    session = await client.new(gone)
    shutil.rmtree(gone)
    error = await failed(client, session, text("Never said."))
    assert (error.code, error.kind) == (-32010, "cwd_missing")
    assert f"{gone} cannot be used: there is no such directory" in error.message
    assert "start a session elsewhere" in error.message
    assert shared.asked() == []
    gone.mkdir()
    await client.prompt(session, text("Back again."))
    assert client.text(session).endswith("Back again.")
    shutil.rmtree(gone)  # below a CLI that runs
    await client.load(session, gone)
    assert client.text(session).endswith("Back again.")
    error = await failed(client, session, text("Never said."))
    assert error.kind == "cwd_missing"
    gone.mkdir()
    await client.prompt(session, script("bash pwd > here.txt", "text In it."))
    assert (gone / "here.txt").read_text().strip() == str(gone)


async def test_absent_claude_or_failing_start_is_told(stack: Stack) -> None:
    claude = stack.root / "claude"
    client = await stack.start(PYKOCLAW_CLI_PATH=str(claude))
    error = await failed(client, await client.new(stack.work), text("Never said."))
    assert (error.code, error.kind) == (-32010, "cli_not_found")
    assert str(claude) in error.message

    claude.write_text("#!/bin/sh\necho this claude is broken >&2\nexit 7\n")
    claude.chmod(0o755)
    error = await failed(client, await client.new(stack.work), text("Never said."))
    assert error.kind == "start_failed"
    assert "this claude is broken" in error.message


async def test_claude_that_ends_at_once_without_an_error(stack: Stack) -> None:
    """The SDK waits 60 s for an answer of it; the limit shows that nobody waited so long."""
    ended = stack.root / "claude"
    ended.write_text("#!/bin/sh\necho I am another program >&2\nexit 0\n")
    ended.chmod(0o755)
    client = await stack.start(PYKOCLAW_CLI_PATH=str(ended), PYKOCLAW_WORKER_START_TIMEOUT="50")
    session = await client.new(stack.work)
    error = await failed(client, session, text("Never said."))
    assert error.kind == "cli_ended"
    assert "with status 0" in error.message
    assert "I am another program" in error.message
    assert "PYKOCLAW_CLI_PATH" in error.message
    assert stack.asked() == []


@pytest.mark.long
async def test_transcript_that_is_gone(stack: Stack) -> None:
    """Claude's memory is required and cannot be restored: an error says so, instead of an answer."""
    client = await stack.start()
    session = await client.new(stack.work)
    await client.prompt(session, text("Before."))
    await stack.kill_everything()
    transcripts = stack.transcripts(session)
    assert transcripts
    for one in transcripts:
        one.unlink()
    client = await stack.start(PYKOCLAW_LOST_CONTEXT="required")
    await client.load(session, stack.work)
    error = await failed(client, session, text("Never said."))
    assert error.kind == "context_lost"
    assert len(stack.asked()) == 1
