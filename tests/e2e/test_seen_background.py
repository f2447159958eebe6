"""What goes on for long, as a client sees it while it happens and again under a new daemon."""

from __future__ import annotations

import json
import os
import re
import signal
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from pykoclaw_acp.protocol.terminals import CLEAR
from pykoclaw_acp.translation.translator import AGENT_ENDED
from pykoclaw_acp.worker import output_files
from pykoclaw_acp.worker.output_files import OutputFile
from tests.e2e.harness import files
from tests.e2e.harness.client import Client
from tests.e2e.harness.seen import seen, seen_again
from tests.e2e.harness.stack import Stack, script, text
from tests.e2e.rewinds import front
from tests.waiting import eventually

NAMED: Final[dict[str, Any]] = {"clientInfo": {"name": "editor", "version": "1"}}


async def begin(stack: Stack, **params: Any) -> Client:
    """A client that is none of those about which something is known."""
    client = await stack.spawn()
    await client.initialize(**NAMED, **params)
    return client


def outputs(stack: Stack) -> list[Path]:
    """Files of the output of Claude's tasks."""
    return [
        path
        for path in files.below(stack.home)
        if path.parent.name == "tasks" and path.suffix == ".output"
    ]


def tool(name: str, /, **arguments: Any) -> str:
    return f"tool {name} {json.dumps(arguments)}"


def shown(updates: list[dict[str, Any]], call: str) -> dict[str, Any]:
    """A tool call as it is in the end."""
    return next(one for one in seen(updates) if one.get("toolCallId") == call)


def words(call: dict[str, Any]) -> str:
    return "\n".join(part["content"]["text"] for part in call.get("content") or ())


def calls(client: Client, session: str) -> dict[str, str]:
    """Ids of the session's calls, by title."""
    return {one["title"]: one["toolCallId"] for one in client.of(session, "tool_call")}


def waiting(gate: Path, *, say: str = "begun", code: int = 0) -> str:
    """A command that says something and runs until the gate is gone."""
    gate.mkdir()
    return f"echo {say}; while [ -d {gate.name} ]; do sleep 0.05; done; echo over; exit {code}"


def screen(client: Client, session: str) -> str:
    """What a terminal shows to which all output was appended."""
    shown = metas(client, session, "terminal_output")
    return "".join(meta["terminal_output"]["data"] for meta in shown)


def metas(client: Client, session: str, key: str) -> list[dict[str, Any]]:
    """`_meta` of the session's updates of calls that have this key."""
    found = (one.get("_meta") or {} for one in client.of(session, "tool_call_update"))
    return [meta for meta in found if key in meta]


async def until_shown(client: Client, session: str, call: str, said: str) -> None:
    await client.until(lambda: said in words(shown(client.of(session), call)))


@pytest.mark.long
async def test_running_commands_output_comes_live_and_once(
    stack: Stack,
) -> None:
    client = await begin(stack)
    session = await client.new(stack.work)
    gate = stack.work / "gate"
    prompted = client.prompting(session, script(f"bash {waiting(gate)}", "text Done."))
    live = await client.until(
        lambda: [one for one in client.of(session, "tool_call_update") if "begun" in words(one)]
    )
    assert {one["status"] for one in live} == {"in_progress"}
    gate.rmdir()
    await client.answer(prompted)
    [call] = client.of(session, "tool_call")
    ended = shown(client.of(session), call["toolCallId"])
    assert (ended["status"], words(ended).count("begun")) == ("completed", 1)
    assert "over" in words(ended)
    await seen_again(stack, client, session, **NAMED)


@pytest.mark.long
async def test_commands_shell_says_which_one_it_runs(stack: Stack) -> None:
    """By which the output of commands is told apart that run at the same time."""
    client = await begin(stack)
    session = await client.new(stack.work)
    commands = ['echo "it\'s one"; sleep 60', "echo 'two' | cat; sleep 60"]
    agents = [
        tool("Agent", description="d", subagent_type="claude", run_in_background=False,
             prompt=f"[[script\nbash {command}\ntext ok\n]]")
        for command in commands
    ]  # fmt: skip
    prompted = client.prompting(session, script(agents[0], f"& {agents[1]}", "text Done."))

    def told_apart() -> bool:
        places = [OutputFile(one.stem, str(one)) for one in outputs(stack)]
        return set(commands) <= set(output_files.shells(places).values())

    await eventually(told_apart)
    client.cancel(session)
    await client.answer(prompted)


