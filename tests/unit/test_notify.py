"""What is said to systemd, what is taken from it, and when the watchdog is fed."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pykoclaw_acp.errors import RestartWanted
from pykoclaw_acp.server import health
from pykoclaw_acp.system.systemd import Notifier, inherited_sockets
from pykoclaw_acp.worker.options import credential
from tests.waiting import eventually

VARIABLES = (
    "NOTIFY_SOCKET",
    "WATCHDOG_USEC",
    "WATCHDOG_PID",
    "LISTEN_PID",
    "LISTEN_FDS",
    "LISTEN_FDNAMES",
)


class Systemd:
    """The other end of `NOTIFY_SOCKET`."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self._socket.setblocking(False)

    def heard(self) -> list[str]:
        """The messages since the last call."""
        messages = []
        with suppress(BlockingIOError):
            while True:
                messages.append(self._socket.recv(4096).decode())
        return messages

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Systemd]:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    path = str(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", path)
    made = Systemd(path)
    yield made
    made.close()


# --- sd_notify


def test_what_is_said(systemd: Systemd) -> None:
    notifier = Notifier.from_environment()
    notifier.ready("serves\nyou")
    notifier.status("3 sessions")
    notifier.extend(1.5)
    notifier.watchdog()
    notifier.stopping()
    assert systemd.heard() == [
        "READY=1\nSTATUS=serves you",
        "STATUS=3 sessions",
        "EXTEND_TIMEOUT_USEC=1500000",
        "WATCHDOG=1",
        "STOPPING=1",
    ]


def test_an_abstract_address(systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"pykoclaw-test-{os.getpid()}"
    other = Systemd("\0" + name)
    monkeypatch.setenv("NOTIFY_SOCKET", "@" + name)
    Notifier.from_environment().watchdog()
    assert other.heard() == ["WATCHDOG=1"]
    other.close()


def test_children_cannot_speak_for_the_service(
    systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "4000000")
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    assert Notifier.from_environment().watchdog_interval == 2.0
    assert not set(VARIABLES) & set(os.environ)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "often"},
        {"WATCHDOG_USEC": "4000000", "WATCHDOG_PID": "1"},
    ],
)
def test_no_watchdog_waits(
    variables: dict[str, str], systemd: Systemd, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert Notifier.from_environment().watchdog_interval is None


def test_without_systemd_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    monkeypatch.setenv("WATCHDOG_USEC", "4000000")
    notifier = Notifier.from_environment()
    notifier.ready("well")
    assert notifier.watchdog_interval is None


def test_absent_systemd_is_no_failure(systemd: Systemd) -> None:
    notifier = Notifier.from_environment()
    systemd.close()
    notifier.ready("well")


# --- sd_listen_fds


def test_nothing_was_handed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    assert inherited_sockets() == []


# --- the watchdog


class Part:
    """Answers, hangs, or is broken."""

    def __init__(self) -> None:
        self.hangs = False
        self.broken = False
        self.asked = 0

    async def probe(self) -> None:
        self.asked += 1
        if self.broken:
            raise RestartWanted("It is broken.")
        if self.hangs:
            await asyncio.Event().wait()


@pytest.fixture
def parts() -> tuple[Part, Part]:
    return Part(), Part()


def watchful(systemd: Systemd, interval: float) -> Notifier:
    notifier = Notifier.from_environment()
    notifier.watchdog_interval = interval
    return notifier


async def test_it_is_fed_while_all_is_well(systemd: Systemd, parts: tuple[Part, Part]) -> None:
    watching = asyncio.create_task(health.watch(watchful(systemd, 0.02), *parts))
    await eventually(lambda: parts[1].asked >= 3)
    watching.cancel()
    assert parts[0].asked >= 3
    assert set(systemd.heard()) == {"WATCHDOG=1"}


@pytest.mark.parametrize("which", [0, 1])
async def test_a_part_that_does_not_answer(
    which: int, systemd: Systemd, parts: tuple[Part, Part], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "ANSWER_WAIT", 0.05)
    parts[which].hangs = True
    with pytest.raises(RestartWanted, match=("database", "worker pool")[which]) as wanted:
        await health.watch(watchful(systemd, 0.02), *parts)
    assert wanted.value.exit_code == 75
    assert systemd.heard() == []


async def test_broken_part_requests_restart_itself(
    systemd: Systemd, parts: tuple[Part, Part]
) -> None:
    parts[1].broken = True
    with pytest.raises(RestartWanted, match=r"^It is broken\.$"):
        await health.watch(watchful(systemd, 0.02), *parts)
    assert systemd.heard() == []


async def test_a_late_loop_is_not_fed_for(systemd: Systemd, parts: tuple[Part, Part]) -> None:
    async def block() -> None:
        while True:
            time.sleep(0.05)  # noqa: ASYNC251  this is the fault
            await asyncio.sleep(0)

    tasks = [
        asyncio.create_task(block()),
        asyncio.create_task(health.watch(watchful(systemd, 0.02), *parts)),
    ]
    await eventually(lambda: parts[1].asked >= 3)
    for task in tasks:
        task.cancel()
    assert systemd.heard() == []


# --- LoadCredential


def test_the_services_key_goes_before_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of the environment")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert credential() == {}
    key = tmp_path / "anthropic_api_key"
    key.write_text("")
    assert credential() == {}
    key.write_text("sk-ant-file\n")
    assert credential() == {"ANTHROPIC_API_KEY": "sk-ant-file"}
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    assert credential() == {}
