"""Scheduled tasks of users' conversations on the real CLI, by pykoclaw's scheduler and by ours, while
users go on asking and the daemon is SIGKILLed.
"""

from __future__ import annotations

import json
import re
from contextlib import closing
from functools import partial
from typing import Any, Final

import pytest

from tests.double import tables
from tests.double.handle import init_db
from tests.double.roles import Role
from tests.e2e.harness import Stack, script
from tests.e2e.harness.logs import locks, logs
from tests.faults.talking import (
    ENOUGH,
    GIVEN_UP,
    Talker,
    check_turns,
    kill_daemon,
    was_asked,
)
from tests.waiting import eventually

CHAT: Final = "wa-andy-1@g.us"
QUICK: Final = ("--every", "0.05")
LONG_BEGINNING: Final = f"# {'look ' * 20}"  # the heading of a result has no more of a prompt
BOT: Final = ("dispatch", "wa-andy-6@g.us", "Go on.", "--loop", "--system-prompt", "Be Andy.")
TOLD: Final = re.compile(r"deliver|moved_on|side_turn|look_|recovered|serving")  # in log lines


async def talking(stack: Stack) -> tuple[Talker, dict[str, Any]]:
    """A user who has asked, and the row of the conversation."""
    talker = Talker(stack, 0)
    await talker.begin()
    assert await talker.ask("text begun.") == "done"
    (row,) = stack.rows("SELECT * FROM conversations WHERE name LIKE 'acp-%'")
    return talker, row


def due(stack: Stack, conversation: str, prompt: str, mode: str) -> str:
    """A task that is due, once; its id."""
    with closing(init_db(stack.data / "pykoclaw.db")) as db:
        return tables.create_task(
            db,
            conversation=conversation,
            prompt=prompt,
            schedule_type="once",
            schedule_value="2000-01-01",
            next_run="2000-01-01T00:00:00+00:00",
            context_mode=mode,
        )


def pause(stack: Stack, task: str) -> None:
    with closing(init_db(stack.data / "pykoclaw.db")) as db:
        db.execute("UPDATE scheduled_tasks SET status = 'paused' WHERE id = ?", (task,))
        db.commit()


async def all_delivered(stack: Stack, name: str) -> None:
    query = "SELECT status FROM delivery_queue WHERE conversation = ?"
    await eventually(
        lambda: {row["status"] for row in stack.rows(query, name)} == {"delivered"}, ENOUGH
    )


async def check_shown_once(stack: Stack, session: str, texts: list[str]) -> None:
    """A client that loads the session is shown each of these once."""
    client = await stack.front()
    await client.load(session, stack.work)
    shown = client.text(session)
    told = [line for line in "".join(logs(stack)).splitlines() if TOLD.search(line)]
    assert [shown.count(one) for one in texts] == [1] * len(texts), "\n".join([shown, *told])


@pytest.mark.long
async def test_scheduler_killed_in_our_conversation_loses_nothing(stack: Stack) -> None:
    """pykoclaw's scheduler runs tasks in the conversation and beside it, and dies in the middle of some:
    each result is shown once and known to the model, and both sides stay in one session of Claude's.
    """
    talker, row = await talking(stack)
    ended: list[str] = []
    for number in range(12):
        said, whole = f"task-{number:02}.", number % 3 > 0
        lines = [f"text {said}"] if whole else ["repeat 100x50ms x", f"text {said}"]
        task = due(stack, row["name"], script(*lines), "isolated" if number % 2 else "group")
        async with Role.started(
            stack.data, stack.environment, "scheduler", *QUICK, "--claude"
        ) as role:
            await eventually(partial(was_asked, stack, said), ENOUGH)
            if number % 4 == 1:
                assert await talker.ask("text ours beside.") == "done"
            if number % 4 > 1:
                await kill_daemon(stack)
            if whole:
                await role.until("enqueued")
                ended.append(said)
            assert role.failures() == [], role.output()
        pause(stack, task)  # one that was killed is due still
        assert await talker.ask("text ours.") == "done"
    await all_delivered(stack, row["name"])
    assert await talker.ask("text the last answer") == "done"
    asked = json.dumps(stack.asked()[-1]["messages"])
    assert [said for said in ended if said not in asked] == []
    assert [marker for marker in talker.outcomes if marker not in asked] == []
    await check_shown_once(stack, talker.session, ended)
    check_turns(stack, talker)
    (after,) = stack.rows("SELECT * FROM conversations")
    assert after["session_id"] == row["session_id"]
    assert locks(stack, GIVEN_UP) == []


@pytest.mark.long
async def test_our_scheduler_beside_others_doubles_nothing(stack: Stack) -> None:
    """Also a question that waits for nobody is one message to the chat that is told of it."""
    stack.environment |= {"PYKOCLAW_SCHEDULER": "on", "PYKOCLAW_NOTIFY": CHAT}
    place = (stack.data, stack.environment)
    async with (
        Role.started(*place, "poller", *QUICK) as poller,
        Role.started(*place, *BOT, *QUICK) as bot,
    ):
        talker, row = await talking(stack)
        asker = await stack.front()
        asker.permit = lambda _: None
        asker.prompting(await asker.new(stack.work), script("bash touch made-it", "text Done."))
        await asker.until(lambda: asker.questions)
        await asker.kill()
        texts, tasks = [], []
        for number in range(6):
            texts.append(said := f"own-{number:02}.")
            lines = script(LONG_BEGINNING, "repeat 20x50ms x", f"text {said}")
            mode = "isolated" if number % 2 else "group"
            tasks.append(due(stack, row["name"], lines, mode))
            await eventually(partial(was_asked, stack, said), ENOUGH)
            if number % 3:
                await kill_daemon(stack)
            assert await talker.ask("text ours.") == "done"
        query = "SELECT task_id, status FROM task_run_logs ORDER BY run_at"
        await eventually(lambda: len(stack.rows(query)) >= len(tasks), ENOUGH)
        await all_delivered(stack, row["name"])
        asks = f"SELECT id FROM delivery_queue WHERE conversation = '{CHAT}' AND message LIKE '%made-it%'"
        await eventually(lambda: stack.rows(asks), ENOUGH)
        (notice,) = stack.rows(asks)
        await poller.until("sent", id=notice["id"])
    assert [tuple(one.values()) for one in stack.rows(query)] == [(one, "success") for one in tasks]
    await check_shown_once(stack, talker.session, texts)
    assert len(poller.entries("sent", id=notice["id"])) == 1
    assert poller.failures() == bot.failures() == locks(stack, GIVEN_UP) == []
    assert stack.rows("PRAGMA integrity_check") == [{"integrity_check": "ok"}]
