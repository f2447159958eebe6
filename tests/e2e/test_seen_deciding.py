"""Plans, questions and task lists, from the real CLI to clients, and when they are opened again."""

from __future__ import annotations

import json
import re
import signal
from typing import Any

import pytest

from tests.e2e.commands import done
from tests.e2e.harness import Client, Stack, script
from tests.e2e.harness.client import selected
from tests.e2e.harness.seen import seen_again
from tests.waiting import eventually

PLAN = "# Cache the answers\\n\\n1. Write a test\\n2. Write the cache"
SHOWN = PLAN.replace("\\n", "\n")
ASKED = {
    "questions": [
        {
            "question": "Which colours?",
            "header": "Colours",
            "multiSelect": True,
            "options": [
                {"label": "Red", "description": "As a rose"},
                {"label": "Blue", "description": "As the sky"},
            ],
        },
        {
            "question": "Which size?",
            "header": "Size",
            "multiSelect": False,
            "options": [
                {"label": "Small", "description": ""},
                {"label": "Large", "description": ""},
            ],
        },
    ]
}


EDITOR = {"clientInfo": {"name": "an editor", "version": "1"}}
FORMS = {**EDITOR, "clientCapabilities": {"elicitation": {"form": {}}}}


async def editor(stack: Stack, params: dict[str, Any] = EDITOR) -> tuple[Client, str]:
    client = await stack.spawn()
    await client.initialize(**params)
    return client, await client.new(stack.work)


async def plan_file(stack: Stack, client: Client, session: str) -> str:
    """Let Claude plan; where it is told to write its plan."""
    await client.call("session/set_mode", sessionId=session, modeId="plan")
    await client.prompt(session, script("text I shall plan."))

    def look() -> list[str]:
        return re.findall(r'[^"\\ ]*/plans/[a-z-]+\.md', stack.transcript(session))

    return (await client.until(look))[0]


def presented(path: str, *then: str) -> str:
    return script(f"write {path} <<< {PLAN}", "tool ExitPlanMode {}", *then)


def options(question: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["kind"], one["name"]) for one in question["params"]["options"]]


async def test_plan_is_shown_asked_and_its_mode_follows(stack: Stack) -> None:
    client, session = await editor(stack)
    path = await plan_file(stack, client, session)
    answers = iter(
        [
            {
                "outcome": {
                    **selected("reject_once")["outcome"],
                    "_meta": {"pykoclaw.dev/reason": "Shorter."},
                }
            },
            selected("allow_always"),
        ]
    )
    client.permit = lambda _: next(answers)
    await client.prompt(
        session, presented(path, "tool ExitPlanMode {}", "write a.txt <<< hello", "text Done.")
    )
    first, _ = client.questions
    assert options(first) == [
        ("allow_once", "Approve, and ask for each edit"),
        ("allow_always", "Approve, and accept edits"),
        ("reject_once", "Keep planning"),
    ]
    assert first["params"]["toolCall"]["content"][0]["content"]["text"] == SHOWN
    calls = client.of(session, "tool_call")
    assert [call["title"] for call in calls] == ["Plan: Cache the answers"] * 2 + ["Write a.txt"]
    assert calls[0]["content"] == first["params"]["toolCall"]["content"]
    told = client.of(session, "tool_call_update")
    ended = [one for one in told if one["status"] != "in_progress"]
    assert [one["status"] for one in ended] == ["failed", "completed", "completed"]
    assert "Shorter." in json.dumps(ended[0]["content"])
    assert ended[1].get("content") is None
    assert "Shorter." in json.dumps(stack.asked()[-1])
    modes = [one["currentModeId"] for one in client.of(session, "current_mode_update")]
    assert modes[-1] == "acceptEdits"
    assert (stack.work / "a.txt").read_text() == "hello"
    await seen_again(stack, client, session)


@pytest.mark.long
async def test_plan_leads_back_to_mode_of_before(stack: Stack) -> None:
    client = await stack.start(IS_SANDBOX="1")
    session = await client.new(stack.work)
    await client.call("session/set_mode", sessionId=session, modeId="bypassPermissions")
    path = await plan_file(stack, client, session)
    client.permit = lambda _: selected("allow_former")
    await client.prompt(session, presented(path, "bash touch made", "text Done."))
    (question,) = client.questions  # the command was not asked about
    assert ("allow_always", "Approve, and go back to the mode Bypass permissions") in options(
        question
    )
    assert (stack.work / "made").exists()
    modes = [one["currentModeId"] for one in client.of(session, "current_mode_update")]
    assert modes[-1] == "bypassPermissions"
    await seen_again(stack, client, session)


async def test_change_that_was_allowed_stays_a_diff(shared: Stack) -> None:
    client = await shared.spawn_front()
    await client.initialize(**EDITOR)
    session = await client.new(shared.work)
    written = shared.work / "written"
    written.write_text("old\n")
    client.permit = lambda _: selected("allow_once")
    text = script("read written", "write written <<< new\\n", "text Done.")
    await client.prompt(session, text)
    (question,) = client.questions
    content = question["params"]["toolCall"]["content"]
    (asked,) = [one for one in content if one["type"] == "diff"]
    assert asked["oldText"] == "old\n"
    call = question["params"]["toolCall"]["toolCallId"]
    told = [one for one in client.of(session, "tool_call_update") if one["toolCallId"] == call]
    assert told[0]["status"] == "in_progress"
    assert told[0]["content"] == [asked]


