"""The database cannot be written for a while: reading goes on, what is new is refused, what runs
loses nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from pykoclaw_acp.front import call as front
from tests.e2e.commands import run
from tests.e2e.harness import Client, RpcError, Stack, script, text
from tests.e2e.harness.client import selected
from tests.e2e.harness.stack import PROGRAM
from tests.faults.limits import AT_START, IN_USE, FullDisk, Limit, Locked, limited_daemon
from tests.faults.patience import ANSWER, ask, condition, until
from tests.waiting import eventually, not_within

LONG: Final = os.environ.get("PYKOCLAW_TEST_LONG") == "1"
# s for which it lasts, after all has been tried
HOLD: Final = 10.0 if LONG else 1.0
LOCKED: Final = 90.0 if LONG else 1.0  # a lock that lasts longer than anybody waits for one
WORDS: Final = 400
TURN: Final = script(f"repeat {WORDS}x10ms w{{n}}.")
WHOLE: Final = [f"w{n}" for n in range(1, WORDS + 1)]


# In the long run: what they do, the others do as well, in use or at the start.
OF_USE: Final = {"immutable", "file size", "locked", "moved"}
OF_START: Final = {"immutable", "full disk", "locked"}


@pytest.fixture
def limit(request: pytest.FixtureRequest, unmounted: None, stack: Stack) -> Iterator[Limit]:
    kind: type[Limit] = request.param
    made = kind(stack)
    yield made
    made.off()


def limited_by(kinds: dict[str, type[Limit]], often_enough: set[str]) -> pytest.MarkDecorator:
    limits = [
        pytest.param(one, marks=pytest.mark.long if name in often_enough else ())
        for name, one in kinds.items()
    ]
    return pytest.mark.parametrize("limit", limits, ids=list(kinds), indirect=True)


@pytest.fixture
def locked(stack: Stack) -> Iterator[Limit]:
    made = Locked(stack)
    yield made
    made.off()


def hold(limit: Limit) -> float:
    """How long `limit` lasts, in seconds."""
    return LOCKED if limit.state == "locked" else HOLD


def words(client: Client, session: str) -> list[str]:
    return re.findall(r"w\d+", client.text(session))


async def is_refused(request: asyncio.Future[dict[str, Any]]) -> None:
    """At once, with a reason, and with the word that it may be sent again."""
    with pytest.raises(RpcError) as caught:
        await asyncio.wait_for(request, ANSWER)
    assert caught.value.data["retryable"] is True
    assert caught.value.data["reason"]


async def everything_is_said(stack: Stack, state: str, session: str) -> None:
    """What a client and an operator can do while nothing can be written."""
    await until(stack, state)
    listed = await ask(stack, "sessions/list", all=True, limit=10)
    assert session in [one["id"] for one in listed["sessions"]]
    other = await stack.front()
    shown = await asyncio.wait_for(other.call("session/list"), ANSWER)
    assert session in [one["sessionId"] for one in shown["sessions"]]
    await asyncio.wait_for(other.load(session, stack.work), ANSWER)
    assert "It was so." in other.text(session)
    await asyncio.wait_for(other.resume(session, stack.work), ANSWER)
    await is_refused(other.begin("session/new", cwd=str(stack.work), mcpServers=[]))
    await is_refused(other.prompting(session, text("Never.")))
    await is_refused(other.begin("session/set_mode", sessionId=session, modeId="plan"))
    with pytest.raises(front.CallFailed) as caught:
        await ask(stack, "questions/answer", question="x", decision="deny")
    assert caught.value.data["retryable"] is True
    assert await condition(stack) == state


def logged(stack: Stack, action: str) -> bool:
    """By a daemon of a client's or of the test's."""
    logs = (Path(stack.places.log), stack.root / "daemon.log")
    return any(f'"{action}"' in one.read_text() for one in logs if one.exists())


async def a_person_is_told(stack: Stack, state: str) -> None:
    """By the commands and in the log."""
    status = " ".join((await run(stack, "status")).out.split())
    assert f"not possible ({state}): " in status
    assert "New prompts are refused." in status
    (database,) = [one for one in (await run(stack, "doctor", "--json")).json
                   if one["check"] == "database"]  # fmt: skip
    assert database["level"] == "problem"
    words = "is gone, though" if state == "gone" else f"cannot write it ({state})"
    assert words in database["found"]


class Systemd:
    """The other end of `NOTIFY_SOCKET`: the newest line of `systemctl status`."""

    def __init__(self, path: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)
        self.status = ""

    def says(self, what: str) -> bool:
        with contextlib.suppress(BlockingIOError):
            while True:
                for line in self._socket.recv(4096).decode().splitlines():
                    self.status = line if line.startswith("STATUS=") else self.status
        return what in self.status

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def systemd(stack: Stack) -> Iterator[Systemd]:
    made = Systemd(stack.root / "notify")
    yield made
    made.close()


def states(stack: Stack, session: str) -> list[str]:
    found = stack.rows(
        "SELECT state FROM acp_turns WHERE acp_session_id = ? ORDER BY created_at, rowid", session
    )
    return [row["state"] for row in found]


def asked(stack: Stack) -> list[str]:
    """What reached the model, by the last line of each prompt."""
    newest = [one["messages"][-1] for one in stack.asked()]
    return [one["text"] for one in newest if one["role"] == "user" and not one["tool_results"]]


async def begin(stack: Stack) -> tuple[Client, str]:
    """A session with a history, on a daemon that nobody but this test starts."""
    await stack.daemon()
    client = await stack.front()
    session = await client.new(stack.work)
    await client.prompt(session, text("It was so."))
    return client, session


@limited_by(IN_USE, OF_USE)
async def test_turn_and_waiting_prompts_continue_while_unwritable(
    stack: Stack, limit: Limit
) -> None:
    client, session = await begin(stack)
    running = client.prompting(session, TURN)
    await client.until(lambda: len(words(client, session)) >= 20)
    waiting = client.prompting(session, text("After it."))
    unwanted = client.prompting(session, text("Never."))
    await eventually(lambda: len(states(stack, session)) == 4)
    daemon, worker = stack.daemon_pid(), stack.worker(session)
    limit.on()
    await everything_is_said(stack, limit.state, session)
    if LONG:
        await a_person_is_told(stack, limit.state)
    client.notify("$/cancel_request", requestId=client.sent[-1]["id"])
    await asyncio.wait(
        [running, waiting, unwanted], timeout=hold(limit), return_when=asyncio.FIRST_COMPLETED
    )
    assert not any(one.done() for one in (running, waiting, unwanted))
    if limit.state != "gone":
        assert states(stack, session) == ["done", "running", "queued", "queued"]
    limit.off()
    assert (await client.answer(unwanted))["stopReason"] == "cancelled"
    assert states(stack, session)[3] == "cancelled"
    assert (await client.answer(running))["stopReason"] == "end_turn"
    assert (await client.answer(waiting))["stopReason"] == "end_turn"
    assert words(client, session) == WHOLE
    assert client.text(session).endswith("After it.")
    assert (await client.prompt(session, text("All is well.")))["stopReason"] == "end_turn"
    assert (stack.daemon_pid(), stack.worker(session).pid) == (daemon, worker.pid)
    assert len(asked(stack)) == 4
    assert logged(stack, "store_unavailable")
    assert logged(stack, "store_available")


@pytest.mark.long
@limited_by(AT_START, OF_START)
async def test_start_shows_history_and_continues_once_writable(
    stack: Stack, limit: Limit, systemd: Systemd
) -> None:
    client, session = await begin(stack)
    # outlasts it: a worker that is idle without a daemon ends after a minute
    client.prompting(
        session, script(f"repeat {WORDS}x{round(1200 * hold(limit) / WORDS)}ms w{{n}}.")
    )
    await client.until(lambda: len(words(client, session)) >= 20)
    client.prompting(session, text("Waited."))
    await eventually(lambda: states(stack, session) == ["done", "running", "queued"])
    worker = stack.worker(session)
    os.killpg(client.process.pid, signal.SIGKILL)
    await stack.end_daemon(signal.SIGKILL)
    limit.on()
    notify = str(stack.root / "notify")
    daemon = await limited_daemon(stack, *limit.before, NOTIFY_SOCKET=notify)
    await everything_is_said(stack, limit.state, session)
    await eventually(lambda: systemd.says("for reading."))
    await not_within(lambda: daemon.returncode is not None, hold(limit))
    assert await condition(stack) == limit.state
    limit.off()
    await eventually(lambda: systemd.says("serves") and not systemd.says("for reading."), 60)
    after = await stack.front()
    await after.load(session, stack.work)  # its client is back
    await eventually(lambda: states(stack, session) == ["done"] * 3, 60)
    await after.until(lambda: after.text(session).endswith("Waited."))
    assert words(after, session) == WHOLE
    assert (await after.prompt(session, text("All is well.")))["stopReason"] == "end_turn"
    assert daemon.returncode is None
    assert stack.worker(session).pid == worker.pid
    assert len(asked(stack)) == 4


@pytest.mark.long
async def test_waiting_front_gets_no_false_prompt_rejection(stack: Stack, locked: Limit) -> None:
    """Its daemon dies while the database is locked; the next one cannot even look what was
    accepted.
    """
    client, session = await begin(stack)
    running = client.prompting(session, TURN)
    await client.until(lambda: len(words(client, session)) >= 20)
    waiting = client.prompting(session, text("After it."))
    await eventually(lambda: states(stack, session) == ["done", "running", "queued"])
    locked.on()
    before = stack.daemon_pid()
    await stack.end_daemon(signal.SIGKILL)
    await eventually(
        lambda: (pid := stack.daemon_pid()) not in (None, before) and stack.serves(pid or 0), 60
    )
    await everything_is_said(stack, "locked", session)
    await a_person_is_told(stack, "locked")
    assert logged(stack, "store_unavailable")
    locked.off()
    assert (await client.answer(running))["stopReason"] == "end_turn"
    assert (await client.answer(waiting))["stopReason"] == "end_turn"
    assert words(client, session) == WHOLE
    assert len(asked(stack)) == 3


@pytest.mark.long
async def test_question_answer_is_kept_until_writable(stack: Stack, locked: Limit) -> None:
    client, session = await begin(stack)
    client.permit = lambda _: None
    running = client.prompting(session, script("bash touch made-it", "text Made."))
    await client.until(lambda: client.questions)
    locked.on()
    await until(stack, locked.state)
    client.reply(client.questions[0], selected("allow_once"))
    await asyncio.wait([running], timeout=HOLD)
    assert not (stack.work / "made-it").exists()
    locked.off()
    assert (await client.answer(running))["stopReason"] == "end_turn"
    assert (stack.work / "made-it").exists()


async def _serve_in_vain(stack: Stack, *before: str) -> str:
    """Serve until the end, which must come with the status of a database that cannot be used; what
    was said.
    """
    process = await asyncio.create_subprocess_exec(
        *before, *PROGRAM, "serve", stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE, env=stack.environment, cwd="/",
    )  # fmt: skip
    _, said = await asyncio.wait_for(process.communicate(), 60)
    assert "Traceback" not in said.decode()
    assert process.returncode == 78, said.decode()[-1000:]
    return said.decode()


@pytest.mark.long
async def test_no_room_for_new_database_is_reported(stack: Stack) -> None:
    full = FullDisk(stack)
    full.on()
    try:
        assert "pykoclaw.db" in await _serve_in_vain(stack)
    finally:
        full.off()


@pytest.mark.long
@pytest.mark.parametrize("size", [0, 1])
async def test_limit_of_file_size_is_named(stack: Stack, size: int) -> None:
    """With 0 there is no temporary directory either."""
    said = await _serve_in_vain(stack, "prlimit", f"--fsize={size}:")
    assert f"Files may have {size} bytes here at most" in said
    assert "`ulimit -f`" in said


@pytest.mark.long
async def test_start_unable_to_write_files_is_reported(stack: Stack) -> None:
    """RLIMIT_FSIZE leaves room neither for SQLite's own files nor for a copy, nor for the daemon's
    log.
    """
    client, session = await begin(stack)
    await client.close()
    await stack.end_daemon()
    said = await _serve_in_vain(stack, "prlimit", "--fsize=1:")
    assert "pykoclaw.db" in said
    assert "room" in said
    log = stack.root / "limited.log"
    with log.open("wb") as stderr:
        silent = await asyncio.create_subprocess_exec(
            "prlimit", "--fsize=1:", *PROGRAM, "serve", stdin=asyncio.subprocess.DEVNULL, stdout=stderr, stderr=stderr,
            env=stack.environment, cwd="/",
        )  # fmt: skip
    assert await asyncio.wait_for(silent.wait(), 60) == 78
    after = await stack.front()
    await after.load(session, stack.work)
    assert "It was so." in after.text(session)
