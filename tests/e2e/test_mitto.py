"""Everything that makes Mitto misbehave, and everything that makes it shine, with its test double (tests/e2e/mitto).

What an agent can do that makes Mitto misbehave:

1. it fails, or is slow, to give back a session        test_1_*
2. it does not start while its backend is away         test_2_*
3. commands too early                                  test_3_*
4. config options only, or of an unknown type          test_4_*
5. stderr words, long lines, pipes that stay open      test_5_*
6. a late `cancelled`, a refused second prompt         test_6_*
7. `$/cancel_request` ignored                          test_7_*
8. two questions at a time                             test_8_*
9. "always" before "once"                              test_9_*
10. titles that come later                             test_10_*
11. `413` in an error                                  test_11_*
12. an early end that only the stop reason tells       test_12_*
13. auxiliary sessions that are kept                   test_13_*
14. mode and model wait for the turn                   test_14_*
15. wrong JSON types                                   test_15_*
16. the process's own directory and PATH               test_16_*
17. MCP servers of the user's own settings             test_17_*
18. a fault of Mitto's own, when sessions are torn
    down while the agent starts slowly                 test_18_*

What makes it shine:

a. any session answered in a moment, without a backend test_a_*
b. a front that starts, waits and reconnects           test_b_*
c. its SIGKILL is survived                             test_c_*
d. cancel in milliseconds, prompts queue               test_6_*, test_7_*
e. its wrappings are understood                        test_e_*
f. modes and models                                    test_f_*, test_4_*, test_14_*
g. tool calls                                          test_g_*, test_10_*
h. commands, usage, plan, why a turn ended             test_h_*, test_3_*, test_12_*
i. auxiliary sessions are ephemeral                    test_13_*
j. several fronts at once                              test_j_*
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from pykoclaw_acp.front.call import call
from tests.e2e.harness import RpcError, ServerGone, Stack, text
from tests.e2e.harness.stack import PROGRAM
from tests.e2e.mitto import Conversation, Mitto, Overdue, Wire, mitto, reading, wrapping
from tests.e2e.mitto import wire as wires
from tests.waiting import eventually

AT_ONCE: Final = 1.0  # s; Mitto waits for 8 to 30
ENDLESS: Final = "[[script repeat 3000x10ms tick{n}. ]]"


def play(*steps: str) -> str:
    """A prompt in one line, since Mitto cuts and repeats what was said."""
    return f"[[script {' ;; '.join(steps)} ]]"


def listed(stack: Stack, *, everything: bool = False) -> list[str]:
    """Ids of the sessions that `pykoclaw-acp sessions` shows."""
    answer = call(stack.places, "_pykoclaw.dev/sessions/list", {"all": everything})
    return [session["id"] for session in answer["sessions"]]


def states(stack: Stack, conversation: Conversation) -> list[str]:
    """Of the conversation's turns."""
    query = "SELECT state FROM acp_turns WHERE acp_session_id = ? ORDER BY position"
    return [row["state"] for row in stack.rows(query, conversation.session)]


def claudes(stack: Stack) -> list[str | None]:
    """The sessions that have a process of Claude's."""
    return [one.session for one in stack.processes() if one.is_claude]


def fold(wire: Wire, session: str | None) -> str:
    """All text that came for the session."""
    return wire.text(session or "")


def place(wire: Wire, wanted: dict[str, Any]) -> int:
    """Where the answer with these fields stands among all frames."""
    return next(at for at, frame in enumerate(wire.received) if wanted.items() <= frame.items())


def ticks(first: int, last: int) -> str:
    """What the scripted model says of `repeat … tick{n}.`."""
    return " ".join(f"tick{number}." for number in range(first, last + 1))


def descriptors(pid: int) -> set[str]:
    """What the process has open; nothing of one that is gone."""
    found = set()
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found.add(os.readlink(entry.path))
    return found


@pytest.fixture
def web(stack: Stack) -> Mitto:
    return Mitto(stack)


def wire_of(web: Mitto) -> Wire:
    assert web.wire is not None
    return web.wire


# --- 1 to 5 ----------------------------------------------------------------------------------------------------------