async def test_change_that_was_refused_stays_shown(stack: Stack) -> None:
    client = await stack.start()
    session = await client.new(stack.work)
    (stack.work / "written").write_text("old\n")
    client.permit = lambda _: selected("reject_once")
    text = script("read written", "write written <<< new\\n", "text Done.")
    await client.prompt(session, text)
    (question,) = client.questions
    call = question["params"]["toolCall"]
    (asked,) = [one for one in call["content"] if one["type"] == "diff"]
    told = [
        one
        for one in client.of(session, "tool_call_update")
        if one["toolCallId"] == call["toolCallId"]
    ]
    refused = {"type": "content", "content": {"type": "text", "text": "Refused."}}
    assert told[-1]["content"] == [asked, refused]
    await seen_again(stack, client, session)


@pytest.mark.long
async def test_lasting_rule_holds_in_later_sessions_until_removed(shared: Stack) -> None:
    client = await shared.spawn_front()
    await client.initialize(**EDITOR)
    session = await client.new(shared.work)
    (shared.work / "below").mkdir()
    for directory in (shared.work, shared.work / "below"):
        (directory / "Makefile").write_text("made other third here:\n\ttouch $@\n")
    client.permit = lambda _: selected("allow_lasting")
    await client.prompt(session, script("bash make made", "text Done."))
    (question,) = client.questions
    rule = "commands that begin with `make made` (also in directories below)"
    assert [one["name"] for one in question["params"]["options"]][1:3] == [
        f"Always allow {rule} in this session",
        f"Always allow {rule}, in later sessions in this directory too",
    ]
    assert not (shared.work / ".claude").exists()
    session = await client.new(shared.work)
    await client.prompt(
        session, script("bash make made other", "bash cd below && make made here", "text Done.")
    )
    assert len(client.questions) == 1
    assert (shared.work / "below/here").exists()
    client.permit = lambda _: selected("reject_once")
    await client.prompt(session, script(f"bash cd {shared.root} && make made", "text Done."))
    assert len(client.questions) == 2, "elsewhere it is asked"
    rules = (await done(shared, "rules", "list", "--json")).json
    (listed,) = [one for one in rules if one["path"] == str(shared.work)]
    assert (listed["by"], listed["session"]) == ("an editor", None)
    await done(shared, "rules", "remove", str(shared.work), listed["rule"])
    await client.prompt(session, script("bash make made third", "text Done."))
    assert len(client.questions) == 3
    assert not (shared.work / "third").exists()


@pytest.mark.long
async def test_always_allowed_in_session_outlives_claude_and_daemon(
    stack: Stack,
) -> None:
    client = await stack.spawn_front()
    await client.initialize(**EDITOR)
    session = await client.new(stack.work)
    (stack.work / "Makefile").write_text("%:\n\ttouch $@\n")
    client.permit = lambda _: selected("allow_always")
    await client.prompt(session, script("bash make made", "text Done."))
    await client.prompt(session, script("bash PASSWORD=x make secret", "text Done."))
    names = [[name for _, name in options(one)][1] for one in client.questions]
    assert names[0].endswith(" in this session")
    assert names[1].endswith(" until Claude's process ends")
    assert await eventually((stack.work / "secret").exists)
    await done(stack, "workers", "stop", session[:8], "--now")
    await client.prompt(session, script("bash make made again", "text Done."))
    stack.worker(session).kill()
    await stack.end_daemon(signal.SIGKILL)
    await client.prompt(session, script("bash make made third", "text Done."))
    assert (stack.work / "third").exists()
    assert len(client.questions) == 2, "it was allowed in this session"
    client.permit = lambda _: selected("reject_once")
    await client.prompt(session, script("bash PASSWORD=x make secret more", "text Done."))
    assert len(client.questions) == 3, "what may hold a secret was not kept"
    other = await client.new(stack.work)
    await client.prompt(other, script("bash make made fourth", "text Done."))
    assert len(client.questions) == 4, "another session of the directory is asked"
    (listed,) = (await done(stack, "rules", "list", "--json")).json
    assert (listed["path"], listed["session"]) == (str(stack.work), session)
    await done(stack, "rules", "remove", "--session", session, listed["rule"])
    await client.prompt(session, script("bash make made fifth", "text Done."))
    assert len(client.questions) == 5
    assert (await done(stack, "rules", "list", "--json")).json == []


