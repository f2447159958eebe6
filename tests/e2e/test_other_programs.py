"""One conversation that several programs continue, on the real CLI: what clients see, and what reaches
the model.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, cast

import pytest

from pykoclaw_acp.model import conversations
from tests.double import files
from tests.double.roles import PATIENCE, Role
from tests.e2e.commands import done
from tests.e2e.harness import Client, RpcError, Stack, script, text
from tests.e2e.other_programs import (
    answers,
    dispatch,
    name_of,
    notes,
    open_terminal,
    row,
    terminal,
)
from tests.waiting import eventually

OLD: Final = "1a2b3c4d-aaaa-4aaa-8aaa-aaaaaaaaaaaa"


async def run_task(stack: Stack, name: str, prompt: str, mode: str) -> None:
    """A task that is due, run by the scheduler."""
    files.insert(
        stack.data / "pykoclaw.db",
        "scheduled_tasks",
        id=secrets.token_hex(4),
        conversation=name,
        prompt=prompt,
        schedule_type="once",
        schedule_value="2000-01-01",
        context_mode=mode,
        next_run="2000-01-01",
        created_at=files.LONG_AGO,
    )
    await Role.run(stack.data, stack.environment, "scheduler", "--claude", "--rounds", "1")


async def shown(client: Client, session: str, words: str) -> None:
    await client.until(lambda: words in client.text(session))


def size_known(stack: Stack, session: str) -> int:
    """Size of the transcript of a session of ours at the newest look at it."""
    found = stack.rows("SELECT size FROM acp_transcripts WHERE claude_session_id = ?", session)
    return int(found[0]["size"]) if found else 0


async def ended(stack: Stack, session: str) -> None:
    """End the session's worker."""
    stack.worker(session).kill()
    await eventually(lambda: stack.claude(session) is None)


@pytest.mark.long
async def test_earlier_plugins_conversation_is_shown_and_remembered(
    stack: Stack,
) -> None:
    await dispatch(stack, "acp-1a2b3c4d", text("The old answer."))
    claude, folder = row(stack, "acp-1a2b3c4d")
    client = await stack.front()
    await client.load(OLD, stack.work)
    assert client.text(OLD) == "The old answer."
    assert "The old answer." in client.text(OLD, "user_message_chunk")  # the script
    await client.prompt(OLD, text("The new answer."))
    assert answers(stack) == ["The old answer."]
    assert row(stack, "acp-1a2b3c4d") == (claude, str(stack.work)) != (claude, folder)
    await client.load(OLD, stack.work)
    assert client.text(OLD) == "The old answer.The new answer."


async def ask_original(role: Role, method: str, **params: Any) -> dict[str, Any]:
    """A request to the earlier plugin, and its result."""
    stdin, stdout = role.process.stdin, role.process.stdout
    assert stdin is not None
    assert stdout is not None
    request = {"jsonrpc": "2.0", "id": method, "method": method, "params": params}
    stdin.write(f"{json.dumps(request)}\n".encode())
    async with asyncio.timeout(PATIENCE):
        while line := await stdout.readline():
            answer: dict[str, Any] = json.loads(line)
            if answer.get("id") == method:
                return cast("dict[str, Any]", answer["result"])
    raise AssertionError(role.output())


@asynccontextmanager
async def original(stack: Stack) -> AsyncIterator[Role]:
    """The earlier plugin, which ends with its input."""
    place = (stack.data, stack.environment)
    role = await Role.start(*place, "original", "--claude", stdin=asyncio.subprocess.PIPE)
    try:
        yield role
        await role.process.communicate(b"")
        assert role.process.returncode == 0
    finally:
        role.kill()
        await role.process.wait()


@pytest.mark.long
async def test_conversation_goes_to_us_and_back_again(stack: Stack) -> None:
    """By docs/migration.md: the earlier plugin, ours, and the earlier plugin again."""
    opened: dict[str, Any] = {"cwd": str(stack.work), "mcpServers": []}
    async with original(stack) as role:
        session = (await ask_original(role, "session/new", **opened))["sessionId"]
        prompt = [{"type": "text", "text": text("First.")}]
        await ask_original(role, "session/prompt", sessionId=session, prompt=prompt)
    await stack.daemon()
    client = await stack.front()
    await client.load(session, stack.work)
    assert client.text(session) == "First."
    await client.prompt(session, text("Second."))
    await client.close()
    await stack.end_daemon()
    async with original(stack) as role:
        await ask_original(role, "session/load", sessionId=session, **opened)
        prompt = [{"type": "text", "text": text("Third.")}]
        await ask_original(role, "session/prompt", sessionId=session, prompt=prompt)
    assert answers(stack) == ["First.", "Second."]
    assert stack.asked()[-1]["messages"][-1]["text"] == text("Third.")