@pytest.mark.long
@pytest.mark.parametrize(
    ("dies", "who"),
    [
        ("worker", "Claude's worker process died."),
        ("claude", "Claude's process died: exit status -9."),
    ],
    ids=["worker", "claude"],
)
async def test_what_dies_with_its_worker_says_so(stack: Stack, dies: str, who: str) -> None:
    client = await begin(stack)
    session = await client.new(stack.work)
    command = waiting(stack.work / "gate", say="half")
    await client.prompt(
        session, script(tool("Bash", command=command, run_in_background=True), "text It runs.")
    )
    [call] = (one["toolCallId"] for one in client.of(session, "tool_call"))
    await until_shown(client, session, call, "half")
    claude = stack.claude(session)
    assert claude is not None
    os.kill((stack.worker(session) if dies == "worker" else claude).pid, signal.SIGKILL)
    await client.until(lambda: shown(client.of(session), call)["status"] == "failed")
    ended = words(shown(client.of(session), call))
    assert "half" in ended
    assert ended.endswith(f"Cut off before its end. {who}")
    await seen_again(stack, client, session, **NAMED)


async def test_a_client_with_terminals_sees_commands_in_them(shared: Stack) -> None:
    client = await begin(shared, clientCapabilities={"_meta": {"terminal_output": True}})
    session = await client.new(shared.work)
    gate = shared.work / "gate"
    prompted = client.prompting(session, script(f"bash {waiting(gate, code=3)}", "text Done."))
    await client.until(lambda: "begun" in screen(client, session))
    assert screen(client, session) == "begun\n"
    gate.rmdir()
    await client.answer(prompted)
    [begun] = client.of(session, "tool_call")
    call = begun["toolCallId"]
    terminal = {"type": "terminal", "terminalId": call}
    assert terminal in begun["content"]
    assert begun["_meta"]["terminal_info"] == {"terminal_id": call}
    assert screen(client, session).split() == ["begun", "over"]
    ended = shown(client.of(session), call)
    assert terminal in ended["content"]
    assert ended["_meta"]["terminal_exit"] == {
        "terminal_id": call, "exit_code": 3, "signal": None
    }  # fmt: skip
    await client.load(session, shared.work)
    assert screen(client, session).split() == ["begun", "over"]


@pytest.mark.long
async def test_immediate_commands_colours_reach_terminals_live_and_again(
    stack: Stack,
) -> None:
    terminals = {"clientCapabilities": {"_meta": {"terminal_output": True}}}
    client = await begin(stack, **terminals)
    session = await client.new(stack.work)
    red = "printf '\\033[31mred\\033[0m\\033[2J\\n'"
    commands = (red, f"{red} >&2; exit 3", f"{red}; seq 20000")
    await client.prompt(session, script(*(tool("Bash", command=one) for one in commands)))
    begins = "\x1b[31mred\x1b[0m"
    outputs = [one["terminal_output"]["data"] for one in metas(client, session, "terminal_output")]
    assert outputs[:2] == [begins, begins]
    assert outputs[2].startswith(f"{begins}\n1\n")
    ended = [one for one in client.of(session, "tool_call_update") if "rawOutput" in one]
    assert [one["rawOutput"]["output"] for one in ended][:2] == ["red", "red"]
    again = await seen_again(stack, client, session, **NAMED, **terminals)
    assert screen(again, session) == "".join(outputs)
    await again.close()
    other = await begin(stack)
    await other.load(session, stack.work)
    assert "\\u001b" not in json.dumps(other.of(session, "tool_call_update"))


