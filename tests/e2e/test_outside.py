"""`pykoclaw-acp prompt` and `tasks`, and the scheduler, on the real CLI."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pty
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.system.proc import has_open
from tests.double import installed
from tests.e2e.commands import done, run
from tests.e2e.harness import Client, Stack, script, text
from tests.e2e.harness.stack import PROGRAM
from tests.integration.queueing import execute, fetch
from tests.waiting import eventually

PAST = "2026-01-01T00:00:00+00:00"
ASKS = script("bash mkdir made", "text Made.")


def name(session: str) -> str:
    return f"acp-{session[:8]}"


async def conversation(stack: Stack, scheduler: str = "off") -> tuple[Client, str]:
    client = await stack.front(PYKOCLAW_SCHEDULER=scheduler)
    session = await client.new(stack.work)
    await client.prompt(session, text("Good morning."))
    return client, session


async def talking(shared: Stack) -> tuple[Client, str]:
    client = await shared.start()
    session = await client.new(shared.work)
    await client.prompt(session, text("Good morning."))
    return client, session


def schedule(stack: Stack, task_id: str, conversation: str, prompt: str, **fields: Any) -> None:
    row = {
        "id": task_id, "conversation": conversation, "prompt": prompt, "schedule_type": "once",
        "schedule_value": PAST, "context_mode": "group", "next_run": PAST, "status": "active",
        "created_at": PAST, **fields,
    }  # fmt: skip
    names, places = ", ".join(row), ", ".join("?" * len(row))
    path = stack.data / "pykoclaw.db"
    execute(path, f"INSERT INTO scheduled_tasks ({names}) VALUES ({places})", *row.values())


def runs(stack: Stack, task_id: str) -> list[tuple[Any, ...]]:
    path = stack.data / "pykoclaw.db"
    return fetch(path, "SELECT status, result, error FROM task_run_logs WHERE task_id = ?", task_id)


# --- prompt


@pytest.mark.long
async def test_prompt_from_a_script_prints_the_answer_alone(shared: Stack) -> None:
    client, session = await talking(shared)
    result = await done(shared, "prompt", name(session), text("Ready."))
    assert result.out == "Ready.\n"
    await client.until(lambda: "Ready." in client.text(session))  # who has it open sees it, too
    reported = (await done(shared, "prompt", session, text("Again."), "--json")).json
    assert (reported["state"], reported["text"], reported["error"]) == ("done", "Again.", None)
    assert reported["session"] == session
    anew = ("prompt", "--new", text("Anew."), "--key", "k", "--json")
    begun, again = [(await done(shared, *anew)).json for _ in range(2)]
    assert (begun["session"] != session, begun["text"]) == (True, "Anew.")
    assert (again["session"], again["joined"]) == (begun["session"], True)
    (listed,) = [
        one
        for one in (await done(shared, "sessions", "list", "--json")).json
        if one["id"] == begun["session"]
    ]
    assert (listed["cwd"], listed["client"]) == (str(shared.root), "cli")


async def test_prompt_waits_for_work_in_the_background(shared: Stack) -> None:
    _, session = await talking(shared)
    left = script(
        "background sleep 1; echo built", "text It runs.", "stop end_turn", "text It passed."
    )
    result = await run(shared, "prompt", session, left)
    assert result.status == 0
    assert result.out.startswith("It runs.\n")
    assert result.out.endswith("\nIt passed.\n")
    assert result.error == (
        "\nWaiting for work in the background, and for what Claude says then."
        " Ctrl-C ends the command only.\n"
    )
    agent = {"description": "look", "subagent_type": "claude", "prompt": script("text Eight.")}
    left = script(
        f"tool Agent {json.dumps(agent)}", "text It looks.", "stop end_turn", "text Done."
    )
    told = json.loads((await run(shared, "prompt", session, left, "--json")).out)
    assert (told["state"], told["text"]) == ("done", "It looks.\n\nDone.")
    assert told["goesOn"] is False


def waiting_agent() -> str:
    """A subagent that stops until a command of its own ends, and then goes on."""
    agent = {
        "description": "look", "subagent_type": "claude", "run_in_background": True,
        "prompt": script("background sleep 6; touch made", "text I wait."),
    }  # fmt: skip
    return script(
        *(f"tool Agent {json.dumps(agent)}", "text It looks.", "stop end_turn"),
        *("text It waits.", "stop end_turn", "text It is made."),
    )


async def test_prompt_waits_for_a_waiting_subagent(shared: Stack) -> None:
    _, session = await talking(shared)
    told = json.loads((await run(shared, "prompt", session, waiting_agent(), "--json")).out)
    said = "It looks.\n\nIt waits.\n\nIt is made."
    assert (told["state"], told["text"], told["goesOn"]) == ("done", said, False)
    assert (shared.work / "made").exists()


@pytest.mark.long
async def test_prompt_has_answer_to_message_that_waited(shared: Stack) -> None:
    """The subagent gets it when it has ended, and waits for a command of its own then."""
    _, session = await talking(shared)
    agent = {
        "description": "look", "name": "looker", "subagent_type": "claude",
        "prompt": script("hang 4s", "text First."),
    }  # fmt: skip
    message = {
        "to": "looker", "summary": "more",
        "message": script("text Again.", "background sleep 4; touch made", "text I wait."),
    }  # fmt: skip
    left = script(
        f"tool Agent {json.dumps(agent)}",
        f"tool SendMessage {json.dumps(message)}",
        *("text Sent.", "stop end_turn", "text More.", "stop end_turn"),
        *("text It waits.", "stop end_turn", "text It is made."),
    )
    told = json.loads((await run(shared, "prompt", session, left, "--json")).out)
    said = "Sent.\n\nMore.\n\nIt waits.\n\nIt is made."
    assert (told["state"], told["text"], told["goesOn"]) == ("done", said, False)


@pytest.mark.long
async def test_task_waits_for_a_waiting_subagent(stack: Stack) -> None:
    _, session = await conversation(stack)
    schedule(stack, "aaaa1111", name(session), waiting_agent())
    await done(stack, "tasks", "run", "aaaa1111")
    await eventually(lambda: runs(stack, "aaaa1111"), 60)
    [(status, result, error)] = runs(stack, "aaaa1111")
    assert (status, error) == ("success", None)
    assert result.endswith("It is made.")


@pytest.mark.long
async def test_prompt_with_a_key_runs_once(stack: Stack) -> None:
    _, session = await conversation(stack)
    before = len(stack.asked())
    for _ in range(2):
        result = await done(stack, "prompt", session, text("Once."), "--key", "mine")
        assert result.out == "Once.\n"
    assert len(stack.asked()) == before + 1
    other = await run(stack, "prompt", session, text("Other."), "--key", "mine")
    assert other.status == 1
    assert "another prompt" in other.error


@pytest.mark.long
async def test_detached_prompt_runs_without_its_command(stack: Stack) -> None:
    _, session = await conversation(stack)
    detached = ("prompt", session, "--detach", "--key", "k", script("repeat 20x20ms w{n} "))
    result = await done(stack, *detached)
    assert "Queued in session" in result.out
    states = "SELECT state FROM acp_turns ORDER BY position DESC LIMIT 1"
    await eventually(lambda: fetch(stack.data / "pykoclaw.db", states) == [("done",)])
    turn = result.out.split()[-1]
    again = await done(stack, *detached)
    assert f"Ended in session {session}, turn {turn}" in again.out
    told = json.loads((await done(stack, *detached, "--json")).out)
    assert (told["state"], told["stopReason"], told["joined"]) == ("done", "end_turn", True)
    assert told["text"].startswith("w1 ")


@pytest.mark.long
async def test_prompt_survives_a_restart_of_the_daemon(stack: Stack) -> None:
    client, session = await conversation(stack)
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "prompt", session, script("repeat 60x50ms w{n} ", "text Over."),
        stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=stack.environment, cwd=stack.root,
    )  # fmt: skip
    await client.until(lambda: "w5 " in client.text(session))
    await done(stack, "restart")
    out, error = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, error
    assert out.decode().split() == [*(f"w{n}" for n in range(1, 61)), "Over."]
    assert len(stack.asked()) == 2


async def test_prompt_fails_with_claudes_later_report(shared: Stack) -> None:
    _, session = await talking(shared)
    left = script("background true", "text It runs.", "stop end_turn", "error 400 nope")
    result = await run(shared, "prompt", session, left, "--json")
    assert result.out, result.error
    told = json.loads(result.out)
    assert (result.status, told["state"], told["text"]) == (1, "failed", "It runs.")
    assert told["error"]["message"].startswith("Claude could not go on by itself. ")
    assert told["error"]["message"].endswith(" Send a prompt to have it go on.")


@pytest.mark.long
async def test_exit_status_says_how_the_turn_ended(shared: Stack) -> None:
    client, session = await talking(shared)
    failed = await run(shared, "prompt", session, script("error 400 invalid_request_error No."))
    assert failed.status == 1
    assert failed.error
    assert (await run(shared, "prompt", "nobody", "hello")).status == 1
    words = script("bash touch begun; sleep 341").encode()
    interrupted = await _reading(shared, session, words)
    await client.until((shared.work / "begun").exists)
    interrupted.send_signal(signal.SIGINT)
    _, error = await asyncio.wait_for(interrupted.communicate(), 120)
    assert (interrupted.returncode, b"continues" in error) == (130, True)
    joined = await _reading(shared, session, words)
    client.cancel(session)
    _, error = await asyncio.wait_for(joined.communicate(), 120)
    assert (joined.returncode, b"cancelled" in error) == (4, True)


async def _reading(shared: Stack, session: str, words: bytes) -> Process:
    """A prompt that is read from standard input; the same one however often it is sent."""
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "prompt", session, "-", "--key", "one",
        stdin=PIPE, stdout=PIPE, stderr=PIPE, env=shared.environment, cwd=shared.root,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(words)
    process.stdin.close()
    return process


async def test_question_for_nobody_says_how_to_answer_it(shared: Stack) -> None:
    client, session = await talking(shared)
    await client.close()
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "prompt", session, ASKS,
        stdin=DEVNULL, stdout=PIPE, stderr=PIPE, env=shared.environment, cwd=shared.root,
    )  # fmt: skip
    assert process.stderr is not None
    said = b""
    async with asyncio.timeout(120):
        while b"--allow" not in said:
            said += await process.stderr.readline()
    question = said.split(b"approve ")[1].split()[0].decode()
    await done(shared, "approve", question, "--allow")
    out, _ = await asyncio.wait_for(process.communicate(), 120)
    assert (process.returncode, out) == (0, b"Made.\n")


@pytest.mark.long
@pytest.mark.parametrize("typed", [False, True])
async def test_question_is_answered_in_the_terminal(stack: Stack, typed: bool) -> None:
    """Also after a prompt that was typed there, with Ctrl-D at its end."""
    client, session = await conversation(stack)
    await client.close()
    ours, theirs = pty.openpty()
    process = await asyncio.create_subprocess_exec(
        *PROGRAM, "prompt", session, *([] if typed else [ASKS]),
        stdin=theirs, stdout=theirs, stderr=theirs, env=stack.environment, cwd=stack.root,
        start_new_session=True,
    )  # fmt: skip
    os.close(theirs)
    os.set_blocking(ours, False)
    seen = bytearray()

    def saw(words: bytes) -> bool:
        with contextlib.suppress(OSError):
            seen.extend(os.read(ours, 65536))
        return words in seen

    if typed:
        await eventually(lambda: saw(b"Ctrl-D"))
        os.write(ours, f"{ASKS}\n\x04".encode())
    await eventually(lambda: saw(b"y: Allow once"))
    os.write(ours, b"y\n")
    await eventually(lambda: saw(b"Made."))
    assert await asyncio.wait_for(process.wait(), 60) == 0
    os.close(ours)


# --- tasks


@pytest.mark.long
async def test_task_commands_list_change_and_run(stack: Stack) -> None:
    client, session = await conversation(stack)
    schedule(stack, "aaaa1111", name(session), text("Done it."), next_run="2099-01-01T00:00:00+00:00",
             schedule_type="interval", schedule_value="3600000")  # fmt: skip
    listed = await done(stack, "tasks", "list")
    assert "aaaa1111" in listed.out
    assert "Nothing runs the tasks" in listed.out
    await done(stack, "tasks", "pause", "aaaa")
    assert (await done(stack, "tasks", "show", "aaaa", "--json")).json["task"]["status"] == "paused"
    await done(stack, "tasks", "run", "aaaa1111")  # paused, and without a scheduler
    await eventually(lambda: runs(stack, "aaaa1111"))
    assert runs(stack, "aaaa1111") == [("success", "Done it.", None)]
    await client.until(lambda: client.text(session).count("Done it.") == 1)
    await done(stack, "tasks", "resume", "aaaa1111")
    shown = (await done(stack, "tasks", "show", "aaaa1111", "--json")).json
    assert (shown["task"]["status"], len(shown["runs"])) == ("active", 1)
    assert shown["task"]["nextRun"] < "2099"
    again = await done(stack, "tasks", "resume", "aaaa1111")
    assert again.out.startswith("aaaa1111 was active already. Next run: ")
    details = (await done(stack, "sessions", "show", session, "--json")).json
    assert [turn["origin"] for turn in details["turns"]] == ["task", "client"]
    await done(stack, "tasks", "cancel", "aaaa1111")
    assert (await run(stack, "tasks", "show", "aaaa1111")).status == 1
    assert (await done(stack, "tasks", "list")).out == "No scheduled tasks.\n"


@pytest.mark.long
async def test_scheduled_turn_is_part_of_the_conversation(stack: Stack) -> None:
    client, session = await conversation(stack, "on")
    schedule(stack, "aaaa1111", name(session), text("It is noon."))
    await client.until(lambda: "It is noon." in client.text(session))
    await eventually(lambda: runs(stack, "aaaa1111"))
    await client.prompt(session, text("You are welcome."))
    said = json.dumps(stack.asked()[-1]["messages"])
    assert said.count("It is noon.") > 0  # Claude has it in its own history
    assert client.text(session).count("It is noon.") == 1
    status = await done(stack, "status")
    assert "The daemon runs the tasks that are due." in status.out


@pytest.mark.long
async def test_isolated_result_is_delivered_and_told(stack: Stack) -> None:
    client, session = await conversation(stack, "on")
    schedule(
        stack,
        "aaaa1111",
        name(session),
        "Look at the logs of the whole night, and say what is wrong there. "
        + text("<reply>Three errors.</reply>"),
        context_mode="isolated",
    )
    await client.until(lambda: "Three errors." in client.text(session))
    assert "<reply>" not in client.text(session)
    asked = stack.asked()[-1]["messages"]
    assert "Good morning." not in json.dumps(asked)  # it ran without the conversation
    await client.prompt(session, text("Well."))
    last = json.dumps(stack.asked()[-1]["messages"])
    assert last.count("Three errors.") == 1
    assert "Good morning." in last  # the conversation is what it was


@pytest.mark.long
async def test_claimed_run_survives_the_daemon(stack: Stack) -> None:
    """Killed between claim and prompt, and between the turn's end and what follows it."""
    client, session = await conversation(stack)
    await client.close()
    await stack.end_daemon()
    for number, step in enumerate(
        ("task_claimed", "turn_queued", "turn_end_committed", "task_run_ended")
    ):
        schedule(stack, f"task{number}", name(session), text(f"Result {number}."))
        await stack.doomed(step, PYKOCLAW_SCHEDULER="on")
        await stack.daemon(PYKOCLAW_SCHEDULER="on")
        await eventually(partial(runs, stack, f"task{number}"), 120)
        await stack.end_daemon()
    assert [runs(stack, f"task{n}") for n in range(4)] == [
        [("success", f"Result {n}.", None)] for n in range(4)
    ]
    assert len(stack.asked()) == 5  # nothing ran twice


