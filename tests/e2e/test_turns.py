"""What a client sees of a turn: text, thinking, tools, usage; several prompts and
sessions at once.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.harness import Client, Stack, script, text


def outcomes(client: Client, session: str) -> dict[str, str]:
    """The last status of each tool call, by its title."""
    titles = {one["toolCallId"]: one["title"] for one in client.of(session, "tool_call")}
    return {
        titles[one["toolCallId"]]: one["status"]
        for one in client.of(session, "tool_call", "tool_call_update")
    }


def shown(update: dict[str, Any]) -> str:
    """The text that a tool update shows."""
    return "".join(part["content"]["text"] for part in update.get("content", ()))


async def test_text_arrives_while_the_model_still_streams(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    pending = client.prompting(session, script("repeat 60x40ms tick{n} "))
    await client.until(lambda: "tick3" in client.text(session))
    (asked,) = shared.asked()
    assert asked["outcome"] is None, "the model had ended before the first text was shown"
    assert not pending.done()
    assert (await client.answer(pending))["stopReason"] == "end_turn"
    chunks = client.of(session, "agent_message_chunk")
    assert client.text(session).split() == [f"tick{n}" for n in range(1, 61)]
    assert len(chunks) > 5
    assert len({one["messageId"] for one in chunks}) == 1


async def test_thinking_comes_before_the_answer(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    await client.prompt(session, script("thinking Let me see.", "text I see."))
    kinds = [
        one["sessionUpdate"]
        for one in client.of(session, "agent_thought_chunk", "agent_message_chunk")
    ]
    assert kinds == sorted(kinds, reverse=True)
    assert client.text(session, "agent_thought_chunk") == "Let me see."
    assert client.text(session) == "I see."


async def test_tools_as_a_client_sees_them(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    await client.prompt(
        session,
        script(
            "bash mkdir made && echo it is done", "write made/note.txt <<< one\\ntwo", "read made/note.txt",
            "edit made/note.txt <<< two => three", "read missing.txt", "bash mkdir made/x && exit 3", "text Done.",
        ),
    )  # fmt: skip
    note = str(shared.work / "made/note.txt")
    bash, write, read, edit, missing, failing = client.of(session, "tool_call")
    assert all(one["status"] == "in_progress" for one in client.of(session, "tool_call"))
    assert (bash["kind"], bash["title"]) == (
        "execute",
        "Run a scripted command: mkdir made && echo it is done",
    )
    assert bash["rawInput"]["command"] == "mkdir made && echo it is done"
    assert (write["kind"], write["title"]) == ("edit", "Write made/note.txt")
    assert shown(write) == "```\none\ntwo\n```"  # whether the file is new is not known yet
    assert write["locations"] == [{"path": note}]
    assert (read["kind"], read["title"]) == ("read", "Read made/note.txt")
    assert edit["content"] == [{"type": "diff", "path": note, "oldText": "two", "newText": "three"}]

    ended = {one["toolCallId"]: one for one in client.of(session, "tool_call_update")}
    states = [
        ended[one["toolCallId"]]["status"] for one in (bash, write, read, edit, missing, failing)
    ]
    assert states == ["completed"] * 4 + ["failed"] * 2
    assert "it is done" in shown(ended[bash["toolCallId"]])
    assert ended[write["toolCallId"]]["content"] == [
        {"type": "diff", "path": note, "oldText": None, "newText": "one\ntwo"}
    ]
    assert "two" in shown(ended[read["toolCallId"]])
    assert (shared.work / "made/note.txt").read_text() == "one\nthree"
    assert client.text(session) == "Done."


@pytest.mark.long
async def test_parallel_tools_are_kept_apart(stack: Stack) -> None:
    client = await stack.start(PYKOCLAW_PERMISSION_MODE="acceptEdits")
    session = await client.new(stack.work)
    (stack.work / "a.txt").write_text("AAA")
    (stack.work / "b.txt").write_text("BBB")
    await client.prompt(session, script("read a.txt", "& read b.txt", "text Both."))
    first, second = client.of(session, "tool_call")
    ended = {one["toolCallId"]: shown(one) for one in client.of(session, "tool_call_update")}
    assert "AAA" in ended[first["toolCallId"]]
    assert "BBB" in ended[second["toolCallId"]]
    kinds = [one["sessionUpdate"] for one in client.of(session, "tool_call", "tool_call_update")]
    assert kinds == ["tool_call"] * 2 + ["tool_call_update"] * 2


async def test_subagent_belongs_to_its_call(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    inner = "[[script bash mkdir inner ;; text Inner words.]]"
    agent = f'tool Agent {{"description": "look", "subagent_type": "claude", "prompt": "{inner}"}}'
    await client.prompt(
        session, script(agent, "text Out.", "stop end_turn", "text The subagent is done.")
    )
    await client.until(
        lambda: (
            (shared.work / "inner").is_dir() and "completed" in outcomes(client, session).values()
        )
    )
    parent = client.of(session, "tool_call")[0]
    (child,) = [
        one for one in client.of(session, "tool_call") if one["title"].endswith("mkdir inner")
    ]
    assert child["_meta"]["pykoclaw.dev/parentToolCallId"] == parent["toolCallId"]
    assert parent["kind"] == "think"


async def test_usage_is_told_after_turn(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    usage = (await client.prompt(session, text("Some words.")))["usage"]
    parts = ("inputTokens", "outputTokens", "cachedReadTokens", "cachedWriteTokens")
    assert usage["totalTokens"] == sum(usage[part] for part in parts)
    assert usage["outputTokens"] > 0
    *_, window = client.of(session, "usage_update")
    assert 0 < window["used"] < window["size"]
    assert window["cost"]["currency"] == "USD"
    assert client.of(session)[-1] == window


@pytest.mark.long
async def test_window_is_learned_once_for_all_sessions(stack: Stack) -> None:
    client = await stack.start()
    first = await client.new(stack.work)
    await client.prompt(first, text("One."))
    size = client.of(first, "usage_update")[-1]["size"]
    stack.worker(first).kill()  # which may still count
    await client.until(lambda: stack.claude(first) is None)
    stack.model.clear()
    second = await client.new(stack.work)
    await client.prompt(second, text("Two."))
    assert client.of(second, "usage_update")[0]["size"] == size
    counted = [one for one in stack.model.requests(None) if one["path"].endswith("count_tokens")]
    assert counted == []


async def test_resource_link_reaches_the_model(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    link = {
        "type": "resource_link",
        "name": "plan.md",
        "uri": "file:///somewhere/plan.md",
        "mimeType": "text/markdown",
    }
    await client.prompt(session, "Look at", link)
    said = "\n".join(message["text"] for message in shared.asked()[-1]["messages"])
    assert "Look at" in said
    assert "plan.md" in said
    assert "file:///somewhere/plan.md" in said
    client.updates.clear()
    await client.load(session, shared.work)
    first, second = [one["content"] for one in client.of(session, "user_message_chunk")]
    assert (first["text"], second) == ("Look at", link)


@pytest.mark.long
async def test_sessions_do_not_wait_for_each_other(shared: Stack) -> None:
    client = await shared.start()
    slow, quick = await client.new(shared.work), await client.new(shared.work)
    pending = client.prompting(slow, script("repeat 2000x20ms word{n} "))
    await client.until(lambda: "word2" in client.text(slow))
    await client.prompt(quick, text("Quick."))
    assert client.text(quick) == "Quick."
    assert not pending.done()
    client.cancel(slow)
    assert (await client.answer(pending))["stopReason"] == "cancelled"


async def test_prompts_of_a_busy_session_run_in_order(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    prompts = [script("repeat 10x30ms one{n} "), text("two"), text("three")]
    pending = [client.prompting(session, prompt) for prompt in prompts]
    for future in pending:
        assert (await client.answer(future))["stopReason"] == "end_turn"
    numbers = [message["id"] for message in client.sent if message["method"] == "session/prompt"]
    assert [frame["id"] for frame in client.received if frame.get("id") in numbers] == numbers
    assert client.text(session).endswith("one10twothree")
    assert [one["user_texts"] for one in shared.asked()] == [prompts[:1], prompts[:2], prompts]


async def test_background_command_stays_open_until_it_ends(shared: Stack) -> None:
    client = await shared.start()
    session = await client.new(shared.work)
    (shared.work / "gate").mkdir()
    wait = "while [ -d gate ]; do sleep 0.05; done; echo over"
    ended = await client.prompt(
        session,
        script(f"background {wait}", "text It runs.", "stop end_turn", "text It has ended."),
    )
    assert ended["stopReason"] == "end_turn"
    (call,) = client.of(session, "tool_call")
    assert {one["status"] for one in client.of(session, "tool_call_update")} <= {"in_progress"}
    assert client.text(session) == "It runs."

    (shared.work / "gate").rmdir()
    await client.until(lambda: "It has ended." in client.text(session))
    last = client.of(session, "tool_call_update")[-1]
    assert (last["toolCallId"], last["status"]) == (call["toolCallId"], "completed")
    done = "SELECT 1 FROM acp_turns WHERE acp_session_id = ? AND origin = 'background' AND state = 'done'"
    await client.until(lambda: shared.rows(done, session))
    await client.prompt(session, text("Later."))
    assert client.text(session).endswith("Later.")


@pytest.mark.long
async def test_worker_with_background_work_is_not_evicted(stack: Stack) -> None:
    client = await stack.start(PYKOCLAW_IDLE_TIMEOUT="0.2")
    session, other = await client.new(stack.work), await client.new(stack.work)
    (stack.work / "gate").mkdir()
    wait = "while [ -d gate ]; do sleep 0.05; done"
    await client.prompt(
        session, script(f"background {wait}", "text It runs.", "stop end_turn", "text Over.")
    )
    await client.prompt(other, text("Something else."))
    await client.until(lambda: stack.claude(other) is None)
    assert stack.claude(session) is not None
    (stack.work / "gate").rmdir()
    await client.until(lambda: "Over." in client.text(session))
    await stack.no_worker()