@pytest.mark.long
async def test_commands_in_the_background(stack: Stack) -> None:
    client = await begin(stack)
    session = await client.new(stack.work)
    one, two, three = (stack.work / name for name in ("one", "two", "three"))
    background = {"run_in_background": True, "description": "Wait"}
    await client.prompt(
        session,
        script(
            tool("Bash", command=waiting(one, say="first", code=3), **background),
            "& " + tool("Bash", command=waiting(two, say="second"), **background),
            "& " + tool("Bash", command=waiting(three, say="third"), **background),
            "text They run.",
        ),
    )
    first, second, third = (call["toolCallId"] for call in client.of(session, "tool_call"))
    everything = json.dumps(client.of(session))
    assert "running in background" not in everything
    assert ".output" not in everything
    await until_shown(client, session, second, "second")

    await client.load(session, stack.work)  # as another window would, while they run
    for call, said in ((first, "first"), (second, "second"), (third, "third")):
        found = shown(client.of(session), call)
        assert found["status"] == "in_progress"
        await until_shown(client, session, call, said)

    [output] = [
        file for file in outputs(stack) if file.is_file() and file.read_text().startswith("second")
    ]
    await client.prompt(
        session,
        script(
            f"read {output}",
            tool("TaskStop", task_id=output.stem),
            "text Looked and stopped.",
            "stop end_turn",
            "text # One is over",
            "stop end_turn",
            "text # Another is over",
        ),
    )
    assert len(client.of(session, "tool_call")) == 3
    stopped = shown(client.of(session), second)
    assert stopped["status"] == "failed"
    assert words(stopped).endswith("Stopped by Claude.")
    assert "second" in words(stopped)

    one.rmdir()
    await client.until(lambda: "is over" in client.text(session))
    failed = shown(client.of(session), first)
    assert (failed["status"], words(failed).count("first")) == ("failed", 1)
    assert words(failed).count("Exit code 3") == 1
    assert "exited with code" not in words(failed)
    told = client.text(session).partition("Looked and stopped.")[2]
    assert told.startswith("\n\n> The background command `echo first")
    assert "has failed (exit code 3).\n\n" in told
    three.rmdir()
    await client.until(lambda: "has ended (exit code 0).\n\n" in client.text(session))
    assert shown(client.of(session), third)["status"] == "completed"
    done = "SELECT 1 FROM acp_turns WHERE origin = 'background' AND state = 'done'"
    await client.until(lambda: len(stack.rows(done)) == 2)
    await seen_again(stack, client, session, **NAMED)


@pytest.mark.long
async def test_load_amid_output_leaves_no_gap(stack: Stack) -> None:
    """Nor does anything come twice, of what is written between the replay and what follows it."""
    client = await begin(stack, clientCapabilities={"_meta": {"terminal_output": True}})
    session = await client.new(stack.work)
    command = "n=0; while [ ! -e stop ]; do n=$((n+1)); echo $n; sleep 0.01; done"
    steps = (tool("Bash", command=command, run_in_background=True), "text It runs.")
    await client.prompt(session, script(*steps, "stop end_turn", "text It is over."))
    (call,) = calls(client, session).values()
    last = 0
    for _ in range(5):
        await client.load(session, stack.work)
        await client.until(partial(_is_beyond, client, session, last))
        numbers = written(client, session)
        last = numbers[-1]
        assert numbers == list(range(numbers[0], last + 1))
    (stack.work / "stop").touch()
    await client.until(lambda: shown(client.of(session), call)["status"] == "completed")
    numbers = [int(one) for one in screen(client, session).rpartition(CLEAR)[2].split()]
    assert numbers[-1] >= last
    await client.close()
    replayed = await begin(stack)
    await replayed.load(session, stack.work)
    told = re.findall(r"^\d+$", words(shown(replayed.of(session), call)), re.MULTILINE)
    assert [int(one) for one in told] == list(range(1, numbers[-1] + 1))
    assert numbers == list(range(numbers[0], numbers[-1] + 1))


def _is_beyond(client: Client, session: str, last: int) -> bool:
    return written(client, session)[-1:] > [last]


def written(client: Client, session: str) -> list[int]:
    """The numbers on a terminal: only whole lines, since it was last cleared."""
    whole = screen(client, session).rpartition(CLEAR)[2].rpartition("\n")[0]
    return [int(one) for one in whole.split()]


@pytest.mark.long
async def test_command_beyond_time_limit_continues_in_background(
    stack: Stack,
) -> None:
    client = await begin(stack)
    session = await client.new(stack.work)
    gate = stack.work / "gate"
    steps = (tool("Bash", command=waiting(gate), timeout=1000), "text I wait no longer.")
    await client.prompt(session, script(*steps, "stop end_turn", "text It is over."))
    (call,) = calls(client, session).values()
    found = shown(client.of(session), call)
    assert found["status"] == "in_progress"
    assert "Its time limit of 1 s is over; it was moved to the background." in words(found)
    gate.rmdir()
    await client.until(lambda: "It is over." in client.text(session))
    ended = shown(client.of(session), call)
    assert (ended["status"], words(ended).split()[1:3]) == ("completed", ["begun", "over"])
    await seen_again(stack, client, session, **NAMED)