@pytest.mark.long
async def test_ours_stands_by_beside_pykoclaws_scheduler(stack: Stack, tmp_path: Path) -> None:
    _, session = await conversation(stack, "on")
    site = installed.install(tmp_path / "double")
    other = await asyncio.create_subprocess_exec(
        os.fspath(tmp_path / "double/bin/pykoclaw"), "scheduler", stderr=PIPE, cwd=tmp_path,
        env=installed.environment(site, stack.environment) | {"DOUBLE_EVERY": "1"},
    )  # fmt: skip
    assert other.stderr is not None
    path = stack.data / "pykoclaw.db"
    try:
        assert await asyncio.wait_for(other.stderr.readline(), 60) == b"Scheduler started\n"
        await eventually(partial(_has_open, other.pid, path))
        asked = len(stack.asked())
        for number in (1, 2):
            schedule(stack, f"task{number}", name(session), text("Noon."))
            await eventually(partial(runs, stack, f"task{number}"))
        status = (await done(stack, "status", "--json")).json["scheduler"]
        assert status == {"state": "stands_by", "other": other.pid, "running": 0}
        assert len(stack.asked()) == asked + 2
        assert fetch(path, "SELECT 1 FROM acp_task_runs") == []
    finally:
        other.send_signal(signal.SIGKILL)
        await other.wait()
    schedule(stack, "aaaa1111", name(session), text("Later."))
    await eventually(lambda: runs(stack, "aaaa1111"))
    for task_id, said in (("task1", "Noon."), ("task2", "Noon."), ("aaaa1111", "Later.")):
        assert runs(stack, task_id) == [("success", said, None)]


def _has_open(pid: int, path: Path) -> bool:
    return has_open(f"/proc/{pid}", path.stat())
