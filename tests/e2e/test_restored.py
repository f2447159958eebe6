"""A database that was put back to an earlier state, with the real CLI, whose transcript knows more."""

from __future__ import annotations

import pytest

from tests.e2e.commands import run
from tests.e2e.harness import Stack, script, text
from tests.e2e.harness.backups import back_up, put_back


@pytest.mark.long
@pytest.mark.parametrize(
    "again", [script("bash echo ran >> ran; sleep 1", "text Once."), text("Once.")]
)
async def test_prompt_waiting_in_backup_is_not_run_again(stack: Stack, again: str) -> None:
    """It was run after the backup: the transcript has it, and the next prompt is not held up."""
    client = await stack.front()
    session = await client.new(stack.work)
    await client.prompt(session, text("Before."))
    first = client.prompting(session, script("repeat 20x100ms w{n} ", "text Over."))
    await client.until(lambda: "w3 " in client.text(session))
    second = client.prompting(session, again)
    waits = "SELECT 1 FROM acp_turns WHERE state = 'queued'"
    await client.until(lambda: stack.rows(waits))
    backup = back_up(stack)
    await client.answer(first)
    await client.answer(second)
    await client.close()
    assert (await run(stack, "stop")).status == 0
    put_back(stack, backup)
    assert stack.rows(waits)
    asked = len(stack.asked())
    client = await stack.front()
    await client.load(session, stack.work)
    await client.until(lambda: not stack.rows(waits))
    await client.prompt(session, text("And on."))
    assert len(stack.asked()) == asked + 1
    if "ran" in again:
        assert (stack.work / "ran").read_text() == "ran\n"
    said = client.text(session)
    assert said.count("Once.") == said.count("And on.") == 1
    assert "was not sent again" in said
    ends = stack.rows("SELECT state FROM acp_turns WHERE origin = 'client' ORDER BY position")
    assert [row["state"] for row in ends][2:] == ["failed", "done"]