@pytest.mark.long
async def test_monitors_lines_start_claudes_own_turns(stack: Stack) -> None:
    client = await begin(stack)
    session = await client.new(stack.work)
    gate = stack.work / "gate"
    command = f"while [ ! -e begin ]; do sleep 0.05; done; {waiting(gate)}"
    monitor = tool("Monitor", command=command, description="Watch it", persistent=False)
    await client.prompt(session, script(monitor, "text I watch.", "stop end_turn", "text I see."))
    (stack.work / "begin").touch()
    (call,) = calls(client, session).values()
    assert shown(client.of(session), call)["status"] == "in_progress"
    await client.until(lambda: "I see." in client.text(session))
    gate.rmdir()
    await client.until(lambda: shown(client.of(session), call)["status"] == "completed")
    await client.until(lambda: "monitor “Watch it” has ended" in client.text(session))
    told = client.text(session)
    assert told.startswith("I watch.\n\n> Claude has news of the monitor “Watch it”.\n\nI see.")
    await seen_again(stack, client, session, **NAMED)


@pytest.mark.long
async def test_subagents_in_the_background_and_waited_for(stack: Stack) -> None:
    client = await begin(stack)
    session = await client.new(stack.work)
    (stack.work / "notes.txt").write_text("a note\n")
    gate = stack.work / "gate"
    gate.mkdir()
    wait = f"bash while [ -d {gate.name} ]; do sleep 0.05; done"
    work = script("text I look.", "read notes.txt", wait, "text The **report**.")
    agent = {"description": "Look around", "subagent_type": "Explore", "prompt": work}
    await client.prompt(
        session,
        script(
            tool("Agent", **agent, run_in_background=True),
            "text It looks.",
            "stop end_turn",
            "text I know now.",
        ),
    )
    begun = client.of(session, "tool_call")[0]
    assert (begun["kind"], words(begun)) == ("think", work)
    call = begun["toolCallId"]
    await until_shown(client, session, call, "I look.")
    assert shown(client.of(session), call)["status"] == "in_progress"
    gate.rmdir()
    await client.until(lambda: "I know now." in client.text(session))
    ended = shown(client.of(session), call)
    assert ended["status"] == "completed"
    assert [part["content"]["text"] for part in ended["content"]][:2] == [
        "I look.", "The **report**."
    ]  # fmt: skip
    assert "2 tool calls, " in words(ended)
    assert "> The background agent “Look around” has ended.\n\n" in client.text(session)
    inner = [one for one in client.of(session, "tool_call") if one["toolCallId"] != call]
    assert {one["_meta"]["pykoclaw.dev/parentToolCallId"] for one in inner} == {call}
    assert {one["_meta"]["claudeCode"]["parentToolUseId"] for one in inner} == {call}
    assert inner[0]["title"] == "Explore: Read notes.txt"
    assert {shown(client.of(session), one["toolCallId"])["status"] for one in inner} == {
        "completed"
    }

    await client.prompt(
        session,
        script(
            tool("Agent", **agent, run_in_background=False),
            tool("WebFetch", url="http://127.0.0.1:9/docs", prompt="What does it say?"),
            "text Fine.",
        ),
    )
    assert words(client.of(session, "tool_call")[-1]) == "What does it say?"
    waited = [one for one in client.of(session, "tool_call") if "Look around" in one["title"]][-1]
    ended = shown(client.of(session), waited["toolCallId"])
    assert [part["content"]["text"] for part in ended["content"]][:2] == [
        "I look.", "The **report**."
    ]  # fmt: skip
    everything = json.dumps(client.of(session))
    for internal in ("agentId", "hand-back", "tools-used", "metadata", "subagent_tokens"):
        assert internal not in everything
    await seen_again(stack, client, session, **NAMED)