async def test_1_sessions_are_found_again_while_the_store_is_written(stack: Stack, web: Mitto) -> None:
    """Resume, four session/new and prompts come in the same moment."""
    old, others = Conversation("old"), [Conversation(f"other {number}") for number in range(3)]
    await web.open(old, *others)
    await web.prompt(old, play("text Remember this."))
    writer = await stack.front()
    written = writer.prompting(await writer.new(stack.work), play("repeat 6000x1ms word{n}. "))
    for _ in range(3):
        await web.shutdown()
        prompts = [web.prompt(other, play("text Me too.")) for other in others]
        await asyncio.gather(web.open(old, *others), *prompts)
    assert (await writer.answer(written))["stopReason"] == "end_turn"
    assert old.methods == ["new", *["resume"] * 3]
    for conversation in (old, *others):
        assert set(conversation.methods[1:]) <= {"resume"}
        assert conversation.lost == []
    await web.prompt(old, play("text It goes on."))
    assert "Remember this." in json.dumps(stack.asked()[-1]["messages"])


async def test_2_a_daemon_that_died_costs_no_conversation(stack: Stack, web: Mitto) -> None:
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("text Before."))
    for _ in range(3):  # the third failure in a row would archive it
        await web.shutdown()
        await stack.kill_everything()
        await web.open(conversation)
    assert conversation.methods == ["new", *["resume"] * 3]
    assert (conversation.start_failures, conversation.archived) == (0, False)
    await web.prompt(conversation, play("text After."))
    assert conversation.text.endswith("After.")


@pytest.mark.long
async def test_2_claude_that_cannot_start_costs_no_conversation(stack: Stack, web: Mitto) -> None:
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("text Before."))
    away = Mitto(stack, PYKOCLAW_CLI_PATH="/bin/false")
    for _ in range(3):
        await (away.shutdown() if away.wire else web.shutdown())
        await stack.kill_everything()
        await away.open(conversation)
    assert await away.prompt(conversation, play("text Never said.")) is None
    assert conversation.errors[-1].startswith("Prompt failed: ")
    await away.shutdown()
    await stack.kill_everything()
    await web.open(conversation)
    assert set(conversation.methods[1:]) == {"resume"}
    assert conversation.start_failures == 0
    assert await web.prompt(conversation, play("text After.")) == "end_turn"


@pytest.mark.long
async def test_2_a_front_whose_daemon_is_late_starts_all_the_same(stack: Stack, web: Mitto) -> None:
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("text Before."))
    await web.shutdown()
    await stack.end_daemon()
    holder = await stack.start()  # has the data directory: no daemon can have it
    opening = asyncio.ensure_future(web.open(conversation))
    await eventually(lambda: web.wire)
    assert not opening.done()
    await holder.close()
    await opening
    assert conversation.methods == ["new", "resume"]
    assert conversation.start_failures == 0


@pytest.mark.parametrize("method", ["new", "resume", pytest.param("load", marks=pytest.mark.long)])
async def test_3_commands_come_when_mitto_can_take_them(stack: Stack, web: Mitto, method: str) -> None:
    """Not before the answer, and not in the 20 ms after it."""
    first = Conversation()
    await web.open(first)
    await web.prompt(first, play("text The first worker says which commands there are."))
    assert "compact" in first.commands
    await web.shutdown()
    web.methods = [method]
    conversation = Conversation() if method == "new" else first
    conversation.commands = []
    await web.open(conversation)
    await wire_of(web).until(lambda: conversation.commands)
    assert conversation.methods[-1] == method
    assert conversation.commands == sorted(conversation.commands)
    assert "compact" in conversation.commands
    assert claudes(stack) in ([], [first.session])  # that of the first turn