@pytest.mark.long
async def test_others_turn_is_known_beside_our_live_worker(
    stack: Stack,
) -> None:
    client = await stack.front()
    session = await client.new(stack.work)
    await client.prompt(session, text("First."))
    worker = stack.worker(session)
    await dispatch(stack, name_of(stack, session), text("Second."))
    await shown(client, session, "Second.")
    await client.prompt(session, text("Third."))
    assert answers(stack) == ["First.", "Second."]
    assert stack.worker(session).pid != worker.pid
    await dispatch(stack, name_of(stack, session), text("Fourth."))
    assert answers(stack) == ["First.", "Second.", "Third."]
    await shown(client, session, "Fourth.")
    assert client.text(session).split(".") == ["First", "Second", "Third", "Fourth", ""]
    await client.load(session, stack.work)
    assert client.text(session).split(".") == ["First", "Second", "Third", "Fourth", ""]


@pytest.mark.long
@pytest.mark.parametrize("begun_early", [False, True], ids=["idle", "unused"])
async def test_others_remember_their_turn_after_our_claude_ends(
    stack: Stack, begun_early: bool
) -> None:
    client = await stack.front()
    session = await client.new(stack.work)
    await client.prompt(session, text("First."))
    if begun_early:
        await client.close()
        await ended(stack, session)
        client = await stack.spawn_front()
        await client.initialize(clientInfo={"name": "editor", "version": "1"})
        await client.load(session, stack.work)
        await client.until(lambda: stack.claude(session))
    await dispatch(stack, name_of(stack, session), text("Second."))
    await done(stack, "workers", "stop", session)
    await eventually(lambda: stack.claude(session) is None)
    await dispatch(stack, name_of(stack, session), text("Third."))
    assert answers(stack) == ["First.", "Second."]
    await client.prompt(session, text("Fourth."))
    assert answers(stack) == ["First.", "Second.", "Third."]


@pytest.mark.long
async def test_claude_started_while_user_read_knows_everything(stack: Stack) -> None:
    """Also what another program said after the start."""
    client = await stack.front()
    session = await client.new(stack.work)
    await client.prompt(session, text("First."))
    await client.close()
    await ended(stack, session)
    reader = await stack.spawn_front()
    await reader.initialize(clientInfo={"name": "editor", "version": "1"})
    await reader.call("session/resume", sessionId=session, cwd=str(stack.work), mcpServers=[])
    early = await reader.until(lambda: stack.claude(session))
    await reader.prompt(session, text("Second."))
    assert answers(stack) == ["First."]
    assert stack.claude(session) == early
    await ended(stack, session)
    await reader.load(session, stack.work)
    early = await reader.until(lambda: stack.claude(session))
    await dispatch(stack, name_of(stack, session), text("Third."))
    await reader.prompt(session, text("Fourth."))
    assert answers(stack) == ["First.", "Second.", "Third."]
    assert stack.claude(session) != early
    assert reader.text(session) == "First.Second.Third.Fourth."


@pytest.mark.parametrize("left", [0, 1])
@pytest.mark.long
async def test_memory_lost_while_user_reads_is_said(stack: Stack, left: int) -> None:
    """The transcript is removed, or cut back to its first turn."""
    client = await stack.front()
    session = await client.new(stack.work)
    await client.prompt(session, text("First."))
    (transcript,) = await eventually(lambda: stack.transcripts(session))
    first = transcript.read_bytes()
    await client.prompt(session, text("Second."))
    await client.close()
    await ended(stack, session)
    reader = await stack.spawn_front()
    await reader.initialize(clientInfo={"name": "editor", "version": "1"})
    await reader.load(session, stack.work)
    early = await reader.until(lambda: stack.claude(session))
    if left:
        transcript.write_bytes(first)
    else:
        transcript.unlink()
    await reader.prompt(session, text("Third."))
    assert "does not remember" in reader.text(session)
    assert stack.claude(session) != early


