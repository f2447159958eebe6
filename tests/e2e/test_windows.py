"""Several processes of one client's name on one session: each is shown what it missed, whoever dies
and returns.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Final

import pytest

import pykoclaw_acp
from tests.e2e.harness import Client, Stack, script, text
from tests.e2e.harness.stack import PROGRAM
from tests.waiting import eventually

# A client's process, without the client: it starts its front, and another one when that is killed.
WINDOW: Final = """
import subprocess, sys
status = -9
while status < 0:
    status = subprocess.call(sys.argv[1:])
sys.exit(status)
"""
# A client that connects to the socket itself.
DIRECT: Final = """
import os, socket, sys, threading
connection = socket.socket(socket.AF_UNIX)
os.chdir(os.path.dirname(sys.argv[1]))
connection.connect(os.path.basename(sys.argv[1]))
def out():
    while data := connection.recv(65536):
        os.write(1, data)
    os._exit(0)
threading.Thread(target=out, daemon=True).start()
while data := os.read(0, 65536):
    connection.sendall(data)
connection.shutdown(socket.SHUT_WR)
threading.Event().wait()
"""
MITTO: Final = {"name": "mitto", "version": "1"}


async def window(stack: Stack, *command: str, **environment: str) -> Client:
    """A new process of the client, initialized."""
    client = await stack.connect(
        Client, sys.executable, "-c", WINDOW, *(command or PROGRAM), **environment
    )
    await client.initialize(clientInfo=MITTO)
    return client


async def killed(stack: Stack, client: Client) -> None:
    """The process is gone with its front, as Mitto that was killed."""
    os.killpg(client.process.pid, signal.SIGKILL)
    await client.gone()
    stack.clients.remove(client)


async def said(client: Client, session: str, words: str) -> None:
    """A prompt that is answered so, by this client, which was shown all of it."""
    await client.prompt(session, text(words))
    await client.until(lambda: client.text(session).endswith(words))


async def confirmed(stack: Stack, count: int) -> None:
    """So many of those that are shown the session have confirmed all of it."""
    query = (
        "SELECT 1 FROM acp_cursors c JOIN acp_sessions s USING (acp_session_id)"
        " WHERE c.seq = (SELECT MAX(seq) FROM acp_log WHERE log_key = s.log_key)"
    )
    await eventually(lambda: len(stack.rows(query)) == count)


async def missed(stack: Stack, session: str, client: Client) -> str:
    """What a plain resume brings of before, and that nothing else follows."""
    await client.resume(session, stack.work)
    before = len(client.of(session, "agent_message_chunk"))
    assert before == 0  # it follows the answer
    other = await stack.front()
    await other.resume(session, stack.work)
    await other.prompt(session, text("From now on."))
    await client.until(lambda: client.text(session).endswith("From now on."))
    assert await other.close() == 0
    stack.clients.remove(other)
    return client.text(session).removesuffix("From now on.")


@pytest.mark.long
@pytest.mark.parametrize(
    "daemon_too", [pytest.param(False, id="window"), pytest.param(True, id="window and daemon")]
)
async def test_of_two_windows_one_dies_behind_the_other(stack: Stack, daemon_too: bool) -> None:
    one = await window(stack)
    session = await one.new(stack.work)
    await said(one, session, "First.")
    two = await window(stack)
    await two.resume(session, stack.work)
    await confirmed(stack, 2)
    await killed(stack, one)
    await said(two, session, "Second.")
    await confirmed(stack, 1)
    if daemon_too:
        await stack.end_daemon(signal.SIGKILL)
    again = await window(stack)
    assert await missed(stack, session, again) == "Second."
    assert two.text(session) == "Second.From now on."


@pytest.mark.long
async def test_a_client_that_was_restarted_again_and_again(stack: Stack) -> None:
    other = await stack.front()
    client = await window(stack)
    session = await client.new(stack.work)
    await other.resume(session, stack.work)
    await said(client, session, "First.")
    for words in ("Second.", "Third.", "Fourth."):
        await confirmed(stack, 2)
        await killed(stack, client)
        await said(other, session, words)
        client = await window(stack)
        await client.resume(session, stack.work)
        await confirmed(stack, 2)
        assert client.text(session) == words


@pytest.mark.long
async def test_missed_output_of_lost_window_is_resent_once(stack: Stack) -> None:
    one = await window(stack)
    session = await one.new(stack.work)
    await said(one, session, "First.")
    await confirmed(stack, 1)
    two = await window(stack)
    await two.resume(session, stack.work)
    await killed(stack, one)
    await said(two, session, "Second.")
    third = await window(stack)
    assert await missed(stack, session, third) == "Second."
    fourth = await window(stack)
    assert await missed(stack, session, fourth) == ""


async def test_client_goes_on_after_its_front_is_killed(stack: Stack) -> None:
    one = await window(stack)
    session = await one.new(stack.work)
    await said(one, session, "First.")
    gone = await window(stack)
    await gone.resume(session, stack.work)
    await confirmed(stack, 2)
    await killed(stack, gone)
    await said(one, session, "Second.")
    await confirmed(stack, 1)
    (front,) = [process for process in stack.processes() if process.parent == one.process.pid]
    front.kill()
    other = await stack.front()
    await other.resume(session, stack.work)
    await said(other, session, "Third.")
    one.updates.clear()
    await one.initialize(clientInfo=MITTO)
    assert (
        await missed(stack, session, one) == "Third."
    )  # and not the other one's "Second." as well


@pytest.mark.long
async def test_sessions_have_places_of_their_own(stack: Stack) -> None:
    one = await window(stack)
    first, second = await one.new(stack.work), await one.new(stack.work)
    await said(one, first, "First.")
    await said(one, second, "Other first.")
    await confirmed(stack, 2)
    two = await window(stack)
    for session in (first, second):
        await two.resume(session, stack.work)
    await killed(stack, one)
    await said(two, first, "Second.")
    again = await window(stack)
    assert await missed(stack, first, again) == "Second."
    assert await missed(stack, second, again) == ""


def older(tmp_path: Path) -> str:
    """The version before, as far as its fronts are concerned: they do not say whose they are."""
    package = Path(pykoclaw_acp.__file__).parent
    shutil.copytree(
        package, tmp_path / "pykoclaw_acp", ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copytree(package.parent / "migrations", tmp_path / "migrations")
    ledger = tmp_path / "pykoclaw_acp/front/ledger.py"
    assert '"parent": self._parent,' in ledger.read_text()
    ledger.write_text(ledger.read_text().replace('"parent": self._parent,', ""))
    return str(tmp_path)


@pytest.mark.long
async def test_old_version_fronts_are_told_apart_too(stack: Stack, tmp_path: Path) -> None:
    await stack.daemon()
    path = older(tmp_path / "older")
    program = (
        sys.executable,
        "-c",
        "import runpy; runpy.run_module('pykoclaw_acp', run_name='__main__')",
    )
    one = await window(stack, *program, PYTHONPATH=path)
    session = await one.new(stack.work)
    await said(one, session, "First.")
    two = await window(stack, *program, PYTHONPATH=path)
    await two.resume(session, stack.work)
    await confirmed(stack, 2)
    await killed(stack, one)
    await said(two, session, "Second.")
    await confirmed(stack, 1)
    again = await window(stack, *program, PYTHONPATH=path)
    assert await missed(stack, session, again) == "Second."


@pytest.mark.long
async def test_direct_socket_client_counts_as_own_process(stack: Stack) -> None:
    await stack.daemon()
    direct = (sys.executable, "-c", DIRECT, stack.places.socket)

    async def start() -> Client:
        client = await stack.connect(Client, *direct)
        await client.initialize(clientInfo=MITTO)
        return client

    one = await start()
    session = await one.new(stack.work)
    await said(one, session, "First.")
    two = await start()
    await two.resume(session, stack.work)
    await confirmed(stack, 2)
    await killed(stack, one)
    await said(two, session, "Second.")
    again = await start()
    assert await missed(stack, session, again) == "Second."


@pytest.mark.long
async def test_without_a_daemon_the_parent_counts_as_well(stack: Stack) -> None:
    one = await window(stack, *PROGRAM, "serve", "--stdio")
    session = await one.new(stack.work)
    await said(one, session, "First.")
    await confirmed(stack, 1)
    one.prompting(session, script("text Half an answer.", "hang"))
    await one.until(lambda: one.text(session).endswith("Half an answer."))
    await eventually(lambda: stack.rows("SELECT 1 FROM acp_turns WHERE state = 'running'"))
    await killed(stack, one)
    await eventually(lambda: stack.daemon_pid() is None)
    again = await window(stack, *PROGRAM, "serve", "--stdio")
    await again.resume(session, stack.work)
    await again.until(lambda: "turn" in again.text(session))
    assert "First." not in again.text(session)
