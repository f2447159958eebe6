"""Who may connect, and who gives way; a client's share of the event loop and of the log."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import time
from pathlib import Path
from typing import Any

import pytest
import structlog

from pykoclaw_acp import on_behalf
from pykoclaw_acp.logging import setup
from pykoclaw_acp.logging import share as log_share
from pykoclaw_acp.logging.share import BURST, LogShare
from pykoclaw_acp.server import admission
from pykoclaw_acp.server.admission import (
    COMMANDS,
    FEWEST,
    Admission,
    AdmittedConnection,
    SpareDescriptor,
    places_left,
    reserve,
)
from pykoclaw_acp.server.peer import ClientLine, DirectPeer
from pykoclaw_acp.server.share import CALLS, PLACES, REST, Share, Turnstile
from pykoclaw_acp.server.sockets import SocketTransport, Unread

ME = 1000


class Places:
    """Connections of an admission; `gone` are those that had to give way."""

    def __init__(self, most: int) -> None:
        self.admission = Admission(most, ME)
        self.gone: list[AdmittedConnection] = []

    def come(
        self, process: int, user: int = ME, *, speaks: bool = True
    ) -> AdmittedConnection | None:
        admitted = self.admission.enter(user, process)
        if admitted is not None:
            admitted.silent = lambda: not speaks
            admitted.close = lambda: self.gone.append(admitted)
        return admitted


def is_ordinary(admitted: AdmittedConnection | None) -> bool:
    return admitted is not None and not admitted.kept


def test_commands_are_admitted_when_all_places_are_taken() -> None:
    places = Places(16)
    assert all(is_ordinary(places.come(process)) for process in range(1, 17))
    kept = [places.come(100 + n) for n in range(reserve(16))]
    assert all(one is not None and one.kept for one in kept)
    assert places.come(200) is None
    assert "PYKOCLAW_MAX_CLIENTS" in places.admission.refusal.message
    assert kept[0] is not None
    places.admission.left(kept[0])
    assert places.come(201) is not None


def test_one_process_has_no_more_than_its_share() -> None:
    places = Places(40)
    mine = [places.come(7) for _ in range(40)]
    assert sum(map(is_ordinary, mine)) == 10
    assert sum(one is not None and one.kept for one in mine) == COMMANDS
    assert is_ordinary(places.come(8))


def test_another_user_has_no_more_than_its_share() -> None:
    places = Places(40)
    assert sum(is_ordinary(places.come(n, user=0)) for n in range(1, 40)) == 10
    assert sum(is_ordinary(places.come(n)) for n in range(100, 150)) == 30


def test_clients_whose_process_cannot_be_seen_are_many() -> None:
    places = Places(40)
    assert all(is_ordinary(places.come(0)) for _ in range(40))


def test_who_keeps_silent_gives_way_the_first_first() -> None:
    places = Places(16)
    first, *_ = [places.come(n, speaks=False) for n in range(1, 17)]
    assert is_ordinary(places.come(50))
    assert places.gone == [first]
    for n in range(60, 75):
        assert is_ordinary(places.come(n))
    assert len(places.gone) == 16
    assert not is_ordinary(places.come(80)), "the others have spoken"


def test_crowding_process_displaces_only_its_own_connections() -> None:
    places = Places(40)
    other = places.come(1, speaks=False)
    crowd = [places.come(7, speaks=False) for _ in range(30)]
    assert other not in places.gone
    assert len(places.gone) == 20
    assert all(map(is_ordinary, crowd))


@pytest.mark.parametrize(("soft", "workers"), [(64, 16), (1024, 16), (1024, 250), (100_000, 16)])
def test_descriptors_are_left_for_all_workers(
    soft: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    used = len(os.listdir("/proc/self/fd"))
    places = places_left(512, workers)
    assert FEWEST <= places <= 512
    if places > FEWEST:
        descriptors = 3  # of a worker: its socket, its pidfd, the lock of its turn
        assert used + places + reserve(places) + workers * descriptors <= soft


def test_without_descriptors_who_connects_hears_so(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    client = socket.socket(socket.AF_UNIX)
    with socket.socket(socket.AF_UNIX) as listener, client:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        spare = SpareDescriptor()
        client.connect(str(tmp_path / "s"))
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))), hard)
        )
        taken = []
        try:
            while True:
                try:
                    taken.append(os.open("/dev/null", os.O_RDONLY))
                except OSError:
                    break
            with pytest.raises(OSError, match="open files"):
                listener.accept()
            spare.refuse(listener, Admission(4, ME).refusal)
        finally:
            for descriptor in taken:
                os.close(descriptor)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            spare.close()
        answer = json.loads(client.recv(65536))
    assert answer["error"]["code"] == -32012
    assert answer["error"]["data"] == {"errorKind": "too_many_clients", "retryable": True}


# --- the loop


async def test_busy_client_waits_only_for_other_busy_clients() -> None:
    turnstile, order = Turnstile(), []

    async def flood(name: str, lines: int) -> None:
        share = Share(turnstile)
        share.begin()
        for _ in range(lines):
            order.append(name)
            await share.step(begun=True)

    await asyncio.gather(flood("a", 5 * CALLS), flood("b", 5 * CALLS), flood("quiet", CALLS - 1))
    turns = [order[at] for at in range(0, 3 * CALLS, CALLS)]
    assert turns[:2] == ["a", "b"]
    assert order.index("quiet") <= 2 * CALLS
    slices = "".join(order[at] for at in range(len(order)) if order[at] != "quiet")
    assert "a" * (2 * CALLS + 1) not in slices


async def test_clients_that_wait_for_answers_take_turns() -> None:
    """Of all that send on without waiting, one begins a call in a round of the loop."""
    turnstile, order = Turnstile(), []

    async def flood(name: str) -> None:
        share = Share(turnstile)
        share.begin()
        for _ in range(CALLS - 1):
            order.append(name)
            await share.step(begun=True, crowded=True)

    await asyncio.gather(flood("a"), flood("b"))
    assert "".join(order) == "ab" * (CALLS - 1)


async def test_process_has_few_places_for_opening_sessions() -> None:
    turnstile, order, inside, most = Turnstile(), [], 0, 0

    async def opens(process: int) -> None:
        nonlocal inside, most
        on_behalf.client.set(process)
        async with turnstile.place():
            order.append(process)
            inside += process == 1
            most = max(most, inside)
            await asyncio.sleep(0.001)
            inside -= process == 1

    async with asyncio.TaskGroup() as group:
        for process in [1] * 3 * PLACES + [2]:
            group.create_task(opens(process))
    assert most == PLACES
    assert order.index(2) == PLACES, "it waited for the other's"


async def test_loop_rests_after_each_slice_for_reader_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They need Python's lock, which a loop that never waits hardly gives away."""
    turnstile, rests = Turnstile(), []
    loop = asyncio.get_running_loop()
    call_later = loop.call_later

    def counting(delay: float, *call: Any, **more: Any) -> asyncio.TimerHandle:
        rests.append(delay)
        return call_later(delay, *call, **more)

    monkeypatch.setattr(loop, "call_later", counting)
    await asyncio.gather(*(turnstile.next() for _ in range(20)))
    assert turnstile.slices == 20
    assert rests == [REST] * 20


