"""Lists of sessions with the real CLI: sessions that an editor and a terminal continue in turn."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.e2e.commands import done
from tests.e2e.forks import fork
from tests.e2e.harness import Client, RpcError, Stack, script, text
from tests.e2e.other_programs import answers, in_terminal, terminal


async def listed(client: Client, **params: Any) -> dict[str, dict[str, Any]]:
    sessions = (await client.call("session/list", **params))["sessions"]
    return {one["sessionId"]: one for one in sessions}


async def told(client: Client, session: str, title: str) -> dict[str, Any]:
    """The row of a session, once the list has it under this title."""

    async def row() -> dict[str, Any]:
        found = (await listed(client)).get(session, {})
        return found if found.get("title") == title else {}

    return await client.until(row)


async def test_editor_terminal_editor(stack: Stack) -> None:
    client = await stack.front()
    session = await client.new(stack.work)
    await client.prompt(session, "The first question.\n" + text("First."))
    before = (await told(client, session, "The first question. [[script text First. ]]"))[
        "updatedAt"
    ]
    await client.call("session/close", sessionId=session)
    assert await in_terminal(stack, text("Second."), "--resume", session) == session
    assert answers(stack) == ["First."]

    async def moved() -> bool:
        return bool((await listed(client))[session]["updatedAt"] > before)

    newer: bool = await client.until(moved)
    assert newer
    assert list(await listed(client)) == [session]  # its transcript is no second one
    await client.load(session, stack.work)
    assert client.text(session) == "First.Second."
    await client.prompt(session, text("Third."))
    assert answers(stack) == ["First.", "Second."]
    assert list(await listed(client)) == [session]


async def test_command_lists_what_a_terminal_began(stack: Stack) -> None:
    session = await in_terminal(stack, text("First."))
    client = await stack.front()
    await told(client, session, "[[script text First. ]]")
    (listed,) = (await done(stack, "sessions", "list", "--json")).json
    assert (listed["id"], listed["cwd"], listed["elsewhere"]) == (session, str(stack.work), True)
    details = (await done(stack, "sessions", "show", session[:8], "--json")).json
    assert details["summary"]["id"] == session


@pytest.mark.long
async def test_terminal_session_is_listed_loaded_continued_and_deleted(
    stack: Stack,
) -> None:
    session = await in_terminal(stack, "Asked in a terminal.\n" + text("First."))
    unopened = await in_terminal(stack, text("Never opened."))
    client = await stack.front()
    row = await told(client, session, "Asked in a terminal. [[script text First. ]]")
    assert row["cwd"] == str(stack.work)
    assert row["_meta"] == {"pykoclaw.dev/transcript": True}
    assert row["updatedAt"].endswith("Z")
    assert set(await listed(client, cwd=str(stack.work))) == {session, unopened}
    assert await listed(client, cwd="/") == {}
    with pytest.raises(RpcError) as elsewhere:
        await client.load(session, stack.root)
    named = {
        "sessionCwd": str(stack.work),
        "cwd": str(stack.root),
        "instead": "session/fork",
    }
    assert (elsewhere.value.code, elsewhere.value.data) == (-32602, named)
    await client.load(session, stack.work)
    assert client.text(session) == "First."
    assert "Asked in a terminal." in client.text(session, "user_message_chunk")
    assert "_meta" not in (await listed(client))[session]
    await client.prompt(session, text("Second."))
    assert answers(stack) == ["First."]
    assert await in_terminal(stack, text("Third."), "--resume", session) == session
    assert answers(stack) == ["First.", "Second."]
    await client.until(lambda: "Third." in client.text(session))
    await client.prompt(session, text("Fourth."))
    assert answers(stack) == ["First.", "Second.", "Third."]

    for one in (session, unopened):
        await client.call("session/delete", sessionId=one)
    assert await listed(client) == {}
    assert "First." in stack.transcript(session)  # Claude's own stays
    await client.close()
    await stack.end_daemon()
    client = await stack.front(PYKOCLAW_DELETE_TRANSCRIPTS="on")
    third = await in_terminal(stack, text("Another one."))
    there: bool = await client.until(partial(_has, client, third))
    assert there
    assert list(await listed(client)) == [third]
    for one in (session, unopened):
        with pytest.raises(RpcError) as gone:
            await client.load(one, stack.work)
        assert gone.value.code == -32002
    await client.call("session/delete", sessionId=third)
    assert stack.transcript(third) == ""


async def _has(client: Client, session: str) -> bool:
    return session in await listed(client)


async def test_mode_of_terminal_holds_until_client_chooses(shared: Stack) -> None:
    session = await in_terminal(shared, text("Planned."), "--permission-mode", "plan")
    client = await shared.front()
    assert _modes(await client.load(session, shared.work)) == {"plan"}
    await client.prompt(session, text("Still planned."))
    assert '"permissionMode":"plan"' in _newest(shared, session, "Still planned.")
    await client.call("session/set_mode", sessionId=session, modeId="default")
    await terminal(shared, session, text("Edits."), "--permission-mode", "acceptEdits")
    assert _modes(await client.load(session, shared.work)) == {"default"}
    await client.prompt(session, text("As chosen."))
    assert '"permissionMode":"default"' in _newest(shared, session, "As chosen.")


async def test_fork_of_terminals_session_accepts_its_edits(shared: Stack) -> None:
    session = await in_terminal(shared, text("Edits."), "--permission-mode", "acceptEdits")
    client = await shared.front()
    made = await fork(client, shared, session)
    assert _modes(made) == {"acceptEdits"}
    await client.prompt(made["sessionId"], script("write accepted.txt <<< hi"))
    assert (shared.work / "accepted.txt").read_text().strip() == "hi"
    assert _modes(await client.resume(session, shared.work)) == {"acceptEdits"}


def _modes(opened: dict[str, Any]) -> set[str]:
    """The mode, in both ways in which the answer says it."""
    options = {one["id"]: one["currentValue"] for one in opened["configOptions"]}
    return {opened["modes"]["currentModeId"], options["mode"]}


def _newest(stack: Stack, session: str, words: str) -> str:
    """The newest line of the transcript with a prompt that has these words."""
    lines = stack.transcript(session).splitlines()
    return next(one for one in reversed(lines) if words in one and '"type":"user"' in one)
