"""The other programs beside our daemon, while one after the other is SIGKILLed: nobody loses a row,
nobody fails for a lock, no conversation is forked.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.double import files, tables
from tests.double.handle import init_db
from tests.double.roles import Role
from tests.e2e.harness import Stack, script, text
from tests.e2e.harness.logs import locks
from tests.faults.talking import (
    ENOUGH,
    GIVEN_UP,
    MARKER,
    Talker,
    check_turns,
    check_updates,
    kill_daemon,
    was_asked,
)
from tests.waiting import eventually

LONG: Final = os.environ.get("PYKOCLAW_TEST_LONG") == "1"
KILLS: Final = 60 if LONG else 2
SEED: Final = 20261122
QUICK: Final = ("--every", "0.05")
LATER: Final = {"prompt": "Look.", "schedule_type": "once", "schedule_value": "2999-01-01"}
OTHERS: Final = (
    ("scheduler", *QUICK, "--text", "a <reply>Result {run}.</reply>"),
    ("poller", *QUICK),
    ("whatsapp", "7@g.us", "Hello.", "--loop", *QUICK),
    ("dispatch", "wa-andy-6@g.us", "Go on.", "--loop", "--system-prompt", "Be Andy.", *QUICK),
    ("send", "wa-andy-5@g.us", "Tell.", "--text", "Told."),
    ("init",),
    ("tool", "wa-andy-9@g.us", "schedule_task", json.dumps(LATER)),
    ("original", *QUICK, "--seconds", "0.2"),
)
RESULT: Final = re.compile(r"Result \w+\.")
ORIGINALS: Final = "0123abcd-aaaa-4aaa-8aaa-aaaaaaaaaaaa"  # session of the earlier plugin


class Others:
    """All other programs: each is started again when it is gone."""

    def __init__(self, stack: Stack) -> None:
        self.all: list[Role] = []
        self.originals_conversation = False  # whether there is one that it can load
        self._stack = stack
        self._running: dict[int, Role] = {}

    async def fill(self) -> None:
        """Start what does not run."""
        for number, (role, *arguments) in enumerate(OTHERS):
            running = self._running.get(number)
            if role == "original" and not self.originals_conversation:
                continue
            if running is None or running.process.returncode is not None:
                self._running[number] = made = await self._start(role, *arguments)
                self.all.append(made)

    async def _start(self, role: str, *arguments: str) -> Role:
        place = (self._stack.data, self._stack.environment)
        if role != "original":
            return await Role.start(*place, role, *arguments)
        made = await Role.start(*place, role, *arguments, stdin=asyncio.subprocess.PIPE)
        assert made.process.stdin is not None
        made.process.stdin.write(requests_to_original())
        return made

    async def kill_one(self, chance: random.Random) -> None:
        """Kill one and wait until it is gone, so that the next :meth:`fill` starts it again."""
        role = chance.choice(list(self._running.values()))
        role.kill()
        await role.process.wait()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """All of them, from their first start until the end of the block."""
        try:
            await self.fill()
            yield
        finally:
            for role in self._running.values():
                role.kill()
                await role.process.wait()

    def done(self, did: str) -> list[dict[str, Any]]:
        """What was recorded of this kind, by all of them."""
        return [one for role in self.all for one in role.entries(did)]


def requests_to_original() -> bytes:
    """What its client sends: a load, and more prompts than it comes to."""
    load = ("session/load", {"sessionId": ORIGINALS, "cwd": "/", "mcpServers": []})
    ask = (
        "session/prompt",
        {"sessionId": ORIGINALS, "prompt": [{"type": "text", "text": "Go on."}]},
    )
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        for number, (method, params) in enumerate([load, *[ask] * 200])
    ]
    return "".join(f"{line}\n" for line in lines).encode()


def make_originals_conversation(path: Path) -> None:
    with closing(init_db(path)) as db:
        tables.upsert_conversation(db, f"acp-{ORIGINALS[:8]}", "claude", "/")


def make_tasks(path: Path, *targets: str) -> None:
    """A task for each target, due again 50 ms after each of its runs."""
    with closing(init_db(path)) as db:
        for number, target in enumerate(targets):
            tables.create_task(
                db,
                conversation=f"wa-andy-{number}@g.us",
                prompt="Look.",
                schedule_type="interval",
                schedule_value="50",
                next_run="2000-01-01T00:00:00+00:00",
                context_mode="isolated" if number % 2 else "group",
                target_conversation=target,
            )


@pytest.mark.long
async def test_random_kills_lose_nothing_of_anybody(stack: Stack) -> None:
    chance, stop = random.Random(SEED), asyncio.Event()
    others = Others(stack)
    async with others.running():  # the first start of all at once, on no file
        talkers = [Talker(stack, number) for number in range(2)]
        await asyncio.gather(*(talker.begin() for talker in talkers))
        ours = [f"acp-{talker.session[:8]}" for talker in talkers]
        make_tasks(stack.data / "pykoclaw.db", *ours, "wa-andy-4@g.us")
        make_originals_conversation(stack.data / "pykoclaw.db")
        others.originals_conversation = True
        async with asyncio.timeout(60 * KILLS), asyncio.TaskGroup() as talking:
            for talker in talkers:
                talking.create_task(talker.talk(stop))
            for number in range(KILLS):
                await _go_on(others, talkers)
                if number % 2:
                    await kill_daemon(stack)
                else:
                    await others.kill_one(chance)
            await _go_on(others, talkers)
            stop.set()

    for role in others.all:
        assert role.failures() == [], role.output()
    assert locks(stack, GIVEN_UP) == []
    _check_rows(stack, others)
    for talker in talkers:
        assert await talker.ask("text the last answer") == "done"
        await _check_deliveries(stack, others, talker)
        check_turns(stack, talker)
        await check_updates(stack, talker)
        _check_memory(stack, talker)
    assert stack.rows("PRAGMA integrity_check") == [{"integrity_check": "ok"}]


async def _go_on(others: Others, talkers: list[Talker]) -> None:
    """Wait until each user had an answer, and the other programs have written something more."""
    answers = [len(talker.outcomes) for talker in talkers]
    written = len(others.done("enqueued"))

    await others.fill()
    await eventually(
        lambda: (
            len(others.done("enqueued")) > written
            and all(len(one.outcomes) > n for one, n in zip(talkers, answers, strict=True))
        ),
        ENOUGH,
    )


def _check_rows(stack: Stack, others: Others) -> None:
    """What they committed is there, in the form that their models want."""
    path = stack.data / "pykoclaw.db"
    found = files.contents(path)
    queued = {row["id"]: row for row in found["delivery_queue"]}
    assert {one["id"] for one in others.done("enqueued")} <= queued.keys()
    assert {queued[one["id"]]["status"] for one in others.done("delivered")} == {"delivered"}
    runs = {(row["task_id"], row["run_at"]) for row in found["task_run_logs"]}
    assert {(one["task_id"], one["run_at"]) for one in others.done("logged")} <= runs
    assert len(found["wa_messages"]) >= len(others.done("message"))
    names = {row["name"] for row in found["conversations"]}
    assert {one["name"] for one in others.done("upserted")} <= names
    assert f"acp-{ORIGINALS[:8]}" in {one["name"] for one in others.done("upserted")}
    created = {one["task_id"] for one in others.done("created")}
    assert created
    assert created <= {task["id"] for task in found["scheduled_tasks"]}
    assert others.done("alter_swallowed") == [
        one for one in others.done("alter_swallowed") if "duplicate column" in one["error"]
    ]
    with closing(init_db(path)) as db:
        tables.list_conversations(db)
        tables.get_all_tasks(db)
        for prefix in ("acp", "wa"):
            tables.get_pending_deliveries(db, prefix)


async def _check_deliveries(stack: Stack, others: Others, talker: Talker) -> None:
    """Each result for this conversation is shown, once, in the order in which they were made."""
    name = f"acp-{talker.session[:8]}"
    query = "SELECT status FROM delivery_queue WHERE conversation = ?"
    await eventually(
        lambda: {row["status"] for row in stack.rows(query, name)} == {"delivered"}, ENOUGH
    )
    client = await stack.front()
    await client.load(talker.session, stack.work)
    query = "SELECT message FROM delivery_queue WHERE conversation = ? ORDER BY created_at"
    enqueued = [row["message"] for row in stack.rows(query, name)]
    assert len(enqueued) >= len(
        [one for one in others.done("enqueued") if one["conversation"] == name]
    )
    assert RESULT.findall(client.text(talker.session)) == enqueued


def _check_memory(stack: Stack, talker: Talker) -> None:
    """Claude's last request held each turn of the conversation that had ended well, in order."""
    last = next(
        one
        for one in reversed(stack.asked())
        if MARKER.findall(json.dumps(one["messages"][-1]))
        and _session_of(one).startswith(f"mark-{talker.number}-")
    )
    told = list(dict.fromkeys(MARKER.findall(json.dumps(last["messages"]))))
    done = [marker for marker, state in talker.outcomes.items() if state == "done"]
    assert [marker for marker in told if marker in done] == done


