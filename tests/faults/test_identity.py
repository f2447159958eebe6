"""Data directories that are moved, copied and put back while workers work: whose these are, and
whose they are not.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import Client, Stack, script
from tests.e2e.harness.backups import back_up, put_back
from tests.e2e.harness.processes import Process
from tests.faults.adopting import LONG, TURN, WHOLE, alone, history, turn, words
from tests.waiting import eventually


@pytest.fixture
def elsewhere() -> Iterator[Path]:
    """A directory on another file system, where this machine has one at hand."""
    root = Path(
        tempfile.mkdtemp(
            prefix="pk-identity-", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        )
    )
    try:
        yield root
    finally:
        shutil.rmtree(root)


def move(old: Path, new: Path) -> None:
    """As `mv` does it, also to another file system: it copies, and then deletes."""
    subprocess.run(["mv", old, new], check=True)


def copy(old: Path, new: Path, *options: str) -> None:
    subprocess.run(["cp", "-a", *options, old, new], check=True)


def instance(stack: Stack) -> dict[str, Any]:
    (row,) = stack.rows("SELECT instance, data, copied_from FROM acp_instance")
    return row


def record_of(stack: Stack) -> Path:
    return Path(stack.home, ".local/state/pykoclaw", instance(stack)["instance"], "instance.json")


def status(stack: Stack) -> str:
    command = [sys.executable, "-m", "pykoclaw_acp", "status"]
    return subprocess.run(
        command, env=stack.environment, capture_output=True, text=True, check=True, cwd="/"
    ).stdout


async def goes_on(stack: Stack, session: str, worker: Process) -> Client:
    """The turn comes to its end under the next daemon, and the worker takes another."""
    after = await history(stack, session)
    assert words(after, session) == WHOLE
    assert turn(stack)["state"] == "done"
    await after.prompt(session, script("text The same worker."))
    assert stack.worker(session).pid == worker.pid
    assert len(stack.asked()) == 2
    return after


# --- moved


@pytest.mark.long
async def test_a_moved_directory_keeps_its_worker(stack: Stack) -> None:
    session, _, worker = await alone(stack)
    known = instance(stack)["instance"]
    move(stack.data, stack.root / "moved")
    stack.use(stack.root / "moved")
    await goes_on(stack, session, worker)
    assert instance(stack) == {"instance": known, "data": str(stack.data), "copied_from": None}


@pytest.mark.long
async def test_directory_moved_across_file_systems_keeps_worker(
    elsewhere: Path, stack: Stack
) -> None:
    session, _, worker = await alone(stack)
    move(stack.data, elsewhere / "moved")
    stack.use(elsewhere / "moved")
    await (await goes_on(stack, session, worker)).close()
    # The worker was told where its directory is now: the next move is like any other.
    await stack.end_daemon()
    move(stack.data, elsewhere / "again")
    stack.use(elsewhere / "again")
    last = await stack.front()
    await last.load(session, stack.work)
    await last.prompt(session, script("text Still the same."))
    assert stack.worker(session).pid == worker.pid


@pytest.mark.long
async def test_dead_workers_leftovers_found_from_moved_directory(stack: Stack) -> None:
    session, before, worker = await alone(stack, LONG)
    worker.signal(signal.SIGTERM)
    await eventually(lambda: not stack.processes(), 20)
    move(stack.data, stack.root / "moved")
    stack.use(stack.root / "moved")
    after = await history(stack, session)
    assert words(after, session)[: len(words(before, session))] == words(before, session)
    assert "worker_stopped" in turn(stack)["error"]


# --- copied


@pytest.mark.parametrize(
    "options",
    [(), pytest.param(("--reflink=auto", "--sparse=never"), marks=pytest.mark.long)],
    ids=["cp-a", "reflink"],
)
async def test_a_copy_never_touches_the_originals_worker(
    stack: Stack, options: tuple[str, ...]
) -> None:
    session, _, worker = await alone(stack)
    original, duplicate = stack.data, stack.root / "copy"
    known = instance(stack)["instance"]
    copy(original, duplicate, *options)
    stack.use(duplicate)
    shown = await history(stack, session)
    assert turn(stack)["state"] == "failed"
    assert '"copied"' in turn(stack)["error"]
    assert f"copy of the data directory {original}" in shown.text(session)
    assert instance(stack)["instance"] != known
    assert stack.rows("SELECT * FROM acp_workers") == []
    assert f"a copy of {original}" in status(stack)
    await shown.close()
    await stack.end_daemon()
    assert worker.alive
    stack.use(original)
    await goes_on(stack, session, worker)
    assert instance(stack) == {"instance": known, "data": str(original), "copied_from": None}


@pytest.mark.long
async def test_copy_of_moved_original_is_a_copy(stack: Stack) -> None:
    """At the very path where the original was: a path says nothing."""
    session, _, worker = await alone(stack)
    place, moved = stack.data, stack.root / "moved"
    move(place, moved)
    copy(moved, place)
    shown = await history(stack, session)
    assert '"copied"' in turn(stack)["error"]
    await shown.close()
    await stack.end_daemon()
    stack.use(moved)
    await goes_on(stack, session, worker)


@pytest.mark.long
async def test_one_of_two_copies_of_deleted_gets_worker(stack: Stack) -> None:
    session, _, worker = await alone(stack, LONG)
    one, other = stack.root / "one", stack.root / "other"
    copy(stack.data, one)
    copy(stack.data, other)
    shutil.rmtree(stack.data)
    stack.use(one)
    first = await stack.front()
    await first.load(session, stack.work)
    assert turn(stack)["state"] == "running"
    await first.close()
    await stack.end_daemon()
    record_of(stack).unlink()  # as where it could not be written: the worker knows, too
    stack.use(other)
    second = await history(stack, session)
    assert '"copied"' in turn(stack)["error"]
    await second.close()
    await stack.end_daemon()
    assert worker.alive
    stack.use(one)
    assert (await stack.daemon()).returncode is None
    assert turn(stack)["state"] == "running"


@pytest.mark.long
async def test_copy_started_beside_original_disturbs_nothing(stack: Stack) -> None:
    await stack.daemon()
    client = await stack.front()
    session = await client.new(stack.work)
    answer = client.prompting(session, TURN)
    waiting = client.prompting(session, script("text Second."))
    await client.until(lambda: len(words(client, session)) >= 20)
    worker = stack.worker(session)
    original = stack.data
    copy(original, stack.root / "copy")
    stack.use(stack.root / "copy")
    beside = await stack.front()
    await beside.load(session, stack.work)
    states = [
        row["state"]
        for row in stack.rows("SELECT state FROM acp_turns ORDER BY created_at, state DESC")
    ]
    assert states == ["failed", "cancelled"]
    assert "the prompt waits there" in beside.text(session)
    await beside.close()
    await stack.end_daemon()
    stack.use(original)
    assert (await client.answer(answer))["stopReason"] == "end_turn"
    assert (await client.answer(waiting))["stopReason"] == "end_turn"
    assert words(client, session) == WHOLE
    assert stack.worker(session).pid == worker.pid
    assert len(stack.asked()) == 2


# --- put back


def put_back_whole(stack: Stack, backup: Path) -> None:
    """The data directory anew, as from an archive."""
    shutil.rmtree(stack.data)
    stack.data.mkdir(mode=0o700)
    shutil.copy(backup, stack.data / "pykoclaw.db")


async def says_that_it_was_put_back(stack: Stack, session: str, worker: Process) -> None:
    """The worker is gone, in words, and the session works."""
    after = (
        await history(stack, session)
        if stack.rows("SELECT * FROM acp_turns")
        else await stack.front()
    )
    await after.load(session, stack.work)
    assert not worker.alive
    assert "put back to an earlier state" in after.text(session)
    assert (await after.prompt(session, script("text On again.")))["stopReason"] == "end_turn"
    seqs = stack.covered(session)
    assert seqs
    assert seqs == list(range(1, len(seqs) + 1))


@pytest.mark.long
@pytest.mark.parametrize("restore", [put_back, put_back_whole], ids=["file", "directory"])
async def test_worker_unknown_to_restored_database_ends_in_words(
    stack: Stack, restore: Callable[[Stack, Path], None]
) -> None:
    await stack.daemon()
    client = await stack.front()
    session = await client.new(stack.work)
    backup = back_up(stack)
    client.prompting(session, LONG)
    await client.until(lambda: len(words(client, session)) >= 20)
    worker = stack.worker(session)
    os.killpg(client.process.pid, signal.SIGKILL)
    await stack.end_daemon(signal.SIGKILL)
    restore(stack, backup)
    await says_that_it_was_put_back(stack, session, worker)


@pytest.mark.long
async def test_worker_ahead_of_restored_database_ends_in_words(stack: Stack) -> None:
    await stack.daemon()
    client = await stack.front()
    session = await client.new(stack.work)
    client.prompting(session, LONG)
    await client.until(lambda: len(words(client, session)) >= 20)
    backup = back_up(stack)
    seen = len(words(client, session))
    await client.until(lambda: len(words(client, session)) >= seen + 50)
    worker = stack.worker(session)
    os.killpg(client.process.pid, signal.SIGKILL)
    await stack.end_daemon(signal.SIGKILL)
    put_back(stack, backup)
    await says_that_it_was_put_back(stack, session, worker)
    assert '"restored"' in stack.rows("SELECT error FROM acp_turns ORDER BY created_at")[0]["error"]


@pytest.mark.long
async def test_prompt_run_after_backup_is_not_called_unsent(stack: Stack) -> None:
    """Nobody comes for it, so that it is not sent again either."""
    await stack.daemon()
    client = await stack.front()
    session = await client.new(stack.work)
    gate = stack.work / "gate"
    gate.mkdir()
    client.prompting(session, script("bash while [ -d gate ]; do sleep 0.05; done", "text One."))
    await client.until(lambda: client.of(session, "tool_call"))
    second = client.prompting(session, script("text Two."))
    await eventually(lambda: len(stack.rows("SELECT 1 FROM acp_turns")) == 2)
    backup = back_up(stack)
    gate.rmdir()
    await client.answer(second)
    await client.close()
    await stack.end_daemon()
    put_back(stack, backup)
    await stack.daemon(PYKOCLAW_REJOIN_WINDOW="0.1")
    ended = "SELECT error FROM acp_turns WHERE state NOT IN ('queued', 'running', 'dispatched')"
    await eventually(lambda: len(stack.rows(ended)) == 2)
    assert '"restored"' in stack.rows(f"{ended} ORDER BY position DESC")[0]["error"]
    after = await stack.front()
    await after.load(session, stack.work)
    assert "has it, so it was not sent again" in after.text(session)
    assert "before it sent this prompt" not in after.text(session)


# --- missing


def refused(stack: Stack) -> str:
    """What a server says that does not start; it has changed nothing."""
    before = sorted(stack.data.parent.rglob("*"))
    done = subprocess.run(
        [sys.executable, "-m", "pykoclaw_acp", "serve"], env=stack.environment, capture_output=True, text=True,
        check=False, cwd="/", timeout=60,
    )  # fmt: skip
    assert done.returncode == 78
    assert sorted(stack.data.parent.rglob("*")) == before
    return done.stderr


@pytest.mark.long
@pytest.mark.parametrize("gone", ["file", "directory"])
async def test_start_with_missing_database_creates_no_empty_one(stack: Stack, gone: str) -> None:
    await stack.daemon()
    client = await stack.front()
    session = await client.new(stack.work)
    await client.prompt(session, script("text Kept."))
    await client.close()
    await stack.end_daemon()
    database, away = stack.data / "pykoclaw.db", stack.root / "away"
    lost = database if gone == "file" else stack.data
    move(lost, away)
    said = refused(stack)
    assert f"The database {database} is missing" in said
    move(away, lost)
    again = await stack.front()
    await again.load(session, stack.work)
    assert "Kept." in again.text(session)


@pytest.mark.long
async def test_living_worker_reveals_otherwise_unknown_missing_database(stack: Stack) -> None:
    session, _, worker = await alone(stack, LONG)
    record_of(stack).unlink()
    database, away = stack.data / "pykoclaw.db", stack.root / "away"
    move(database, away)
    assert "end its workers" in refused(stack)
    move(away, database)
    assert worker.alive
    after = await stack.front()
    await after.load(session, stack.work)
    assert turn(stack)["state"] == "running"


@pytest.mark.long
async def test_the_record_can_be_removed_to_begin_anew(stack: Stack) -> None:
    await stack.daemon()
    await stack.end_daemon()
    record = record_of(stack)
    assert record.stat().st_mode & 0o777 == 0o600
    (stack.data / "pykoclaw.db").unlink()
    assert str(record) in refused(stack)
    record.unlink()
    await stack.daemon()
    assert stack.rows("SELECT * FROM acp_sessions") == []
