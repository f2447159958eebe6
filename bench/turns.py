"""A round of what happens between a start and an end, told by the product, the bare SDK and the
peer alike.

Where the baseline of a row is the peer, a ratio above 1 is a regression.
"""

from __future__ import annotations

import subprocess
import sys
import time
from statistics import median, quantiles
from typing import Final

from bench.agents import Agent
from bench.figures import Figures
from bench.lab import OURS, Lab
from bench.pictures import picture
from bench.tap import MARK, Tap

HELLO: Final = "[[script text Hello.]]"
SDK: Final = "bare SDK"
PEER: Final = "peer"
FIRST_TEXT: Final = "session/new and first prompt → first text, ms"
SECOND: Final = "… for a second session, ms"
MS: Final = 1000.0


def turns(lab: Lab, figures: Figures, deltas: int) -> None:
    """Start, sessions, first and later prompts, a long answer, a cancel, the end."""
    told = {who: _story(lab, lab.start(who), deltas) for who in lab.commands}
    ready = {who: story.pop("ready") for who, story in told.items()}
    for name, code in (("bare Python", "pass"), ("Python with the SDK", "import claude_agent_sdk")):
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", code], env=lab.environment, check=True)
        python = (time.monotonic() - began) * MS
        figures.note(
            "start → initialize answered, ms", ready["ours"], name, python, ready.get("peer")
        )
    compare(told, figures)


def compare(told: dict[str, dict[str, float]], figures: Figures) -> None:
    """Note what was measured of each; the first text in a new session also as a ratio to the peer."""
    for what in told["ours"]:
        ours, *others = [story[what] for story in told.values()]
        figures.note(what, ours, SDK, *others)
        if what in (FIRST_TEXT, SECOND) and PEER in told:
            figures.note(what, ours, PEER, told[PEER][what])


def _story(lab: Lab, agent: Agent, deltas: int) -> dict[str, float]:
    one, opened = agent.new()
    first = agent.prompt(one, HELLO)
    later = [agent.prompt(one, HELLO) for _ in range(5)]
    two, opened_too = agent.new()
    other = agent.prompt(two, HELLO)
    three, opened_third = agent.new()
    seen = agent.prompt(three, HELLO, None, picture())
    used = lab.cpu(*OURS)
    long = agent.prompt(one, f"[[script repeat {deltas}x0ms x]]").words
    used = lab.cpu(*OURS) - used
    if len(long) != deltas:
        raise RuntimeError(f"{len(long)} of {deltas} deltas arrived")
    fast = [at for at, _ in agent.prompt(one, "[[script repeat 400x5ms x]]").pieces]
    cancelled = agent.prompt(one, "[[script repeat 2000x5ms x]]", stop_after=20)
    return {
        "ready": (agent.ready - agent.started) * MS,
        "start → first text, ms": (first.pieces[0][0] - agent.started) * MS,
        "session/new, ms": opened * MS,
        FIRST_TEXT: (opened + first.pieces[0][0] - first.sent) * MS,
        SECOND: (opened_too + other.pieces[0][0] - other.sent) * MS,
        "… with an image of 1 MB, ms": (opened_third + seen.pieces[0][0] - seen.sent) * MS,
        "later prompts → first text, ms": median(turn.pieces[0][0] - turn.sent for turn in later)
        * MS,
        "later prompts → answered, ms": median(turn.ended - turn.sent for turn in later) * MS,
        f"{deltas:,} deltas, per second": deltas / (long[-1] - long[0]),
        "CPU of 1,000 deltas, without claude, ms": used * MS * 1000 / deltas,
        "updates a second of 200 deltas a second": (len(fast) - 1) / (fast[-1] - fast[0]),
        "cancel of streaming text → answered, ms": (cancelled.ended - cancelled.stopped) * MS,
        "EOF, three idle sessions → exit, ms": agent.close() * MS,
    }


def pacing(lab: Lab, figures: Figures, deltas: int) -> None:
    """What a delta takes from the model to the client, at the pace of a real model."""
    tap = Tap(lab.url)
    waits: list[list[float]] = []
    for who in lab.commands:
        agent = lab.start(who, ANTHROPIC_BASE_URL=tap.url)
        waits.append(percentiles(agent, tap, deltas))
        agent.close()
    for percent in (50, 99):
        ours, *others = [one[percent - 1] for one in waits]
        figures.note(f"deltas 20 ms apart, to client, p{percent}, ms", ours, SDK, *others)


def percentiles(agent: Agent, tap: Tap, deltas: int) -> list[float]:
    """Of the times that deltas take from the tap to the client (ms), the 1st to the 99th."""
    session, _ = agent.new()
    agent.prompt(session, HELLO)
    tap.seen.clear()
    turn = agent.prompt(session, f"[[script repeat {deltas}x20ms {MARK}]]")
    return quantiles(
        [(at - left) * MS for at, left in zip(turn.words, tap.seen, strict=True)], n=100
    )
