"""The public module for programs that share conversations: its imports, and its lock."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from pykoclaw_acp import shared
from pykoclaw_acp.model import conversations
from pykoclaw_acp.system import turn_lock
from pykoclaw_acp.system.turn_lock import Holder, TurnLock
from tests.waiting import eventually_sync

NAME = "wa-andy-1@g.us"
HOLD = (
    "import sys, time; from pykoclaw_acp import shared\n"
    "with shared.turn_lock(sys.argv[2], program='bot', data=sys.argv[1]):\n"
    "    print('held', flush=True); time.sleep(1000)"
)


def test_it_imports_no_installed_package() -> None:
    program = (
        "import json, sys; before = set(sys.modules); import pykoclaw_acp.shared;"
        "new = sorted(set(sys.modules) - before); print(json.dumps([new, sorted(sys.stdlib_module_names)]))"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    imported, known = json.loads(result.stdout)
    assert {name.partition(".")[0] for name in imported} - set(known) == {"pykoclaw_acp"}


def holding(data: Path) -> subprocess.Popen[str]:
    """A bot in the middle of a turn."""
    bot = subprocess.Popen(
        [sys.executable, "-c", HOLD, data, NAME], stdout=subprocess.PIPE, text=True
    )
    assert bot.stdout is not None
    assert bot.stdout.readline() == "held\n"
    return bot


def test_who_waits_is_told_who_has_the_lock(tmp_path: Path) -> None:
    with holding(tmp_path) as bot:
        with (
            pytest.raises(shared.Busy) as busy,
            shared.turn_lock(NAME, program="me", wait=0, data=tmp_path),
        ):
            pass
        assert busy.value.holder.program == "bot"
        assert f"bot (process {bot.pid})" in str(busy.value)
        with shared.turn_lock("another", program="me", wait=0, data=tmp_path):
            pass
        bot.kill()


def test_the_lock_of_a_dead_program_is_free(tmp_path: Path) -> None:
    with holding(tmp_path) as bot:
        bot.kill()
    with shared.turn_lock(NAME, program="me", wait=30, data=tmp_path):
        pass
    assert os.listdir(tmp_path / turn_lock.DIRECTORY) == []


def test_waiter_gets_lock_when_it_is_released(tmp_path: Path) -> None:
    order: list[str] = []

    def wait() -> None:
        with shared.turn_lock(NAME, program="second", wait=60, data=tmp_path):
            order.append("second")

    with shared.turn_lock(NAME, program="first", data=tmp_path):
        waiting = threading.Thread(target=wait)
        waiting.start()
        order.append("first")
    waiting.join()
    assert order == ["first", "second"]


def test_many_programs_hold_it_one_at_a_time(tmp_path: Path) -> None:
    inside: list[int] = []
    most: list[int] = []

    def work() -> None:
        for _ in range(20):
            with shared.turn_lock(NAME, program="me", wait=60, data=tmp_path):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(most) == 120
    assert set(most) == {1}


def test_file_its_last_holder_removed_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = TurnLock.take(str(tmp_path), NAME, "before")
    assert isinstance(before, TurnLock)
    lock = fcntl.flock
    done: list[bool] = []

    def late(descriptor: int, operation: int) -> None:
        if not done:  # between the opening of the file and its lock
            done.append(True)
            before.release()
        lock(descriptor, operation)

    monkeypatch.setattr("pykoclaw_acp.system.turn_lock.fcntl.flock", late)
    mine = TurnLock.take(str(tmp_path), NAME, "mine")
    assert isinstance(mine, TurnLock)
    other = TurnLock.take(str(tmp_path), NAME, "other")
    assert isinstance(other, Holder)
    assert other.program == "mine"
    mine.release()


def test_files_are_private_and_name_no_conversation(tmp_path: Path) -> None:
    with shared.turn_lock("../../etc/passwd", program="me", data=tmp_path):
        (name,) = os.listdir(tmp_path / turn_lock.DIRECTORY)
        assert len(name) == 32
        assert (tmp_path / turn_lock.DIRECTORY / name).stat().st_mode & 0o777 == 0o600
        assert (tmp_path / turn_lock.DIRECTORY).stat().st_mode & 0o777 == 0o700


def test_damaged_file_does_not_hide_held_lock(tmp_path: Path) -> None:
    lock = TurnLock.take(str(tmp_path), NAME, "bot")
    assert isinstance(lock, TurnLock)
    (name,) = os.listdir(tmp_path / turn_lock.DIRECTORY)
    (tmp_path / turn_lock.DIRECTORY / name).write_bytes(b"\xff[")
    assert TurnLock.take(str(tmp_path), NAME, "me") == Holder()
    assert str(Holder()) == "another program"
    lock.release()
    lock.release()
    again = TurnLock.take(str(tmp_path), NAME, "me")
    assert isinstance(again, TurnLock)
    again.release()


@pytest.mark.parametrize("change", [str, str.upper])
def test_lock_by_a_sessions_id_is_refused(tmp_path: Path, change: Callable[[str], str]) -> None:
    session = change(conversations.id_of(NAME))
    with (
        pytest.raises(ValueError, match="by the conversation's name"),
        shared.turn_lock(session, program="me", data=tmp_path),
    ):
        pass
    assert os.listdir(tmp_path) == []


def test_no_prompt_goes_while_process_holds_lock(tmp_path: Path) -> None:
    with (
        shared.turn_lock(NAME, program="me", data=tmp_path),
        pytest.raises(RuntimeError, match="release it first"),
    ):
        shared.prompt(NAME, "Hello", data=tmp_path)
    with pytest.raises(ValueError, match="empty"):
        shared.prompt(NAME, " \n", data=tmp_path)
    with pytest.raises(ValueError, match="longer than 896 KiB"):
        shared.prompt(NAME, "x" * 2**20, data=tmp_path)


def test_prompt_goes_while_others_take_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: set[tuple[str, str]] = set()

    class Place(str):
        """A place; while it is looked at, another thread takes a lock."""

        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            held.add((str(self), f"conversation {len(held)}"))
            return str.__eq__(self, other)

    held |= {(Place(f"elsewhere {n}"), NAME) for n in range(3)}
    monkeypatch.setattr(shared, "_held", held)
    with pytest.raises(shared.NotReached):
        shared.prompt(NAME, "Hello", create=False, data=tmp_path, start=False)
    assert len(held) == 6


def test_nothing_happens_without_daemon_or_leave_to_start(tmp_path: Path) -> None:
    with pytest.raises(shared.NotReached):
        shared.prompt(NAME, "Hello", data=tmp_path, start=False)
    eventually_sync(lambda: os.listdir(tmp_path) == [])