@pytest.mark.long
async def test_what_follows_subagents_question_is_shown_once(stack: Stack) -> None:
    client = await begin(stack)
    session = await client.new(stack.work)
    gate = stack.work / "gate"
    gate.mkdir()
    wait = f"bash while [ -d {gate.name} ]; do sleep 0.05; done"
    agent = {
        "description": "Look around",
        "subagent_type": "general-purpose",
        "prompt": script(wait, "bash touch one", "bash touch two", "text Looked."),
    }
    steps = (tool("Agent", **agent, run_in_background=True), "text It looks.", "stop end_turn")
    await client.prompt(session, script(*steps, "bash echo by-itself", "text It has ended."))
    gate.rmdir()
    await client.until(lambda: "It has ended." in client.text(session))
    worker = stack.worker(session).pid
    await client.prompt(session, text("Go on."))
    assert client.text(session).count("It has ended.") == 1
    assert stack.worker(session).pid == worker
    await seen_again(stack, client, session, **NAMED)


@pytest.mark.long
async def test_waiting_subagents_command_and_report_are_shown(stack: Stack) -> None:
    client = await begin(stack)
    session = await client.new(stack.work)
    command = waiting(stack.work / "gate")
    agent = {"description": "look", "subagent_type": "claude", "run_in_background": True}
    given = tool("Agent", **agent, prompt=script(f"background {command}", "text I wait."))
    said = (
        "text It looks.",
        "stop end_turn",
        "text It waits.",
        "stop end_turn",
        "text It is over.",
    )
    await client.prompt(session, script(given, *said))
    await client.until(lambda: "It waits." in client.text(session))
    ids = calls(client, session)
    outer = ids["Agent: look (claude)"]
    [inner] = (ids[title] for title in ids if title.startswith("claude: "))
    states = [shown(client.of(session), one)["status"] for one in (outer, inner)]
    assert states == ["in_progress", "in_progress"]
    (stack.work / "gate").rmdir()
    await client.until(lambda: "It is over." in client.text(session))
    ended = [shown(client.of(session), one) for one in (outer, inner)]
    assert [one["status"] for one in ended] == ["completed", "completed"]
    assert "I wait." in words(ended[0])
    assert "The script has no more steps." in words(ended[0])
    assert "over" in words(ended[1])
    assert "agent “look” waits for background work of its own." in client.text(session)
    await seen_again(stack, client, session, **NAMED)


@pytest.mark.long
async def test_subagents_own_subagent_outlives_it(stack: Stack) -> None:
    client = await begin(stack)
    session = await client.new(stack.work)
    background = {"subagent_type": "claude", "run_in_background": True}
    command = waiting(stack.work / "gate")
    deep = tool("Agent", description="deep", prompt=script(f"bash {command}"), **background)
    given = tool("Agent", description="look", prompt=script(deep, "text Begun."), **background)
    said = ("text It looks.", "stop end_turn", "text It has looked.", "stop end_turn")
    await client.prompt(session, script(given, *said, "text All."))
    await client.until(lambda: "It has looked." in client.text(session))
    ids = calls(client, session)
    outer, inner = ids["Agent: look (claude)"], ids["claude: Agent: deep (claude)"]
    states = [shown(client.of(session), one)["status"] for one in (outer, inner)]
    assert states == ["completed", "in_progress"]
    (stack.work / "gate").rmdir()
    await client.until(lambda: "All." in client.text(session))
    assert shown(client.of(session), inner)["status"] == "completed"
    await seen_again(stack, client, session, **NAMED)