@pytest.mark.long
@pytest.mark.parametrize("left", [0, 1])
async def test_memory_lost_beside_idle_claude_is_said(stack: Stack, left: int) -> None:
    """The transcript is removed, or cut back to its first turn, between two prompts."""
    client = await stack.front()
    session = await client.new(stack.work)
    await client.prompt(session, text("First."))
    (transcript,) = await eventually(lambda: stack.transcripts(session))
    await eventually(lambda: '"text":"First."' in transcript.read_text())
    first = transcript.read_bytes()
    await client.prompt(session, text("Second."))
    await eventually(lambda: '"text":"Second."' in transcript.read_text())
    await eventually(lambda: size_known(stack, session) == transcript.stat().st_size)
    worker = stack.worker(session)
    if left:
        transcript.write_bytes(first)
    else:
        transcript.unlink()
    await client.prompt(session, text("Third."))
    assert client.text(session).count("does not remember") == 1
    assert "Answered: Second." in notes(stack)
    assert stack.worker(session).pid != worker.pid
    await client.prompt(session, text("Fourth."))
    assert client.text(session).count("does not remember") == 1
    assert answers(stack) == ["First.", "Third."][1 - left :]


async def test_terminals_turn_is_shown_and_known(shared: Stack) -> None:
    client = await shared.front()
    session = await client.new(shared.work)
    await client.prompt(session, text("First."))
    claude, _ = row(shared, name_of(shared, session))
    await terminal(shared, claude, text("Second."))
    await shown(client, session, "Second.")
    await client.prompt(session, text("Third."))
    assert answers(shared) == ["First.", "Second."]


@pytest.mark.long
async def test_isolated_tasks_result_is_noted_and_conversation_stays(
    stack: Stack,
) -> None:
    client = await stack.front()
    session = await client.new(stack.work)
    await client.prompt(session, text("First."))
    name = name_of(stack, session)
    claude, _ = row(stack, name)
    worker = stack.worker(session)
    await run_task(stack, name, text("Forty-two."), "isolated")
    await shown(client, session, "Forty-two.")
    await eventually(lambda: row(stack, name)[0] == claude)
    await client.prompt(session, text("Third."))
    assert answers(stack) == ["First."]
    assert "Forty-two." in notes(stack)
    assert stack.worker(session).pid == worker.pid
    await client.prompt(session, text("Fourth."))
    assert answers(stack) == ["First.", "Third."]


@pytest.mark.long
async def test_isolated_task_leaves_unattended_conversation_as_it_was(stack: Stack) -> None:
    """No client is there, nor a daemon while the task runs."""
    await stack.daemon()
    client = await stack.front()
    session = await client.new(stack.work)
    await client.prompt(session, text("First."))
    name = name_of(stack, session)
    claude, _ = row(stack, name)
    await client.close()
    await stack.end_daemon()
    await run_task(stack, name, text("Forty-two."), "isolated")
    assert row(stack, name)[0] != claude
    await stack.daemon()
    await eventually(lambda: row(stack, name)[0] == claude)
    await dispatch(stack, name, text("Second."))
    assert answers(stack) == ["First."]


async def test_a_group_task_continues_the_conversation(shared: Stack) -> None:
    client = await shared.front()
    session = await client.new(shared.work)
    await client.prompt(session, text("First."))
    await run_task(shared, name_of(shared, session), text("Second."), "group")
    await shown(client, session, "Second.")
    await client.prompt(session, text("Third."))
    assert answers(shared) == ["First.", "Second."]


@pytest.mark.long
async def test_two_programs_at_once_lose_neither_side(stack: Stack) -> None:
    client = await stack.front()
    session = await client.new(stack.work)
    await client.prompt(session, text("First."))
    gate = stack.root / "gate"
    going = client.prompting(
        session, script(f"bash while [ ! -e {gate} ]; do sleep 0.05; done", "text Ours.")
    )
    await client.until(lambda: client.of(session, "tool_call"))
    await dispatch(stack, name_of(stack, session), text("Theirs."))
    gate.touch()
    assert (await client.answer(going))["stopReason"] == "end_turn"
    await shown(client, session, "Theirs.")
    assert "Ours." in client.text(session)
    await client.prompt(session, text("Last."))
    known = f"{answers(stack)} {notes(stack)}"
    assert all(words in known for words in ("First.", "Ours.", "Theirs."))
    await client.prompt(session, text("Very last."))
    assert "Last." in answers(stack)
    await client.load(session, stack.work)
    said = client.text(session)
    assert [said.count(words) for words in ("Ours.", "Theirs.")] == [1, 1]