def _session_of(request: dict[str, Any]) -> str:
    return str(MARKER.findall(json.dumps(request["messages"]))[-1])


@pytest.mark.long
async def test_bot_killed_in_our_conversation_forks_nothing(stack: Stack) -> None:
    """The bot's real CLI writes the transcript of one of our conversations, beside our turns and
    between them, and dies in the middle, as our daemon does: both sides stay in one session of
    Claude's, and each turn is known to the model and shown once.
    """
    talker = Talker(stack, 0)
    await talker.begin()
    assert await talker.ask("text begun.") == "done"
    (row,) = stack.rows("SELECT * FROM conversations")
    place = (stack.data, stack.environment)
    ended: list[str] = []
    for number in range(12):
        said = f"theirs-{number:02}."
        lines = (
            script(f"text {said}") if number % 3 else script("repeat 400x50ms x", f"text {said}")
        )
        role = await Role.start(*place, "dispatch", row["name"], lines, "--claude")
        try:
            await eventually(partial(was_asked, stack, said), ENOUGH)
            if number % 2:  # beside it
                assert await talker.ask("text ours beside.") == "done"
            if number % 4 > 1:
                await kill_daemon(stack)
            if number % 3:
                await role.ended()
                ended.append(said)
        finally:
            role.kill()
            await role.process.wait()
        assert await talker.ask("text ours.") == "done"
    asked = json.dumps(stack.asked()[-1]["messages"])
    assert [said for said in ended if said not in asked] == []
    assert [marker for marker in talker.outcomes if marker not in asked] == []
    fresh = await stack.front()
    await fresh.load(talker.session, stack.work)
    shown = fresh.text(talker.session)
    assert [shown.count(said) for said in ended] == [1] * len(ended)
    check_turns(stack, talker)
    (after,) = stack.rows("SELECT * FROM conversations")
    assert after["session_id"] == row["session_id"]


@pytest.mark.long
async def test_conversation_goes_from_door_to_door(stack: Stack) -> None:
    """Ours, then the bot's real CLI, then ours with another server: one session of Claude's."""
    client = await stack.start()
    session = await client.new(stack.work)
    await client.prompt(session, text("Ours."))
    await client.close()
    (row,) = stack.rows("SELECT * FROM conversations")
    place = (stack.data, stack.environment)
    await Role.run(*place, "dispatch", row["name"], text("Theirs."), "--claude")
    client = await stack.start()
    await client.load(session, stack.work)
    await client.prompt(session, text("Ours again."))
    said = json.dumps(stack.asked()[-1]["messages"])
    assert said.index("Ours.") < said.index("Theirs.") < said.index("Ours again.")
    (after,) = stack.rows("SELECT * FROM conversations")
    assert after["session_id"] == row["session_id"]