async def test_lines_of_large_chunk_are_made_lazily(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def line(number: int, content: bytes) -> ClientLine:
        made.append(number)
        return ClientLine(number, content)

    monkeypatch.setattr("pykoclaw_acp.server.peer.ClientLine", line)

    class Chunk:
        async def read(self) -> bytes:
            return b"{}\n" * 100_000

    peer = DirectPeer(Chunk())  # type: ignore[arg-type]
    async for lines in peer.incoming():
        assert next(iter(lines)).number == 1
        assert made == [1]
        break


async def test_a_slice_of_work_ends_without_calls_too(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(time, "thread_time", lambda: now)
    share = Share(Turnstile())
    share.begin()
    for _ in range(10):
        now += 0.0002
        await share.step(begun=False)
    assert share.waited == 3


async def test_client_with_most_unread_output_is_disconnected() -> None:
    unread = Unread(most=4 * 1024 * 1024)
    ends: list[socket.socket] = []
    transports = []
    for _ in range(3):
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        ends.append(theirs)
        transports.append(await SocketTransport.of(ours, 30, unread))
    one, much, third = transports
    writing = [
        asyncio.ensure_future(transport.write(b"x" * size))
        for transport, size in ((one, 1_500_000), (much, 2_500_000), (third, 1_500_000))
    ]
    await asyncio.wait([writing[1]], timeout=60)
    assert isinstance(writing[1].exception(), ConnectionError)
    assert not writing[0].done()
    assert not writing[2].done()
    for task, end in zip(writing, ends, strict=True):
        task.cancel()
        end.close()
    await asyncio.wait(writing)
    for transport in transports:
        await transport.close()


# --- the log


def test_log_share_limits_client_and_counts_dropped_lines(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = 0.0
    logger = structlog.get_logger()
    share = LogShare(lambda: now, log_share.Bucket(10**6, 1, lambda: now))
    setup.configure("info", "json")
    token = log_share.current.set(share)
    try:
        for _ in range(BURST + 500):
            logger.info("A call was refused", action="call_refused")
        logger.error("This is another matter", action="failed")
        now = 10.0
        logger.info("Later", action="later")
    finally:
        log_share.current.reset(token)
    share.tell()
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    actions = [line["action"] for line in lines]
    assert actions.count("call_refused") == BURST
    assert actions[BURST:] in (
        ["log_lines_left_out", "failed", "later"],
        ["failed", "log_lines_left_out", "later"],
    )
    assert [line["lines"] for line in lines if line["action"] == "log_lines_left_out"] == [500]


def test_all_clients_together_fill_no_log_either() -> None:
    everybody = log_share.Bucket(150, 0, lambda: 0.0)
    taken = [LogShare(lambda: 0.0, everybody).take("info") for _ in range(1000)]
    assert sum(taken) == 150


def test_a_log_file_is_begun_anew_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "daemon.log"
    monkeypatch.setattr(setup, "_MOST", 100_000)
    monkeypatch.setattr(setup, "_LOOK", 10_000)
    sizes = []
    with path.open("a") as stream:
        setup.configure("info", "json", stream)
        setup.keep_small(str(path))
        logger = structlog.get_logger()
        for _ in range(2000):
            logger.info("x" * 500)
            sizes.append(path.stat().st_size)
    setup.configure("info", "json")
    assert max(sizes) < 120_000
    assert '"log_begun_anew"' in path.read_text()


def test_the_reserve_is_small() -> None:
    assert [reserve(most) for most in (4, 16, 64, 512)] == [2, 2, 8, admission.RESERVE]
