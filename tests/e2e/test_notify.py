"""People who are not there are told, by the real programs: the bot's poller, a command."""

from __future__ import annotations

import json
import re
import signal
from typing import Any, Final

import pytest

from tests.double.roles import Role
from tests.e2e.commands import done, run
from tests.e2e.harness import Stack, script, text
from tests.waiting import eventually

CHAT: Final = "wa-andy-1@g.us"
ASKS: Final = script("bash touch made-it", "text Done.")
ALLOW: Final = re.compile(r"pykoclaw-acp (approve [\w-]+ --allow)")


async def asked(stack: Stack) -> str:
    """A question whose client goes away; its session."""
    client = await stack.front()
    client.permit = lambda _: None
    session = await client.new(stack.work)
    client.prompting(session, ASKS)
    await client.until(lambda: client.questions)
    await client.kill()
    return session


def turn(stack: Stack) -> dict[str, Any]:
    (row,) = stack.rows("SELECT state, stop_reason FROM acp_turns")
    return row


@pytest.mark.long
async def test_bots_answer_to_question_lets_turn_continue(stack: Stack) -> None:
    await stack.daemon(PYKOCLAW_NOTIFY=CHAT)
    place = (stack.data, stack.environment)
    async with Role.started(*place, "poller", "--every", "0.05") as poller:
        await asked(stack)
        sent = await poller.until("sent", conversation=CHAT)
        assert "touch made-it" in sent["message"]
        answer = ALLOW.search(sent["message"])
        assert answer is not None
        said = await run(stack, *answer[1].split())
        assert said.status == 0, said
        await eventually(lambda: turn(stack)["state"] == "done")
        assert (stack.work / "made-it").exists()
        ended = await eventually(lambda: poller.entries("sent")[1:])
        assert "finished" in ended[0]["message"]
    assert poller.failures() == []
    assert len(stack.rows("SELECT 1 FROM delivery_queue")) == 2


@pytest.mark.long
async def test_killed_daemons_question_is_told_once_by_next(stack: Stack) -> None:
    await stack.daemon(PYKOCLAW_NOTIFY=CHAT)
    session = await asked(stack)
    await stack.end_daemon(signal.SIGKILL)
    await stack.daemon(PYKOCLAW_NOTIFY=CHAT)
    await eventually(lambda: stack.rows("SELECT 1 FROM delivery_queue"))
    await stack.end_daemon(signal.SIGKILL)
    await stack.daemon(PYKOCLAW_NOTIFY=CHAT)
    client = await stack.front()
    await client.load(session, stack.work)
    await eventually(lambda: turn(stack)["state"] == "done")
    assert len(stack.rows("SELECT 1 FROM acp_notices WHERE kind = 'question'")) == 1
    rows = stack.rows("SELECT message FROM delivery_queue")
    assert sum("permission" in row["message"] for row in rows) == 1


@pytest.mark.long
async def test_command_is_told_of_turn_that_nobody_watched(stack: Stack) -> None:
    told = stack.root / "told"
    program = stack.root / "tell"
    program.write_text(f"#!/bin/sh\ncat >> {told}\n")
    program.chmod(0o755)
    await stack.daemon(PYKOCLAW_NOTIFY=str(program))
    client = await stack.front()
    session = await client.new(stack.work)
    await client.prompt(session, text("Watched."))
    client.prompting(session, script("repeat 50x20ms w{n}."))
    await client.until(lambda: "w5." in client.text(session))
    await client.kill()
    await eventually(lambda: told.exists() and told.read_text())
    notice = json.loads(told.read_text())
    assert (notice["event"], notice["session"]) == ("turn_ended", session)
    (last,) = stack.rows("SELECT turn_id FROM acp_turns ORDER BY position DESC LIMIT 1")
    assert notice["turn"]["id"] == last["turn_id"]


@pytest.mark.long
async def test_turn_whose_end_command_got_is_untold(stack: Stack) -> None:
    await stack.daemon(PYKOCLAW_NOTIFY=CHAT)
    client = await stack.front()
    session = await client.new(stack.work)
    await client.kill()
    assert (await done(stack, "prompt", session, text("Ready."))).out == "Ready.\n"
    await done(stack, "prompt", session, "--detach", text("Later."))
    await eventually(lambda: stack.rows("SELECT 1 FROM delivery_queue"))
    first, last = stack.rows("SELECT turn_id, answered_at FROM acp_turns ORDER BY position")
    assert (first["answered_at"] is None, last["answered_at"] is None) == (False, True)
    told = stack.rows("SELECT notice_id FROM acp_notices")
    assert [row["notice_id"] for row in told] == [f"turn-{last['turn_id']}"]


async def test_doctor_reports_settings_that_daemon_has(stack: Stack) -> None:
    """Under systemd, the shell in which it is called has none of them."""
    program = stack.root / "tell it"
    program.write_text("#!/bin/sh\nexit 7\n")
    program.chmod(0o755)
    told = f"'{program}' --token S3CRET, {CHAT}"
    await stack.daemon(PYKOCLAW_NOTIFY=told, PYKOCLAW_PERMISSION_MODE="plan")
    await done(stack, "prompt", "--new", "--detach", text("Ready."))
    failed = "SELECT 1 FROM acp_notifications WHERE reason IS NOT NULL"
    await eventually(lambda: stack.rows(failed))
    result = await run(stack, "doctor", "--json")
    found = {one["check"]: one["found"] for one in result.json}
    assert found["profile"] == "editor; permission mode of new sessions: plan"
    assert found["notices"].startswith(f"'{program}' has not accepted a notice: ")
    assert "S3CRET" not in result.out
    status = await run(stack, "status", "--json")
    assert status.json["settings"]["PYKOCLAW_NOTIFY"] == f"'{program}', {CHAT}"