@pytest.mark.long
async def test_answers_around_daemon_crash_count(stack: Stack) -> None:
    client = await stack.spawn_front()
    await client.initialize(**EDITOR)
    client.permit = lambda _: None
    session = await client.new(stack.work)
    ask = f"tool AskUserQuestion {json.dumps(ASKED)}"
    turn = client.prompting(session, script(ask, "text I see."))
    for number, option in enumerate(("choice_0", "done")):
        await client.until(lambda: len(client.questions) == number + 1)  # noqa: B023
        client.reply(client.questions[-1], selected(option))
    await client.until(lambda: len(client.questions) == 3)
    await stack.end_daemon(signal.SIGKILL)
    client.reply(client.questions[-1], selected("choice_1"))
    assert (await client.answer(turn))["stopReason"] == "end_turn"
    assert len(client.questions) == 3, "asked twice"
    told = json.dumps(stack.asked()[-1])
    assert r"\"Which colours?\"=\"Red\"" in told
    assert r"\"Which size?\"=\"Large\"" in told


@pytest.mark.long
async def test_questions_are_answered_in_one_form(stack: Stack) -> None:
    client, session = await editor(stack, FORMS)
    content = {"question_0": ["Blue", "Red"], "question_1_custom": "my own"}
    client.permit = lambda _: {"action": "accept", "content": content}
    ask = f"tool AskUserQuestion {json.dumps(ASKED)}"
    await client.prompt(session, script(ask, "text I see."))
    (form,) = client.questions
    assert form["method"] == "elicitation/create"
    told = json.dumps(stack.asked()[-1])
    assert r"\"Which colours?\"=\"Blue, Red\"" in told
    assert r"\"Which size?\"=\"my own\"" in told
    (call,) = client.of(session, "tool_call")
    ended = client.of(session, "tool_call_update")[-1]
    assert (ended["toolCallId"], ended["status"]) == (call["toolCallId"], "completed")
    assert "my own" in json.dumps(ended["content"])
    await seen_again(stack, client, session, **FORMS)


async def test_previews_reach_clients_with_and_without_forms(stack: Stack) -> None:
    preview = "+---+\n| a |\n+---+"
    drawn = {"label": "Boxes", "description": "", "preview": preview}
    plain = {"label": "Lines", "description": ""}
    one = {"question": "Which look?", "header": "Look", "multiSelect": False}
    asked = {"questions": [{**one, "options": [drawn, plain]}]}
    client, other = await stack.spawn_front(), await stack.spawn_front()
    await client.initialize(**FORMS)
    await other.initialize(**EDITOR)
    client.permit = other.permit = lambda _: None
    session = await client.new(stack.work)
    turn = client.prompting(
        session, script(f"tool AskUserQuestion {json.dumps(asked)}", "text Ok.")
    )
    await client.until(lambda: client.questions)
    choices = client.questions[0]["params"]["requestedSchema"]["properties"]["question_0"]["oneOf"]
    assert choices[0]["_meta"] == {"_claude/askUserQuestionOption": {"preview": preview}}
    await other.load(session, stack.work)
    await other.until(lambda: other.questions)
    below = "1. Boxes\n\n   ```\n   +---+\n   | a |\n   +---+\n   ```\n\n2. Lines"
    (call,) = other.of(session, "tool_call")
    for shown in (call, other.questions[0]["params"]["toolCall"]):
        assert below in shown["content"][0]["content"]["text"]
    client.reply(client.questions[0], {"action": "accept", "content": {"question_0": "Boxes"}})
    assert (await client.answer(turn))["stopReason"] == "end_turn"


@pytest.mark.long
async def test_questions_are_answered_one_by_one(stack: Stack) -> None:
    client, session = await editor(stack)
    choices = iter(["choice_1", "choice_0", "choice_1"])
    client.permit = lambda _: selected(next(choices))
    ask = f"tool AskUserQuestion {json.dumps(ASKED)}"
    await client.prompt(session, script(ask, "text I see."))
    assert [one["params"]["toolCall"]["title"] for one in client.questions] == [
        "Which colours? (1 of 2)",
        "Which colours? (1 of 2)",
        "Which size? (2 of 2)",
    ]
    assert "Blue, Red" in json.dumps(stack.asked()[-1])
    tasks = script(
        'tool TaskCreate {"subject": "Look", "description": "d"}',
        'tool TaskUpdate {"taskId": "1", "status": "in_progress"}',
        'tool TaskCreate {"subject": ""}',
        "text Planned.",
    )
    await client.prompt(session, tasks)
    plans = client.of(session, "plan")
    assert [(one["content"], one["status"]) for one in plans[-1]["entries"]] == [
        ("Look", "in_progress")
    ]
    assert [one["title"] for one in client.of(session, "tool_call")][1:] == ["Task create"], (
        "only what fails is shown"
    )
    again = await seen_again(stack, client, session)
    await again.prompt(
        session, script('tool TaskUpdate {"taskId": "1", "status": "completed"}', "text Done.")
    )
    (entry,) = again.of(session, "plan")[-1]["entries"]
    assert (entry["content"], entry["status"]) == ("Look", "completed")
    await again.close()
    stack.use(stack.home / "elsewhere")
    imported = await stack.start()
    await imported.load(session, stack.work)
    states = [[one["status"] for one in plan["entries"]] for plan in imported.of(session, "plan")]
    assert states == [["in_progress"], ["completed"]], "as each turn has left it"