async def test_4_both_selectors_are_there(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    assert conversation.modes is not None
    assert conversation.models is not None
    modes = {mode["id"] for mode in conversation.modes["availableModes"]}
    models = {model["modelId"] for model in conversation.models["availableModels"]}
    assert {"default", "acceptEdits", "plan"} <= modes
    assert len(models) > 1
    assert conversation.modes["currentModeId"] in modes
    assert conversation.models["currentModelId"] in models
    assert all(model["name"] for model in conversation.models["availableModels"])


async def test_5_stderr_is_one_line_whatever_happens(stack: Stack, web: Mitto) -> None:
    conversation = Conversation()
    await web.open(conversation)
    words = "; ".join(reading.ALARMS)
    await web.prompt(conversation, play(f"bash echo '{words}' >&2", f"text {words}"))
    turn = asyncio.ensure_future(web.prompt(conversation, ENDLESS))
    wire = wire_of(web)
    await wire.until(lambda: "tick9." in fold(wire, conversation.session))
    pid = stack.daemon_pid()
    assert pid is not None
    os.kill(pid, 9)
    await wire.until(lambda: stack.daemon_pid() not in (None, pid))
    web.stop(conversation)
    assert await turn == "cancelled"
    assert wire.alarms == []
    assert len(wire.stderr.splitlines()) == 1
    assert wire.noise == []


@pytest.mark.long
async def test_5_a_start_that_fails_is_no_permanent_one_by_its_words(stack: Stack) -> None:
    """A broken setting is final for us; nothing that Mitto takes for a missing program is said about it."""
    web = Mitto(stack, PYKOCLAW_IDLE_TIMEOUT="soon")
    with pytest.raises((RpcError, ServerGone)):
        await web.open(Conversation())
    (wire,) = [one for one in stack.clients if isinstance(one, Wire)]
    assert await wire.gone() == 78
    assert "PYKOCLAW_IDLE_TIMEOUT" in wire.stderr
    assert not [word for word in reading.HOPELESS if word in wire.stderr.lower()]
    assert wire.alarms == []


@pytest.mark.long
async def test_5_no_line_is_too_long(web: Mitto) -> None:
    """A file of control characters, each of which takes six bytes in JSON, and its replay."""
    conversation = Conversation()
    await web.open(conversation)
    file = {"type": "text", "text": "=== File: log.bin ===\n" + "\x01" * 3_000_000}
    await web.prompt(conversation, play("text Read."), file)  # more than a model can take; the log has it
    await web.shutdown()
    web.methods = ["load"]
    await web.open(conversation)
    assert conversation.methods == ["new", "load"]
    assert len(wire_of(web).text(conversation.session or "", "user_message_chunk")) > 3_000_000


async def test_5_nobody_holds_the_pipes_of_a_killed_front(shared: Stack) -> None:
    """Mitto notices the end by the pipe, not by the process; daemon, workers and tools live on."""
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    turn = asyncio.ensure_future(web.prompt(conversation, play("bash touch begun; sleep 300", "text Never said.")))
    await eventually(lambda: shared.find("sleep 300"))
    wire = wire_of(web)
    pipes = {os.readlink(f"/proc/{wire.process.pid}/fd/{number}") for number in range(3)}
    for process in shared.processes():
        if process.pid != wire.process.pid:
            assert not pipes & descriptors(process.pid), process.command
    turn.cancel()
    began = time.monotonic()
    await web.shutdown()
    assert time.monotonic() - began < AT_ONCE
    assert shared.find("sleep 300")
    await web.open(conversation)
    web.stop(conversation)
    await eventually(lambda: not shared.find("sleep 300"))


# --- 6 to 12 ---------------------------------------------------------------------------------------------------------


async def test_6_a_prompt_right_after_stop_is_not_ended_by_the_first_ones_answer(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    wire = wire_of(web)
    first = asyncio.ensure_future(web.prompt(conversation, ENDLESS))
    await wire.until(lambda: "tick9." in fold(wire, conversation.session))
    began = time.monotonic()
    web.stop(conversation)
    second = asyncio.ensure_future(web.prompt(conversation, play("text The second.")))
    assert await first == "cancelled"
    assert time.monotonic() - began < AT_ONCE
    assert await second == "end_turn"
    prompts = [message["id"] for message in wire.sent if message.get("method") == "session/prompt"]
    ended = place(wire, {"id": prompts[0]})
    after = json.dumps(wire.received[ended:])
    assert "The second." in after
    assert "tick" not in after
    assert "The second." not in json.dumps(wire.received[:ended])


@pytest.mark.long
async def test_6_a_second_prompt_is_queued(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    prompts = [web.prompt(conversation, play(f"words 5ms The {name} answer.")) for name in ("first", "second")]
    assert await asyncio.gather(*prompts) == ["end_turn", "end_turn"]
    assert conversation.text.index("The first answer.") < conversation.text.index("The second answer.")


@pytest.mark.long
async def test_7_a_new_session_that_was_given_up_is_an_orphan_that_nobody_sees(stack: Stack, web: Mitto) -> None:
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("text A real conversation."))
    wire = wire_of(web)
    given_up, answer = wire.request("session/new", cwd=str(stack.work), mcpServers=[])
    wire.send(given_up, {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": given_up["id"]}})
    await asyncio.wait([answer], timeout=wires.NEW)
    error = answer.exception()
    if error is None:  # it was there before it could be given up
        assert answer.result()["sessionId"] not in listed(stack)
    else:
        assert isinstance(error, RpcError)
        assert error.code == -32800
    assert listed(stack) == [conversation.session]
    assert wire.unplaced == []


@pytest.mark.long
async def test_7_an_overdue_call_is_withdrawn_after_the_next_one(stack: Stack, web: Mitto) -> None:
    """A daemon that hangs for longer than Mitto waits."""
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("text A real conversation."))
    wire, pid = wire_of(web), stack.daemon_pid()
    assert pid is not None
    os.kill(pid, 19)
    try:
        with pytest.raises(Overdue):
            await wire.timed(0.2, "session/resume", sessionId=conversation.session, cwd=str(stack.work))
        with pytest.raises(Overdue):
            await wire.timed(0.2, "session/new", mcpServers=[], cwd=str(stack.work))
    finally:
        os.kill(pid, 18)
    made = await wire.timed(25, "session/new", mcpServers=[], cwd=str(stack.work))
    cancelled = [message["params"]["requestId"] for message in wire.sent if message.get("method") == "$/cancel_request"]
    assert len(cancelled) == 2
    assert listed(stack) == [conversation.session]
    assert await web.prompt(conversation, play("text It goes on.")) == "end_turn"
    assert made["sessionId"] not in listed(stack)
    assert wire.unplaced == []


@pytest.mark.long
async def test_7_a_prompt_that_is_withdrawn_and_cancelled_is_answered_once(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    wire = wire_of(web)
    turn = asyncio.ensure_future(web.prompt(conversation, ENDLESS))
    await wire.until(lambda: "tick3." in fold(wire, conversation.session))
    number = next(message["id"] for message in wire.sent if message.get("method") == "session/prompt")
    web.stop(conversation)
    wire.notify("$/cancel_request", requestId=number)
    assert await turn == "cancelled"


async def test_8_questions_of_a_session_come_one_at_a_time(shared: Stack) -> None:
    web = Mitto(shared)
    web.approves = False
    conversation = Conversation()
    await web.open(conversation)
    files = [shared.root / name for name in ("one", "two", "three")]  # outside of the session's directory
    for file in files:
        file.write_text("secret\n")
    reads = [f"{'& ' if at else ''}read {file}" for at, file in enumerate(files)]
    turn = asyncio.ensure_future(web.prompt(conversation, play(*reads, "text Done.")))
    wire = wire_of(web)
    asked = "SELECT 1 FROM acp_permissions WHERE acp_session_id = ?"
    await wire.until(lambda: len(shared.rows(asked, conversation.session)) == len(files))
    ids = []
    for number in range(1, len(files) + 1):
        question = await wire.until(lambda: web.question(conversation))
        assert question is not None
        assert len(wire.questions) == number
        ids.append(question["params"]["toolCall"]["toolCallId"])
        web.answer(conversation, "allow_once")
    assert await turn == "end_turn"
    assert web.replaced == 0
    assert sorted(ids) == sorted(conversation.tools)
    assert [statuses[-1] for statuses in conversation.tools.values()] == ["completed"] * len(files)


@pytest.mark.long
async def test_8_nobody_at_the_screen_is_a_no(shared: Stack) -> None:
    web = Mitto(shared)
    web.approves = web.browser = False
    conversation = Conversation()
    await web.open(conversation)
    assert await web.prompt(conversation, play("bash mkdir made", "text So be it.")) == "end_turn"
    assert not (shared.work / "made").exists()
    assert [statuses[-1] for statuses in conversation.tools.values()] == ["failed"]


@pytest.mark.long
async def test_8_stop_while_a_question_is_open(shared: Stack) -> None:
    web = Mitto(shared)
    web.approves = False
    conversation = Conversation()
    await web.open(conversation)
    turn = asyncio.ensure_future(web.prompt(conversation, play("bash mkdir made", "text Never said.")))
    await wire_of(web).until(lambda: web.question(conversation))
    web.stop(conversation)
    assert await turn == "cancelled"
    assert not (shared.work / "made").exists()


async def test_9_approving_by_itself_mitto_never_approves_for_always(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("bash mkdir one", "bash mkdir two", "text Done."))
    offered = [[option["kind"] for option in question["params"]["options"]] for question in wire_of(web).questions]
    assert len(offered) == 2
    assert all("allow_always" in kinds for kinds in offered)
    rows = shared.rows("SELECT option_id FROM acp_permissions WHERE acp_session_id = ?", conversation.session)
    assert [row["option_id"] for row in rows] == ["allow_once", "allow_once"]


@pytest.mark.long
async def test_10_what_mitto_shows_of_a_tool_is_final_from_the_start(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    (shared.work / "a.txt").write_text("old\n")
    steps = ("bash ls", "read a.txt", "edit a.txt <<< old => new", "bash false", "text Done.")
    await web.prompt(conversation, play(*steps))
    titles = [title for title, *_ in conversation.tools.values()]
    assert titles == ["Bash: ls", "Read a.txt", "Edit a.txt", "Bash: false"]
    assert [f"[{title}]" for title in titles] == [line for line in conversation.screen if line.startswith("[")]
    for update in wire_of(web).of(conversation.session or "", "tool_call_update"):
        assert "title" not in update


@pytest.mark.parametrize(
    ("fault", "read"),
    [
        ("error 400 port 8413 of request req_413ab is bad", "Prompt failed: "),
        ("error 401 key 4130 is bad", "Prompt failed: "),
        ("error 400 prompt is too long: 210000 tokens > 200000 maximum", reading.TOO_LARGE),
    ],
)
@pytest.mark.long
async def test_11_no_error_is_taken_for_another_by_its_digits(shared: Stack, fault: str, read: str) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    assert await web.prompt(conversation, play(fault)) is None
    assert conversation.errors[0].startswith(read)


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        (("text Half of", "stop refusal") * 4, "refuse"),
        (("text Half of", "stop max_tokens") * 9, "longest"),
    ],
    ids=["refusal", "max_tokens"],
)
@pytest.mark.long
async def test_12_an_early_end_is_said_in_words(shared: Stack, steps: tuple[str, ...], words: str) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    reason = await web.prompt(conversation, play(*steps))
    assert reason != "end_turn"
    assert words in conversation.text


# --- 13 to 18 --------------------------------------------------------------------------------------------------------


@pytest.mark.long
async def test_13_sessions_of_its_own_are_not_listed_and_have_no_process(stack: Stack, web: Mitto) -> None:
    conversation = Conversation()
    made: list[str] = []
    for _ in range(3):
        await web.open(conversation)
        made += web.auxiliary
        assert claudes(stack) == []
        await web.shutdown()
    assert len(set(made)) == 12
    await web.open(conversation)
    await web.prompt(conversation, play("text A real conversation."))
    for session, beginning in zip(made, wrapping.AUXILIARY, strict=False):
        await wire_of(web).timed(10, "session/resume", sessionId=session, cwd=str(stack.work))
        assert await web.help_itself(session, f"{beginning} {text('A title.')}") == "end_turn"
    assert listed(stack) == [conversation.session]
    await eventually(lambda: claudes(stack) == [conversation.session])


async def test_13_sessions_of_its_own_are_pruned_and_can_be_resumed(stack: Stack) -> None:
    web, conversation = Mitto(stack, PYKOCLAW_PRUNE_AFTER="0.5"), Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("text A real conversation."))
    helper, unused = web.auxiliary[:2]
    await web.help_itself(helper, f"{wrapping.TITLE} {text('A title.')}")
    await web.shutdown()
    pruned = "SELECT acp_session_id AS id FROM acp_sessions WHERE pruned_at IS NOT NULL"
    await eventually(lambda: {helper, unused} <= {row["id"] for row in stack.rows(pruned)})
    assert stack.log(helper) == []
    assert conversation.session not in {row["id"] for row in stack.rows(pruned)}
    await web.open(conversation)
    for session in (helper, unused):
        await wire_of(web).timed(10, "session/resume", sessionId=session, cwd=str(stack.work))
    await web.prompt(conversation, play("text It goes on."))
    assert "A real conversation." in json.dumps(stack.asked()[-1]["messages"])


@pytest.mark.long
async def test_13_the_user_does_not_wait_behind_them(stack: Stack, web: Mitto) -> None:
    """Five prompts came within 10 ms for one of the user's."""
    conversation = Conversation()
    await web.open(conversation)
    helpers = [web.help_itself(session, f"{wrapping.FOLLOW_UP} {text('None.')}") for session in web.auxiliary]
    user = asyncio.ensure_future(web.prompt(conversation, play("text For the user.")))
    assert await asyncio.gather(*helpers) == ["end_turn"] * mitto.AUXILIARY
    assert await user == "end_turn"
    assert listed(stack) == [conversation.session]


async def test_14_mode_and_model_are_set_during_a_turn(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    wire = wire_of(web)
    turn = asyncio.ensure_future(web.prompt(conversation, ENDLESS))
    await wire.until(lambda: "tick9." in fold(wire, conversation.session))
    began = time.monotonic()
    await wire.timed(AT_ONCE, "session/set_model", sessionId=conversation.session, modelId="haiku")
    await wire.timed(AT_ONCE, "session/set_mode", sessionId=conversation.session, modeId="acceptEdits")
    assert time.monotonic() - began < AT_ONCE
    assert not turn.done()
    web.stop(conversation)
    assert await turn == "cancelled"
    await web.prompt(conversation, play("write made.txt <<< without a question", "text Done."))
    assert wire.questions == []
    await web.shutdown()
    await web.open(conversation)
    assert conversation.modes is not None
    assert conversation.models is not None
    assert (conversation.modes["currentModeId"], conversation.models["currentModelId"]) == ("acceptEdits", "haiku")


def _values(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield f"{path}.{key}", one
            yield from _values(one, f"{path}.{key}")
    elif isinstance(value, list):
        for one in value:
            yield from _values(one, path)


@pytest.mark.long
async def test_15_json_types_are_those_that_go_reads(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("bash ls", "text Done."))
    wire = wire_of(web)
    asked = {message["id"] for message in wire.sent if "method" in message and "id" in message}
    answered = {frame["id"] for frame in wire.received if "method" not in frame}
    assert answered == asked
    assert all(isinstance(number, int) for number in answered)
    for path, value in itertools.chain.from_iterable(map(_values, wire.received)):
        assert not isinstance(value, float) or path.endswith(".cost.amount"), path
        if path.endswith("._meta"):
            assert isinstance(value, dict), path
    (usage,) = [frame["result"]["usage"] for frame in wire.received if "usage" in frame.get("result", {})]
    assert usage["totalTokens"] == usage["inputTokens"] + usage["outputTokens"] + usage["cachedWriteTokens"]


@pytest.mark.long
async def test_15_tokens_are_those_of_the_turn(shared: Stack) -> None:
    """Mitto adds them up."""
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    for _ in range(3):
        await web.prompt(conversation, play("text Yes."))
    totals = [
        frame["result"]["usage"]["totalTokens"] for frame in wire_of(web).received if "usage" in frame.get("result", {})
    ]
    assert len(totals) == 3
    assert max(totals) < 2 * min(totals)


@pytest.mark.long
async def test_16_a_session_runs_in_its_own_directory_whatever_the_client_has(stack: Stack) -> None:
    web = Mitto(stack, PATH="/usr/bin:/bin:/usr/sbin:/sbin", MITTO_WORKING_DIR="/", MITTO_ACP_SERVER="x")  # launchd's
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("bash pwd > where.txt", "text Done."))
    assert (stack.work / "where.txt").read_text().strip() == str(stack.work)


@pytest.mark.long
async def test_17_mcp_servers_of_the_users_settings_work_without_any_in_session_new(stack: Stack, web: Mitto) -> None:
    install_mitto_tools(stack)
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("tool mcp__mitto__mitto_get_current {}", "text Done."))
    (shown,) = conversation.tools.values()
    assert shown[-1] == "completed"


@pytest.mark.long
async def test_18_a_front_that_is_killed_while_it_starts_leaves_nothing_behind(stack: Stack, web: Mitto) -> None:
    for _ in range(4):
        wire = await stack.connect(Wire, *PROGRAM)
        wire.begin("initialize", **mitto.INITIALIZE)
        await wire.kill_group()
    conversation = Conversation()
    await web.open(conversation)
    assert await web.prompt(conversation, play("text Well.")) == "end_turn"
    assert stack.daemon_pid() is not None


# --- a to j ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["resume", pytest.param("load", marks=pytest.mark.long)])
async def test_a_any_session_is_given_back_at_once_and_without_a_process(stack: Stack, web: Mitto, method: str) -> None:
    conversation = Conversation()
    await web.open(conversation)
    unused = web.auxiliary[0]
    await web.prompt(conversation, play("text Remember this."))
    await web.shutdown()
    await stack.kill_everything()
    await stack.daemon()
    await web.open()
    for session in (unused, conversation.session):
        params: dict[str, Any] = {"cwd": str(stack.work), "sessionId": session}
        if method == "load":
            params["mcpServers"] = []
        await wire_of(web).timed(AT_ONCE, f"session/{method}", **params)
    assert claudes(stack) == []


async def test_b_a_front_starts_the_daemon_and_outlives_it(stack: Stack, web: Mitto) -> None:
    conversation = Conversation()
    await web.open(conversation)
    wire, pid = wire_of(web), stack.daemon_pid()
    assert pid is not None
    assert wire.process.pid not in (pid, os.getsid(pid), os.getpgid(pid))
    assert wire.stderr  # one line, early: that quiets a watchdog of Mitto's
    turn = asyncio.ensure_future(web.prompt(conversation, play("repeat 300x10ms tick{n}. ", "text The end.")))
    await wire.until(lambda: "tick9." in fold(wire, conversation.session))
    os.kill(pid, 9)
    assert await turn == "end_turn"
    assert wire is web.wire
    assert fold(wire, conversation.session) == ticks(1, 300) + "\nThe end."
    assert len(wire.stderr.splitlines()) == 1


async def test_c_a_turn_goes_on_and_what_was_missed_is_shown(shared: Stack) -> None:
    """The user closes Mitto in the middle of a turn, and comes back when it is over."""
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    turn = asyncio.ensure_future(web.prompt(conversation, play("repeat 100x10ms tick{n}. ", "text The end.")))
    wire = wire_of(web)
    await wire.until(lambda: "tick9." in fold(wire, conversation.session))
    turn.cancel()
    await web.shutdown()
    await eventually(lambda: states(shared, conversation) == ["done"])
    await web.open(conversation)
    # It comes when the answer of resume was dealt with, and is shown although no turn ends here: its line does.
    await wire_of(web).until(lambda: "The end." in conversation.text)
    for number in range(1, 101):
        assert f"tick{number}." in conversation.text
    assert conversation.methods == ["new", "resume"]


@pytest.mark.long
async def test_c_what_was_missed_of_a_turn_that_still_runs_goes_on(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    turn = asyncio.ensure_future(web.prompt(conversation, play("repeat 300x10ms tick{n}. ", "text The end.")))
    wire = wire_of(web)
    await wire.until(lambda: "tick9." in fold(wire, conversation.session))
    turn.cancel()
    await web.shutdown()
    await web.open(conversation)
    wire = wire_of(web)
    await wire.until(lambda: "The end." in conversation.text)
    missed = fold(wire, conversation.session).strip()
    first = int(missed.split(".")[0].removeprefix("tick"))
    assert missed == ticks(first, 300) + "\nThe end."
    assert ticks(1, first - 1) in conversation.text


@pytest.mark.parametrize(
    ("wrapped", "over"),
    [
        pytest.param(False, False, id="as it was, while it runs"),
        pytest.param(True, True, id="wrapped anew, after its end"),
        pytest.param(True, False, id="wrapped anew, while it runs", marks=pytest.mark.long),
        pytest.param(False, True, id="as it was, after its end", marks=pytest.mark.long),
    ],
)
async def test_c_the_prompt_that_mitto_sends_again_joins_its_turn(shared: Stack, wrapped: bool, over: bool) -> None:
    web = Mitto(shared)
    web.wraps_again = wrapped
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("text Before."))
    wire = wire_of(web)
    words = play("bash echo once >> made.txt", "repeat 100x10ms tick{n}. ", "text The end.")
    turn = asyncio.ensure_future(web.prompt(conversation, words))
    await wire.until(lambda: "tick9." in fold(wire, conversation.session))
    if over:
        os.kill(wire.process.pid, 19)  # so that it cannot see the end
        await eventually(lambda: states(shared, conversation) == ["done", "done"])
    wire.process.kill()
    assert await turn == "end_turn"
    assert web.wire is not wire
    assert mitto.RETRYING in conversation.text
    assert (shared.work / "made.txt").read_text() == "once\n"
    assert len(states(shared, conversation)) == 2
    assert "The end." in conversation.text
    for number in range(1, 101):
        assert f"tick{number}." in conversation.text
    # Said on purpose, the same words are a new prompt.
    assert await web.prompt(conversation, words) == "end_turn"
    assert (shared.work / "made.txt").read_text() == "once\nonce\n"


async def test_e_a_history_that_claude_remembers_is_not_told_again(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("text An earlier answer."))
    await web.shutdown()
    await web.open(conversation)
    await web.prompt(conversation, play("text A later answer."))
    sent = next(message for message in reversed(wire_of(web).sent) if message.get("method") == "session/prompt")
    assert "CONVERSATION HISTORY" in sent["params"]["prompt"][0]["text"]
    first, second = shared.asked()[-1]["user_texts"]
    assert "CONVERSATION HISTORY" not in second
    assert "[Session Context]" in first
    assert "[Session Context]" in second


@pytest.mark.long
async def test_e_the_log_and_the_title_have_the_users_own_words(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, "How many apples are there?")
    reader = await shared.front()
    await reader.load(conversation.session or "", shared.work)
    assert reader.text(conversation.session or "", "user_message_chunk") == "How many apples are there?"
    (row,) = shared.rows("SELECT title FROM acp_sessions WHERE acp_session_id = ?", conversation.session)
    assert row["title"] == "How many apples are there?"
    titles = wire_of(web).of(conversation.session or "", "session_info_update")
    assert [update["title"] for update in titles] == ["How many apples are there?"]


@pytest.mark.long
async def test_e_a_slash_command_in_a_wrapped_prompt_is_one(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    commands = shared.work / ".claude/commands"
    commands.mkdir(parents=True)
    (commands / "greet.md").write_text("Greet the user. [[script text Greetings. ]]")
    await web.open(conversation)
    assert await web.prompt(conversation, "/greet") == "end_turn"
    assert conversation.text == "Greetings."


@pytest.mark.long
async def test_f_the_mode_that_claude_leaves_is_told(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    wire = wire_of(web)
    assert conversation.modes is not None
    await wire.timed(AT_ONCE, "session/set_mode", sessionId=conversation.session, modeId="plan")
    await web.prompt(conversation, play('tool ExitPlanMode {"plan": "Do it."}', "text Now I work."))
    await wire.until(lambda: conversation.modes and conversation.modes["currentModeId"] == "default")


@pytest.mark.long
async def test_g_one_update_for_each_status_and_an_end_for_each_call(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("bash ls", "& bash false", "read nothing.txt", "text Done."))
    statuses = [list(history) for _, *history in conversation.tools.values()]
    assert [history[-1] for history in statuses] == ["completed", "failed", "failed"]
    for history in statuses:
        assert len(history) == len(set(history)), "the same status twice"


@pytest.mark.long
async def test_g_a_tool_of_mittos_is_shown_with_its_input_before_it_is_called(stack: Stack, web: Mitto) -> None:
    install_mitto_tools(stack)
    conversation = Conversation()
    await web.open(conversation)
    seen: list[tuple[dict[str, Any], bool]] = []

    def look(session: str, update: dict[str, Any]) -> None:
        if update["sessionUpdate"] == "tool_call":
            seen.append((update, (stack.work / "called").exists()))

    wire_of(web).show = look
    await web.prompt(conversation, play('tool mcp__mitto__mitto_get_current {"self_id": "@mitto:self"}', "text Done."))
    ((shown, called),) = seen
    assert "mitto_" in shown["title"]
    assert shown["rawInput"]["self_id"] == "@mitto:self"
    assert not called
    assert (stack.work / "called").exists()


@pytest.mark.long
async def test_h_usage_and_commands_at_the_first_prompt(shared: Stack) -> None:
    web = Mitto(shared)
    conversation = Conversation()
    await web.open(conversation)
    await web.prompt(conversation, play("text Yes."))
    assert conversation.usage is not None
    used, size = conversation.usage
    assert 0 < used < size
    assert "compact" in conversation.commands


async def test_h_the_plan_is_kept_current(stack: Stack) -> None:
    web = Mitto(stack, PYKOCLAW_MODEL="claude-sonnet-4-6")  # newer models keep no list
    conversation = Conversation()
    await web.open(conversation)
    make = 'tool TaskCreate {"subject": "%s", "description": "%s", "activeForm": "%s"}'
    steps = (
        make % ("Look around", "Look", "Looking"),
        make % ("Write it down", "Write", "Writing"),
        'tool TaskUpdate {"taskId": "1", "status": "completed"}',
        'tool TaskUpdate {"taskId": "2", "status": "in_progress"}',
        "text Done.",
    )
    await web.prompt(conversation, play(*steps))
    assert [(entry["content"], entry["status"]) for entry in conversation.plan] == [
        ("Look around", "completed"),
        ("Write it down", "in_progress"),
    ]


async def test_j_several_mittos_on_one_daemon(shared: Stack) -> None:
    """Two workspaces with the same command: two fronts, the same request ids."""
    webs = [Mitto(shared) for _ in range(3)]
    conversations = [Conversation() for _ in webs]
    await asyncio.gather(*(web.open(one) for web, one in zip(webs, conversations, strict=True)))
    prompts = [
        web.prompt(one, play(f"words 5ms Answer number {number} of this Mitto."))
        for number, (web, one) in enumerate(zip(webs, conversations, strict=True))
    ]
    assert await asyncio.gather(*prompts) == ["end_turn"] * len(webs)
    for number, one in enumerate(conversations):
        assert one.text == f"Answer number {number} of this Mitto."
    assert len({one.session for one in conversations}) == len(webs)
    assert [list(map(str, wire_of(web).updates)) for web in webs] == [[one.session] for one in conversations]


def install_mitto_tools(stack: Stack) -> None:
    """As Mitto's installer does: its MCP server in the workspace's own settings, its tools allowed."""
    script = stack.root / "mitto_mcp.py"
    script.write_text(
        (Path(__file__).parent / "mcp_server.py")
        .read_text()
        .replace("whisper", "mitto_get_current")
        .replace(
            '    if method == "tools/call":\n', '    if method == "tools/call":\n        open("called", "w").close()\n'
        )
    )
    server = {"command": sys.executable, "args": [str(script)], "env": {"SECRET": "x"}}
    (stack.work / ".mcp.json").write_text(json.dumps({"mcpServers": {"mitto": server}}))
    settings = stack.work / ".claude/settings.json"
    settings.parent.mkdir(exist_ok=True)
    settings.write_text(json.dumps({"enableAllProjectMcpServers": True, "permissions": {"allow": ["mcp__mitto"]}}))