@pytest.mark.long
async def test_answer_a_terminal_went_past_is_told(stack: Stack) -> None:
    """It goes on without our answer, and our next Claude from there."""
    client = await stack.front()
    session = await client.new(stack.work)
    await client.prompt(session, text("First."))
    (transcript,) = stack.transcripts(session)
    going = client.prompting(session, script("repeat 50x100ms x", "text Ours."))
    await eventually(lambda: "repeat 50x100ms" in transcript.read_text())
    async with open_terminal(stack, session) as say:
        assert (await client.answer(going))["stopReason"] == "end_turn"
        await eventually(lambda: transcript.read_text().count("Ours.") == 2)
        say(text("Theirs."))
        await shown(client, session, "Theirs.")
    await client.prompt(session, text("Last."))
    assert answers(stack)[-1] == "Theirs."
    assert "Ours." in notes(stack).partition("Answered: ")[2]
    await client.prompt(session, text("Very last."))
    assert answers(stack)[-1] == "Last."
    assert notes(stack).count("Answered: ") == 1


@pytest.mark.long
async def test_others_turn_while_no_daemon_runs_is_known(stack: Stack) -> None:
    await stack.daemon()
    client = await stack.front()
    session = await client.new(stack.work)
    await client.prompt(session, text("First."))
    await stack.end_daemon(signal.SIGKILL)
    await dispatch(stack, name_of(stack, session), text("Second."))
    await client.prompt(session, text("Third."))
    assert answers(stack) == ["First.", "Second."]
    assert "Second." in client.text(session)


async def test_whatsapp_conversation_goes_to_editor_and_back(shared: Stack) -> None:
    name = f"wa-andy-{secrets.token_hex(4)}@g.us"
    await dispatch(shared, name, text("In WhatsApp."))
    _, folder = row(shared, name)
    session = conversations.id_of(name)
    client = await shared.front()
    await client.load(session, shared.work)
    assert client.text(session) == "In WhatsApp."
    await client.prompt(session, text("In the editor."))
    assert answers(shared) == ["In WhatsApp."]
    assert row(shared, name)[1] == folder
    await dispatch(shared, name, text("Again in WhatsApp."))
    assert answers(shared) == ["In WhatsApp.", "In the editor."]
    await shown(client, session, "Again in WhatsApp.")


@pytest.mark.long
async def test_conversation_without_transcript_loads_but_never_continues_empty(
    stack: Stack,
) -> None:
    await dispatch(stack, "acp-1a2b3c4d", text("The old answer."))
    claude, _ = row(stack, "acp-1a2b3c4d")
    for transcript in stack.transcripts(claude):
        transcript.unlink()
    client = await stack.front(PYKOCLAW_LOST_CONTEXT="required")
    await client.load(OLD, stack.work)
    asked = len(stack.asked())
    with pytest.raises(RpcError) as failure:
        await client.prompt(OLD, text("Anew."))
    assert failure.value.kind == "context_lost"
    assert len(stack.asked()) == asked


@pytest.mark.long
@pytest.mark.parametrize("policy", ["auto", "off", "required"])
async def test_transcript_removed_during_turn_is_lost_memory(stack: Stack, policy: str) -> None:
    """The CLI goes on in a new file, which has only the rest of that turn."""
    client = await stack.front(PYKOCLAW_LOST_CONTEXT=policy)
    session = await client.new(stack.work)
    for words in ("First.", "Second."):
        await client.prompt(session, text(words))
    gate = stack.root / "gate"
    going = client.prompting(
        session, script(f"bash while [ ! -e {gate} ]; do sleep 0.05; done", "text Third.")
    )
    await eventually(lambda: '"tool_use"' in stack.transcript(session))
    (transcript,) = stack.transcripts(session)
    transcript.unlink()
    gate.touch()
    assert (await client.answer(going))["stopReason"] == "end_turn"
    await done(stack, "workers", "stop")
    if policy == "required":
        with pytest.raises(RpcError) as failure:
            await client.prompt(session, text("Fourth."))
        assert failure.value.kind == "context_lost"
        return
    for words in ("Fourth.", "Fifth."):
        await client.prompt(session, text(words))
        told = [words in notes(stack) for words in ("First.", "Second.", "Third.")]
        assert told == [policy == "auto"] * 3
        assert notes(stack).count("You have no record") == (policy == "auto")
        await done(stack, "workers", "stop")
    assert client.text(session).count("does not remember the last 3 turns") == 1
