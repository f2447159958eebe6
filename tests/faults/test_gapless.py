"""A long answer with a tool in it, while the daemon or the front is killed, stopped or replaced
under it.

Whatever happens: what the client holds equals the log and what the model sent, each once; the
prompt gets its one response; the model was asked once.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import shutil
import signal
import sys
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import pytest

import pykoclaw_acp
from tests.e2e.commands import done
from tests.e2e.harness import Client, Stack, script
from tests.folds import told
from tests.waiting import eventually

HALF: Final = 1000
TURN: Final = script(
    f"repeat {HALF}x1ms a{{n}}.",
    "bash echo from-the-tool",
    f"repeat {HALF}x2ms b{{n}}.",
    "bash until [ -e go ]; do sleep 0.05; done",  # a client may read more slowly than it is told
)
WHOLE: Final = [f"{part}{n}" for part in "ab" for n in range(1, HALF + 1)]
# words that were seen
MOMENTS: Final = random.Random(20261120).sample(range(1, 3 * HALF // 2), 5)
PAUSE: Final = 3.0  # s that a daemon is stopped

moments = pytest.mark.parametrize(
    "moment",
    [pytest.param(one, marks=() if one == MOMENTS[0] else pytest.mark.long) for one in MOMENTS],
)


def words(*clients: Client, session: str) -> list[str]:
    """What the clients were told by the model, one client after the other."""
    return re.findall(r"[ab]\d+", "".join(client.text(session) for client in clients))


def seqs(*clients: Client, session: str) -> list[int]:
    return [
        update["_meta"]["pykoclaw.dev/seq"] for client in clients for update in client.of(session)
    ]


async def begin(
    stack: Stack, moment: int, client: Client
) -> tuple[str, asyncio.Future[dict[str, Any]]]:
    """A turn of which so many words were seen."""
    session = await client.new(stack.work)
    answer = client.prompting(session, TURN)
    await client.until(lambda: len(words(client, session=session)) >= moment, timeout=60)
    return session, answer


def may_end(stack: Stack) -> None:
    """Let the turn end: what was to happen in it has happened."""
    (stack.work / "go").touch()


async def check(stack: Stack, session: str, *clients: Client) -> None:
    """What the clients hold together, against the model's words, the log, a fresh load, and the
    model's requests.
    """
    assert words(*clients, session=session) == WHOLE
    places = stack.covered(session)
    assert places == list(range(1, len(places) + 1))
    shown = seqs(*clients, session=session)
    assert shown == sorted(set(shown))
    assert shown[-1] == places[-1]
    fresh = await stack.front()
    await fresh.load(session, stack.work)
    held = [update for client in clients for update in client.of(session)]
    whole = [
        update for update in fresh.of(session) if update["sessionUpdate"] != "user_message_chunk"
    ]
    assert told(held) == told(whole)
    statuses = [
        update["status"]
        for update in held
        if update["sessionUpdate"] in ("tool_call", "tool_call_update")
    ]
    # A call on a busy machine also reports progress
    assert [status for status, _ in groupby(statuses)] == ["in_progress", "completed"] * 2
    newest = [request["messages"][-1] for request in stack.asked()]
    assert sum(one["role"] == "user" and not one["tool_results"] for one in newest) == 1
    (turn,) = stack.rows(
        "SELECT state, stop_reason FROM acp_turns WHERE acp_session_id = ?", session
    )
    assert turn == {"state": "done", "stop_reason": "end_turn"}


@moments
@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.long)],
    ids=["SIGKILL", "SIGTERM"],
)
async def test_a_daemon_that_dies_is_a_pause(
    stack: Stack, number: signal.Signals, moment: int
) -> None:
    client = await stack.front()
    session, answer = await begin(stack, moment, client)
    await stack.end_daemon(number)
    may_end(stack)
    assert (await client.answer(answer))["stopReason"] == "end_turn"
    await check(stack, session, client)


@pytest.mark.long
@moments
async def test_a_daemon_of_a_new_version_goes_on(stack: Stack, moment: int, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    package = Path(pykoclaw_acp.__file__).parent
    shutil.copytree(
        package, installed / "pykoclaw_acp", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copytree(package.parent / "migrations", installed / "migrations")
    program = (
        sys.executable,
        "-c",
        "import runpy; runpy.run_module('pykoclaw_acp', run_name='__main__')",
    )
    client = await stack.front(program=program, PYTHONPATH=str(installed))
    session, answer = await begin(stack, moment, client)
    for name, before, after in (
        ("__init__.py", f'"{pykoclaw_acp.__version__}"', '"99.0"'),
        ("channel/frames.py", "PROTOCOL: Final = 1", "PROTOCOL: Final = 2"),
        ("link/lines.py", "LINK: Final = 1", "LINK: Final = 2"),
    ):
        source = (installed / "pykoclaw_acp" / name).read_text()
        assert before in source
        (installed / "pykoclaw_acp" / name).write_text(source.replace(before, after))
    await stack.end_daemon()
    may_end(stack)
    assert (await client.answer(answer))["stopReason"] == "end_turn"
    status = (await done(stack, "status", "--json")).json
    assert status["daemon"]["version"] == "99.0"
    await check(stack, session, client)


@pytest.mark.long
@moments
async def test_temporarily_stopped_daemon_loses_nothing(stack: Stack, moment: int) -> None:
    client = await stack.front()
    session, answer = await begin(stack, moment, client)
    pid = stack.daemon_pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    may_end(stack)
    asyncio.get_running_loop().call_later(PAUSE, os.kill, pid, signal.SIGCONT)
    assert (await client.answer(answer))["stopReason"] == "end_turn"
    assert stack.daemon_pid() == pid
    await check(stack, session, client)


@pytest.mark.long
@moments
@pytest.mark.parametrize("daemon_too", [False, True], ids=["front", "front and daemon"])
async def test_a_new_front_goes_on_by_the_cursor(
    stack: Stack, moment: int, daemon_too: bool
) -> None:
    client = await stack.front()
    session, _ = await begin(stack, moment, client)
    if daemon_too:
        await stack.end_daemon(signal.SIGKILL)
    await client.kill()
    may_end(stack)
    other = await stack.front()
    after = seqs(client, session=session)[-1]
    await other.resume(session, stack.work, after=after)
    # The prompt that was running when the front died: Mitto sends it again by itself.
    assert (await other.prompt(session, TURN))["stopReason"] == "end_turn"
    await check(stack, session, client, other)


@pytest.mark.long
@moments
async def test_load_during_turn_shows_everything_once(stack: Stack, moment: int) -> None:
    client = await stack.front()
    session, _ = await begin(stack, moment, client)
    await client.kill()
    may_end(stack)
    other = await stack.front()
    await other.load(session, stack.work)
    await eventually(lambda: stack.rows("SELECT 1 FROM acp_turns WHERE state = 'done'"))
    last = stack.covered(session)[-1]
    await other.until(lambda: seqs(other, session=session)[-1] == last, timeout=60)
    assert other.of(session)[0]["sessionUpdate"] == "user_message_chunk"
    other.updates[session] = other.of(session)[1:]
    await check(stack, session, other)
