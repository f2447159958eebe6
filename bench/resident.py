"""A round of what the resident daemon and its fronts cost: starts, latency, memory, recovery."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Final

from bench.agents import Agent
from bench.figures import Figures
from bench.lab import EVERY, Lab
from bench.logbook import Logbook
from bench.tap import Tap
from bench.turns import HELLO, MS, PEER, SDK, percentiles
from pykoclaw_acp.demo import processes
from pykoclaw_acp.link.places import lock_holder

READY_FD: Final = "PYKOCLAW_READY_FD"
DATA: Final = ".local/share/pykoclaw"  # in the home
END_WAIT: Final = 30.0  # s
LOAD_LIMIT: Final = 30  # ms
ADDED_LIMIT: Final = 1  # ms
CONVERSION_LIMIT: Final = 60  # s, for 1,000,000 events


@contextmanager
def daemon(lab: Lab, **environment: str) -> Iterator[float]:
    """A daemon, from its start on; gives the seconds until it was ready. What it leaves
    is killed.
    """
    began = time.monotonic()
    ready, theirs = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-m", "pykoclaw_acp", "serve"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env=lab.environment | environment | {READY_FD: str(theirs)}, pass_fds=[theirs],
    )  # fmt: skip
    os.close(theirs)
    try:
        word = os.read(ready, 1000)
        seconds = time.monotonic() - began
        if word != b"ready\n":
            raise RuntimeError(f"the daemon said {word!r}")
        yield seconds
    finally:
        os.close(ready)
        process.terminate()
        process.wait(END_WAIT)
        processes.kill(lab.home)


def starts(lab: Lab, figures: Figures, times: int) -> None:
    """From a front's start to its first answers, with a daemon that runs and without one, and to the
    first text of a new daemon.
    """
    with daemon(lab):
        warm = median(_start(lab) for _ in range(times))
    cold, opened, text = zip(*(_cold_start(lab) for _ in range(times)), strict=True)
    python = []
    for _ in range(times):
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", "pass"], env=lab.environment, check=True)
        python.append((time.monotonic() - began) * MS)
    peer = [_begin(lab.start(PEER)) for _ in range(times)] if PEER in lab.commands else []
    baselines = [
        ("bare Python", median(python)),
        *([(PEER, median(one[0] for one in peer))] if peer else []),
    ]
    theirs = [median(column) for column in zip(*peer, strict=True)] or [None, None, None]
    for name, against in baselines:
        figures.note("front start → initialize answered, ms", warm, name, against, theirs[0])
        figures.note("… daemon has to be started, ms", median(cold), name, against, theirs[0])
    figures.note("… → session/new answered, ms", median(opened), *baselines[0], theirs[1])
    name, against = baselines[0] if theirs[2] is None else (PEER, theirs[2])
    figures.note("… → first text, ms", median(text), name, against, theirs[2])


def fronted(lab: Lab, figures: Figures, deltas: int) -> None:
    """What a delta takes from the model to the client of a front, at the pace of a real model."""
    tap = Tap(lab.url)
    with daemon(lab):
        front = lab.start_front(ANTHROPIC_BASE_URL=tap.url)
        ours = percentiles(front, tap, deltas)
        front.close()
    agent = lab.start("bare", ANTHROPIC_BASE_URL=tap.url)
    bare = percentiles(agent, tap, deltas)
    agent.close()
    for percent in (50, 99):
        name = f"deltas 20 ms apart, to client of a front, p{percent}, ms"
        figures.note(name, ours[percent - 1], SDK, bare[percent - 1])
    added = ours[49] - bare[49]
    figures.note("… of which front, daemon and worker add, p50, ms", added, SDK, bare[49])
    figures.note("… of which front, daemon and worker add, p50, ms", added, "limit", ADDED_LIMIT)


def attached(lab: Lab, figures: Figures, few: int, many: int) -> None:
    """What an idle client costs that has a session: its front, and what the daemon grows by."""
    idle = [
        subprocess.Popen([sys.executable, "-c", "input()"], stdin=-1, env=lab.environment)
        for _ in range(many)
    ]
    python = lab.memory("pss", "tool") / many
    for process in idle:
        process.communicate(b"\n")
    with daemon(lab):
        fronts = [lab.start_front()]
        fronts[0].prompt(fronts[0].new()[0], HELLO)
        before = lab.memory("pss", "front", "daemon")
        for _ in range(many):
            fronts.append(lab.start_front())
            fronts[-1].new()
        ours = (lab.memory("pss", "front", "daemon") - before) / many
        for front in fronts:
            front.close()
    peer = None
    if "peer" in lab.commands:
        agents = [lab.start("peer") for _ in range(few)]
        for agent in agents:
            agent.new()
        peer = lab.memory("pss", *EVERY) / few
        for agent in agents:
            agent.close()
    figures.note(
        "idle client: front, part of the daemon, PSS, MiB", ours, "idle Python", python, peer
    )


def recovery(lab: Lab, figures: Figures, book: Logbook) -> None:
    """From the start of a daemon until it serves, after one that was killed in the
    middle of turns.
    """
    with daemon(lab, PYKOCLAW_DATA=str(book.empty)) as nothing:
        pass
    book.kill()
    with daemon(lab, PYKOCLAW_DATA=str(book.full)) as everything:
        pass
    if book.states() != {"failed"}:
        raise RuntimeError(f"the turns that ran are {book.states()}")
    what = f"killed with {book.logged:,} events → next daemon ready, ms"
    figures.note(what, everything * MS, "new daemon", nothing * MS)
    unconverted = book.unconverted()
    first = _first_update(lab, book)
    figures.note(
        f"load with {book.logged:,} events stored → first update, ms",
        first * MS,
        "limit",
        LOAD_LIMIT,
    )
    if unconverted:
        with daemon(lab, PYKOCLAW_DATA=str(book.full)):
            began = time.monotonic()
            while book.unconverted():
                time.sleep(0.1)
            seconds = time.monotonic() - began
        figures.note(
            f"{unconverted:,} events of the old form converted, s",
            seconds,
            "limit",
            CONVERSION_LIMIT,
        )


def _first_update(lab: Lab, book: Logbook) -> float:
    agent = lab.start("ours", PYKOCLAW_DATA=str(book.full))
    turn = agent.reopen("session/load", book.running[0][0])
    agent.close()
    return turn.pieces[0][0] - turn.sent


def _start(lab: Lab) -> float:
    front = lab.start_front()
    front.close()
    return (front.ready - front.started) * MS


def _cold_start(lab: Lab) -> tuple[float, float, float]:
    """As `_begin`, of a front that has to start its daemon."""
    times = _begin(lab.start_front())
    holder = lock_holder(str(lab.home / DATA))
    if holder is None:
        raise RuntimeError("the front has started no daemon")
    os.kill(holder[0], signal.SIGTERM)
    deadline = time.monotonic() + END_WAIT
    while lock_holder(str(lab.home / DATA)) is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    processes.kill(lab.home)
    return times


def _begin(agent: Agent) -> tuple[float, float, float]:
    """From its start until the answers of `initialize` and `session/new`, and until the first text
    (ms).
    """
    session, _ = agent.new()
    opened = time.monotonic()
    first = agent.prompt(session, HELLO).pieces[0][0]
    agent.close()
    at = (agent.ready, opened, first)
    ready, opened, first = ((one - agent.started) * MS for one in at)
    return ready, opened, first
