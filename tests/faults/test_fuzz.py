"""Hostile frames over all doors: nothing crashes, each request has one answer, and nothing is held
afterwards.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest

from pykoclaw_acp.link.places import connect as connect_to
from pykoclaw_acp.server.import_control import MOST_UPLOADS
from tests.e2e.harness import Stack
from tests.faults.hostile import ACP, OWN, Attacker, Generator
from tests.waiting import eventually

REPOSITORY: Final = Path(__file__).parents[2]
IN_MEMORY: Final = (sys.executable, "-m", "tests.e2e.memory_daemon")
SEED: Final = os.environ.get("PYKOCLAW_TEST_SEED", "20")
FEW: Final = 18_000
MANY: Final = 500_000  # to each of four daemons, which two cores can serve at a time
WARM: Final = 2_000  # frames after which everything was used once
ROUNDS: Final = 4
GROWTH: Final = 64  # MiB that the allocators may keep; they keep most of it in the first half
LATE_GROWTH: Final = 24  # MiB, of the second half; what leaks goes on
LINE: Final = 64 * 1024 * 1024  # bytes; above what is ever answered
FAULTS: Final = re.compile(  # whole lines; a traceback is in its line, or in those that follow it
    r'.*"action": "(?:request|line|connection|follow_up|delivery)_failed".*|.*Traceback(?:.*\n?)(?:^[^{].*\n?)*',
    re.MULTILINE,
)

LONG: Final = [
    (SEED, FEW),
    *(pytest.param(f"{SEED}-{part}", MANY, marks=pytest.mark.long) for part in range(4)),
]


def rss(pid: int) -> int:
    """MiB."""
    (line,) = [
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmRSS")
    ]
    return int(line.split()[1]) // 1024


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def assert_nothing_failed(log: str) -> None:
    faults = [found[:10_000].replace("\\n", "\n") for found in FAULTS.findall(log)]
    assert not faults, "\n".join(faults)


@contextlib.asynccontextmanager
async def healthy(stack: Stack) -> AsyncIterator[dict[str, Any]]:
    """A client beside all that; its figures are there afterwards."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.faults.healthy", stack.places.socket, str(stack.work), cwd=REPOSITORY,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ready\n"
    figures: dict[str, Any] = {}
    try:
        yield figures
    finally:
        out, _ = await process.communicate(b"\n")
        if process.returncode == 0:
            figures.update(json.loads(out))


@pytest.mark.parametrize(("seed", "frames"), LONG)
async def test_hostile_frames_at_all_doors_of_the_daemon(
    stack: Stack, seed: str, frames: int, request: pytest.FixtureRequest
) -> None:
    process = await stack.daemon(
        program=IN_MEMORY, PYTHONPATH=str(REPOSITORY), PYKOCLAW_LOG_LEVEL="info"
    )
    path = stack.places.socket

    async def connect() -> Any:
        return await asyncio.open_unix_connection(
            sock=socket.socket(fileno=connect_to(path).detach()), limit=LINE
        )

    sessions: list[str] = []
    async with healthy(stack) as idle:
        await Attacker(
            Generator("maker", ("session/new",), sessions, str(stack.work)), connect
        ).send(50)
    doors = {"acp": (ACP, False), "front": (ACP + OWN, True), "control": (OWN, False)}
    share = {"acp": 0.45, "front": 0.35, "control": 0.2}

    async def attack(name: str, count: int, part: int = 0) -> Attacker:
        methods, is_front = doors[name]
        usual = tuple(method for method in methods if method != "session/new") or methods
        generator = Generator(f"{seed}{name}{count}-{part}", usual, sessions, str(stack.work))
        attacker = Attacker(generator, connect, front=is_front)
        await attacker.send(count)
        return attacker

    await asyncio.gather(*(attack(name, int(WARM * share[name])) for name in doors))
    at_rest = descriptors(process.pid)
    sizes = [rss(process.pid)]
    attackers: list[Attacker] = []
    async with healthy(stack) as beside:
        counts = {name: int((frames - WARM) * share[name] / ROUNDS) for name in doors}
        for part in range(ROUNDS):
            attackers += await asyncio.gather(
                *(attack(name, count, part) for name, count in counts.items())
            )
            sizes.append(rss(process.pid))
    assert [one.faults for one in attackers if one.faults] == []
    assert sum(one.answered for one in attackers) > 0.5 * sum(one.sent for one in attackers)
    assert process.returncode is None
    log = (stack.root / "daemon.log").read_text(errors="replace")
    assert_nothing_failed(log)
    # Uploads that have begun are kept for a while.
    await eventually(lambda: descriptors(process.pid) <= at_rest + MOST_UPLOADS)
    assert sizes[-1] <= sizes[0] + GROWTH, sizes
    assert sizes[-1] <= sizes[ROUNDS // 2] + LATE_GROWTH, sizes
    said = f"{frames:,} frames: a healthy client beside them {beside}, alone {idle} (ms); RSS {sizes} MiB"
    request.node.user_properties.append(("fuzz", said))


async def test_hostile_frames_over_standard_streams(stack: Stack) -> None:
    """The input's end is the end of the server, and every request was answered before."""
    with (stack.root / "stdio.log").open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *IN_MEMORY, "--stdio", stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=stderr,
            env={**stack.environment, "PYTHONPATH": str(REPOSITORY)}, cwd=stack.root, limit=LINE,
        )  # fmt: skip

    async def connect() -> Any:
        return process.stdout, process.stdin

    attacker = Attacker(Generator(f"{SEED}stdio", ACP, cwd=str(stack.work)), connect, renewed=2000)
    await attacker.send(2000)
    assert attacker.faults == []
    assert await asyncio.wait_for(process.wait(), 30) == 0
    assert_nothing_failed((stack.root / "stdio.log").read_text(errors="replace"))