@pytest.mark.long
@pytest.mark.parametrize("cancels", [False, True], ids=["stopped", "cancelled"])
async def test_waiting_subagent_is_stopped_with_its_command(stack: Stack, cancels: bool) -> None:
    client = await front(stack)
    session = await client.new(stack.work)
    agent = {"description": "look", "subagent_type": "claude", "run_in_background": True}
    given = tool("Agent", **agent, prompt=script("background sleep 1000", "text I wait."))
    said = ("text It looks.", "stop end_turn", "text It waits.", "stop end_turn")
    await client.prompt(session, script(given, *said))
    await client.until(lambda: "It waits." in client.text(session))
    ids = calls(client, session)
    outer = ids["Agent: look (claude)"]
    [inner] = (ids[title] for title in ids if title.startswith("claude: "))
    details = await client.call("_pykoclaw.dev/sessions/show", session=session)
    assert {outer, inner} <= {one["id"] for one in details["running"]}
    assert [bool(one["prompt"]) for one in details["turns"]] == [False, True]
    assert details["worker"]["state"] in ("background", "working")  # Claude's turn may not be over
    [listed] = (await client.call("_pykoclaw.dev/sessions/list"))["sessions"]
    assert listed["busy"] != listed["background"]
    if cancels:
        client.cancel(session)
    else:
        await client.call("_pykoclaw.dev/toolcalls/stop", session=session, toolCallId=outer)
    # As Claude's own turn has ended, or not yet
    await until_shown(client, session, outer, "Stopped by the user." if not cancels else "Stopped")
    await until_shown(client, session, inner, "It was stopped.")
    ended = [shown(client.of(session), one)["status"] for one in (outer, inner)]
    assert ended == ["failed", "failed"]
    assert (await client.prompt(session, text("Go on.")))["stopReason"] == "end_turn"


@pytest.mark.long
@pytest.mark.parametrize("waits", [False, True], ids=["ended", "running"])
async def test_message_to_subagent_is_call_with_answer(stack: Stack, waits: bool) -> None:
    """A message to one that runs, and calls no more tools, is handed to it when it has ended."""
    client = await begin(stack)
    session = await client.new(stack.work)
    first = script(*(["hang 4s"] if waits else []), "text First.")
    more = script("text Again.", "bash echo two", "text Second.")
    agent = tool("Agent", description="look", name="looker", prompt=first, subagent_type="claude")
    sent = tool("SendMessage", to="looker", summary="more", message=more)
    before = [] if waits else ["text It looks.", "stop end_turn", "text Known."]
    said = ("text Sent.", "stop end_turn", "text More.", "stop end_turn", "text Even more.")
    await client.prompt(session, script(agent, *before, sent, *said))
    await client.until(lambda: client.text(session).count("agent “look” has ended.") == 2)
    ids = calls(client, session)
    call = ids["Message to the agent: look" if waits else "Message to looker: more"]
    ended = shown(client.of(session), call)
    assert ended["status"] == "completed"
    assert words(ended).startswith("Again.\nSecond.\n")
    [inner] = (ids[title] for title in ids if "echo two" in title)
    assert shown(client.of(session), inner)["status"] == "completed"
    assert "First." in words(shown(client.of(session), ids["Agent: look (claude)"]))
    await seen_again(stack, client, session, **NAMED)


@pytest.mark.long
async def test_message_that_reaches_no_subagent_has_failed(stack: Stack) -> None:
    """One of Claude's, and one of a subagent's."""
    client = await begin(stack)
    session = await client.new(stack.work)
    sent = tool("SendMessage", to="nobody", summary="hurry", message="Please hurry.")
    agent = {"description": "look", "subagent_type": "claude", "run_in_background": False}
    given = tool("Agent", **agent, prompt=script(sent, "text Looked."))
    await client.prompt(session, script(sent, given, "text Done."))
    ids = calls(client, session)
    for title in ("Message to nobody: hurry", "claude: Message to nobody: hurry"):
        ended = shown(client.of(session), ids[title])
        assert ended["status"] == "failed"
        assert "No agent named 'nobody' is reachable" in words(ended)
        assert "success" not in words(ended)
    await seen_again(stack, client, session, **NAMED)


