"""Rewinding, and stopping one task, with the real CLI."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.commands import done
from tests.e2e.forks import fork
from tests.e2e.harness import Client, Stack, script, text
from tests.e2e.harness.client import RpcError
from tests.e2e.rewinds import front
from tests.waiting import eventually


@pytest.mark.long
async def test_what_cannot_be_put_back_is_named(stack: Stack) -> None:
    client = await front(stack)
    session = await client.new(stack.work)
    await client.prompt(
        session, script("write made.txt <<< 1", "write other.txt <<< 1", "text Made.")
    )
    made, other = stack.work / "made.txt", stack.work / "other.txt"
    made.unlink()
    made.mkdir()
    with pytest.raises(RpcError, match=r"These were not: /\S+/made.txt\. The others"):
        await client.call("_pykoclaw.dev/rewind", session=session)
    assert not other.exists()
    assert "Rewound" not in client.text(session)
    made.rmdir()
    await client.call("_pykoclaw.dev/rewind", session=session)
    assert "Rewound" in client.text(session)


async def test_moved_project_is_rewound_without_files(stack: Stack) -> None:
    """The CLI puts nothing back in another directory than the one in which it made the copies."""
    client = await front(stack)
    old, new = stack.root / "old", stack.root / "new"
    old.mkdir()
    session = await client.new(old)
    await client.prompt(session, script("write made.txt <<< 1", "text Made."))
    await client.prompt(session, text("Looked."))
    old.rename(new)
    await client.load(session, new)
    await client.prompt(session, script("write made.txt <<< 2", "text Made."))
    with pytest.raises(RpcError, match="that the CLI made before the project was moved"):
        await client.call("_pykoclaw.dev/rewind", session=session)
    await client.call("_pykoclaw.dev/rewind", session=session, files=False)
    for _ in range(2):
        with pytest.raises(RpcError, match="before this session's directory was moved"):
            await client.call("_pykoclaw.dev/rewind", session=session)
        await client.call("_pykoclaw.dev/rewind", session=session, files=False)
    assert (new / "made.txt").read_text() == "2"
    await client.prompt(session, "Word: anew\n" + text("Noted."))
    assert "made.txt" not in str(stack.asked()[-1]["user_texts"])


@pytest.mark.long
async def test_claude_has_no_tasks_where_it_branches_off(stack: Stack) -> None:
    """Neither after a rewind nor in a fork, also not those of before the place."""
    client = await front(stack)
    session = await client.new(stack.work)
    for task in ("One", "Two"):
        make = json.dumps({"subject": task, "description": "d"})
        await client.prompt(session, script(f"tool TaskCreate {make}", "text Planned."))
    made = await fork(client, stack, session)
    await client.call("_pykoclaw.dev/rewind", session=session, files=False)
    sizes = [len(one["entries"]) for one in client.of(session, "plan")]
    assert sizes == [1, 2, 0]
    for one in (session, made["sessionId"]):
        await client.load(one, stack.work)
        assert client.of(one, "plan")[-1]["entries"] == []
        await client.prompt(one, script("tool TaskList {}", "report"))
        assert "No tasks found" in client.text(one)


async def test_rewind_puts_back_files_and_memory(stack: Stack) -> None:
    client = await front(stack)
    session = await client.new(stack.work)
    made = stack.work / "made.txt"
    for count in (1, 2, 3):
        await client.prompt(session, f"Word: {count}\n" + script(
            f"write made.txt <<< {count}", f"write n{count}.txt <<< x", f"text Noted {count}."))  # fmt: skip
    turns = [
        row["turn_id"] for row in stack.rows("SELECT turn_id FROM acp_turns ORDER BY position")
    ]
    plan = await client.call("_pykoclaw.dev/rewind", session=session, message=turns[1], dryRun=True)
    assert {Path(one).name for one in plan["files"]} == {"made.txt", "n2.txt", "n3.txt"}
    assert plan["turns"] == 2
    assert made.read_text() == "3", "nothing changes when it is shown"

    running = client.prompting(session, script("bash tail -f /dev/null"))
    await client.until(lambda: len(client.of(session, "tool_call")) == 7)
    with pytest.raises(RpcError, match="A turn of this session runs"):
        await client.call("_pykoclaw.dev/rewind", session=session, message=turns[1])
    client.cancel(session)
    await client.answer(running)

    done = await client.call("_pykoclaw.dev/rewind", session=session, message=turns[1])
    assert made.read_text() == "1"
    assert {Path(one).name for one in done["deleted"]} == {"n2.txt", "n3.txt"}
    assert not (stack.work / "n3.txt").exists()
    await client.close()
    await stack.end_daemon()

    client = await front(stack)
    await client.load(session, stack.work)
    assert "Noted 3." in client.text(session), "the history keeps it"
    assert "Rewound" in client.text(session)
    await client.prompt(session, "Word: after\n" + text("Noted after."))
    asked = "\n".join(stack.asked()[-1]["user_texts"])
    assert "Word: 1" in asked
    assert "Word: 2" not in asked
    with pytest.raises(RpcError, match="was rewound"):
        await client.call("_pykoclaw.dev/rewind", session=session, message=turns[2])
    shown = client.text(session)
    await client.prompt(session, text("More."))
    await client.load(session, stack.work)
    assert client.text(session) == shown + "More.", "nothing of the transcript was imported"

    await client.call("_pykoclaw.dev/rewind", session=session, message=turns[0], files=False)
    await client.prompt(session, "Word: anew\n" + text("Noted anew."))
    assert "Word: 1" not in "\n".join(stack.asked()[-1]["user_texts"])


@pytest.mark.long
async def test_rewind_over_commands_of_cli_finds_files(stack: Stack) -> None:
    """Before such a command the CLI makes no copies of files: those of the next turn are as good."""
    client = await front(stack)
    session = await client.new(stack.work)
    made = stack.work / "made.txt"
    await client.prompt(session, script("write made.txt <<< 1", "text Noted."))
    await client.prompt(session, "/help")
    plan = await client.call("_pykoclaw.dev/rewind", session=session, dryRun=True)
    assert (plan["turns"], plan["files"]) == (1, [])
    await client.prompt(session, script("write made.txt <<< 2", "text Noted."))
    command = stack.rows("SELECT turn_id FROM acp_turns WHERE prompt LIKE '%/help%'")[0]["turn_id"]
    done = await client.call("_pykoclaw.dev/rewind", session=session, message=command)
    assert (done["turns"], made.read_text()) == (2, "1")


async def rewound(stack: Stack) -> tuple[Client, str]:
    """A client, and its session of two turns, of which the second was rewound."""
    client = await front(stack)
    session = await client.new(stack.work)
    for word in ("one", "two"):
        await client.prompt(session, f"Word: {word}\n" + text(f"Noted {word}."))
    await client.call("_pykoclaw.dev/rewind", session=session)
    return client, session


@pytest.mark.long
async def test_rewound_turn_stays_forgotten(stack: Stack) -> None:
    client, session = await rewound(stack)
    for word in ("three", "four", "five"):
        await client.prompt(session, f"Word: {word}\n" + text(f"Noted {word}."))
        asked = "\n".join(stack.asked()[-1]["user_texts"])
        assert "Word: one" in asked
        assert "two" not in asked
    assert "Another program" not in client.text(session)
    assert "Word: four" in asked


@pytest.mark.long
async def test_lost_branch_of_deleted_session_stays_deleted(stack: Stack) -> None:
    client, session = await rewound(stack)
    running = client.prompting(session, script("text Lost.", "bash tail -f /dev/null"))
    await client.until(lambda: "Lost." in client.text(session))
    transcripts = await eventually(lambda: _transcripts(stack, 2))
    stack.worker(session).kill()
    with pytest.raises(RpcError):
        await client.answer(running)
    await client.prompt(session, "Word: three\n" + text("Noted three."))
    assert len((await client.call("session/list"))["sessions"]) == 1
    await client.call("session/delete", sessionId=session)
    assert set(transcripts) < set(_transcripts(stack, 3))
    await client.close()
    await stack.end_daemon()
    again = await front(stack)
    assert (await again.call("session/list"))["sessions"] == []
    for claude in _transcripts(stack, 3):
        with pytest.raises(RpcError, match="not found"):
            await again.load(claude, stack.work)


def _transcripts(stack: Stack, count: int) -> list[str]:
    """Ids of the transcripts on disk, once there are so many."""
    found = [path.stem for path in stack.home.glob(".claude/projects/*/*.jsonl")]
    return found if len(found) >= count else []


@pytest.mark.long
async def test_rewind_to_before_a_compaction_is_refused(stack: Stack) -> None:
    client = await front(stack)
    session = await client.new(stack.work)
    await client.prompt(session, script("write made.txt <<< 1", "text Noted one."))
    await client.prompt(session, "Word: two\n" + text("Noted two."))
    await client.prompt(session, "/compact")
    await client.prompt(session, "Word: three\n" + script("write made.txt <<< 3", "text Noted."))
    turns = [
        row["turn_id"] for row in stack.rows("SELECT turn_id FROM acp_turns ORDER BY position")
    ]
    shown = client.text(session)
    for turn in (turns[2], turns[1]):
        with pytest.raises(RpcError, match="compacted after this place"):
            await client.call("_pykoclaw.dev/rewind", session=session, message=turn)
    fork = {"cwd": str(stack.work), "mcpServers": [], "_meta": {"pykoclaw.dev/messageId": turns[0]}}
    with pytest.raises(RpcError, match="compacted after this place"):
        await client.call("session/fork", sessionId=session, **fork)
    assert client.text(session) == shown
    await client.call("_pykoclaw.dev/rewind", session=session, message=turns[3])
    assert (stack.work / "made.txt").read_text() == "1"
    await client.prompt(session, "Word: after\n" + text("Noted after."))
    asked = str(stack.asked()[-1]["messages"])
    assert "This session is being continued" in asked
    assert "three" not in asked
    await client.call("_pykoclaw.dev/rewind", session=session, message=turns[0], files=False)
    await client.prompt(session, "Word: anew\n" + text("Noted anew."))
    assert "This session is being continued" not in str(stack.asked()[-1]["messages"])
    assert "PYKOCLAW_LOST_CONTEXT" not in client.text(session)


@pytest.mark.long
async def test_summary_for_lost_memory_omits_rewound_turn(stack: Stack) -> None:
    client = await front(stack)
    session = await client.new(stack.work)
    for word in ("one", "two"):
        await client.prompt(session, f"Word: {word}\n" + text(f"Noted {word}."))
    await client.call("_pykoclaw.dev/rewind", session=session)
    await client.prompt(session, "Word: three\n" + text("Noted three."))
    await client.close()
    await stack.end_daemon()
    for transcript in stack.transcripts():
        transcript.unlink()
    client = await front(stack)
    await client.load(session, stack.work)
    await client.prompt(session, "Word: four\n" + text("Noted four."))
    asked = "\n".join(stack.asked()[-1]["user_texts"])
    assert "Word: one" in asked
    assert "Word: three" in asked
    assert "two" not in asked


@pytest.mark.long
async def test_turn_goes_on_after_one_task_stops(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    running = client.prompting(
        session, script("background echo begun; sleep 1000", "bash sleep 3", "text Done.")
    )
    await client.until(lambda: len(client.of(session, "tool_call")) == 2)
    call = client.of(session, "tool_call")[0]["toolCallId"]
    await client.call("_pykoclaw.dev/toolcalls/stop", session=session, toolCallId=call)
    assert (await client.answer(running))["stopReason"] == "end_turn"
    ends = {one["toolCallId"]: one["status"] for one in client.of(session, "tool_call_update")}
    assert ends[call] == "failed"
    [why] = [one for one in client.of(session, "tool_call_update") if one.get("status") == "failed"]
    *_, output, reason = (part["content"]["text"] for part in why["content"])
    assert (output, reason) == ("```\nbegun\n```", "Stopped by the user.")
    assert client.text(session) == "Done."
    with pytest.raises(RpcError, match="No subagent and no command"):
        await client.call("_pykoclaw.dev/toolcalls/stop", session=session, toolCallId=call)


@pytest.mark.parametrize("behind", [True, False], ids=["background", "foreground"])
async def test_turn_goes_on_after_one_subagent_stops(shared: Stack, behind: bool) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    prompt = (
        f"[[script bash touch begun; sleep 15{behind:d}1 ;; bash touch further ;; text Never.]]"
    )
    agent = {"description": "look", "subagent_type": "claude", "run_in_background": behind}
    begin = "tool Agent " + json.dumps({**agent, "prompt": prompt})
    wait = "bash until [ -e over ]; do sleep 0.1; done"
    running = client.prompting(session, script(begin, wait, "text Done."))
    await client.until(lambda: shared.find(f"sleep 15{behind:d}1"))
    call = client.of(session, "tool_call")[0]["toolCallId"]
    shown = json.loads((await done(shared, "sessions", "show", session, "--json")).out)
    assert shown["running"][0] == {"id": call, "title": "Agent: look (claude)"}
    stopped = await done(shared, "workers", "stop-task", session, call)
    assert stopped.out == "Stopped.\n"
    await client.until(lambda: not shared.find(f"sleep 15{behind:d}1"))
    assert not running.done()
    (shared.work / "over").touch()
    assert (await client.answer(running))["stopReason"] == "end_turn"
    ends = {one["toolCallId"]: one["status"] for one in client.of(session, "tool_call_update")}
    assert ends[call] == "failed"
    assert client.text(session) == "Done."
    assert not (shared.work / "further").exists()