@pytest.mark.long
async def test_cancel_stops_subagents_whose_prompt_was_answered(stack: Stack) -> None:
    """Commands in the background go on, as after the cancel of a turn."""
    client = await begin(stack)
    session = await client.new(stack.work)
    gate = stack.work / "gate"
    agents = [
        tool("Agent", description=name, prompt=script(f"bash {command}", "text Done."))
        for name in ("one", "two")
        for command in (
            f"touch {name}.begun; while [ -d gate ]; do sleep 0.05; done; touch {name}",
        )
    ]
    command = {"command": waiting(gate), "description": "Wait", "run_in_background": True}
    await client.prompt(
        session,
        script(*agents, tool("Bash", **command), "text They run.", "stop end_turn", "text I know."),
    )
    ids = calls(client, session)
    first, second = ids["Agent: one"], ids["Agent: two"]
    third = next(ids[title] for title in ids if title.startswith("Wait: "))
    await client.until(lambda: len(list(stack.work.glob("*.begun"))) == 2)
    client.cancel(session)
    for call in (first, second):
        await until_shown(client, session, call, "Stopped by the user.")
        assert shown(client.of(session), call)["status"] == "failed"
    inner = [
        shown(client.of(session), one)
        for one in calls(client, session).values()
        if one not in (first, second, third)
    ]
    assert [one["status"] for one in inner] == ["failed", "failed"]
    assert all(words(one).endswith(AGENT_ENDED) for one in inner)
    assert shown(client.of(session), third)["status"] == "in_progress"
    await eventually(lambda: not stack.find("one.begun") and not stack.find("two.begun"))
    gate.rmdir()
    await client.until(lambda: shown(client.of(session), third)["status"] == "completed")
    await client.until(lambda: "I know." in client.text(session))
    told = client.text(session).removeprefix("They run.\n\n> The background command `")
    assert told.partition("I know.")[0].count("\n\n") == 1
    assert (await client.prompt(session, script("text Go on.")))["stopReason"] == "end_turn"
    assert client.text(session).endswith("Go on.")
    assert not (stack.work / "one").exists()
    assert not (stack.work / "two").exists()
    await seen_again(stack, client, session, **NAMED)


@pytest.mark.long
async def test_call_of_command_ended_with_session_says_so(stack: Stack) -> None:
    client = await begin(stack)
    session = await client.new(stack.work)
    command = {"command": waiting(stack.work / "gate"), "run_in_background": True}
    await client.prompt(session, script(tool("Bash", **command), "text It runs."))
    (call,) = calls(client, session).values()
    await client.call("session/close", sessionId=session)
    await until_shown(client, session, call, "Cut off before its end. The session was closed.")
    assert shown(client.of(session), call)["status"] == "failed"


@pytest.mark.long
async def test_imported_sessions_subagents_are_shown_as_live(stack: Stack) -> None:
    """One that was waited for, and one in the background."""
    client = await begin(stack)
    session = await client.new(stack.work)
    steps = ("thinking Hm.", "text First.", "bash echo one", "bash false", "text I looked.")
    waited = {"subagent_type": "claude", "run_in_background": False}
    look = tool("Agent", description="look", prompt=f"[[script {' ;; '.join(steps)}]]", **waited)
    late = "[[script text Second. ;; bash echo two ;; text I looked again.]]"
    later = tool("Agent", description="later", subagent_type="claude", prompt=late)
    ends = ("text Done.", "stop end_turn", "text I am told.")
    await client.prompt(session, script(look, later, *ends))
    await client.until(lambda: "I am told." in client.text(session))
    live = {one["toolCallId"]: one for one in seen(client.of(session)) if "toolCallId" in one}
    assert len(live) == 5
    await client.close()
    again = await stack.spawn(PYKOCLAW_DATA=str(stack.root / "elsewhere"))
    await again.initialize(**NAMED)
    await again.load(session, stack.work)
    shown = {one["toolCallId"]: one for one in seen(again.of(session)) if "toolCallId" in one}
    assert shown == live


@pytest.mark.long
async def test_hidden_thoughts_of_subagents_reach_no_client(stack: Stack) -> None:
    """Live, in a replay, and in imported turns."""
    client = await stack.spawn(PYKOCLAW_THINKING="hide")
    await client.initialize(**NAMED)
    session = await client.new(stack.work)
    steps = ("thinking So it is.", "text First.", "bash echo one", "text I looked.")
    waited = {"subagent_type": "claude", "run_in_background": False}
    look = tool("Agent", description="look", prompt=f"[[script {' ;; '.join(steps)}]]", **waited)
    await client.prompt(session, script(look, "text Done."))
    assert any("> So it is." in str(row) for row in stack.rows("SELECT payload FROM acp_log"))
    followers = [client]
    for data in (stack.data, stack.root / "elsewhere"):
        await followers[-1].close()
        again = await stack.spawn(PYKOCLAW_THINKING="hide", PYKOCLAW_DATA=str(data))
        await again.initialize(**NAMED)
        await again.load(session, stack.work)
        followers.append(again)
    for one in followers:
        told = json.dumps([update for update in one.of(session) if "toolCallId" in update])
        assert "> So it is." not in told
        assert "I looked." in told
