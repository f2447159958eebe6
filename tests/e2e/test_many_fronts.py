"""Many clients at once, each a real front: order, completeness, one story for all, and nobody waits
for a slow one.
"""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, Final

import pytest

from pykoclaw_acp.link.places import connect
from tests.e2e.harness import Client, Stack, script
from tests.e2e.harness.deaf import Deaf
from tests.e2e.harness.stack import PROGRAM
from tests.folds import told
from tests.waiting import eventually

REPOSITORY: Final = Path(__file__).parents[2]
IN_MEMORY: Final = (sys.executable, "-m", "tests.e2e.memory_daemon")
USER: Final = "user_message_chunk"
MANY: Final = 50
TOGETHER: Final = 4  # clients on one session
ANSWER: Final = 60  # deltas of each paced answer
STALL: Final = 6.0  # s that a client may not read
# of an answer that fills every buffer between a worker and a client that does not read
PIECES: Final = 250
PIECE: Final = 20_000  # bytes
NOISE: Final = 2000.0  # ms; who waits for a client that does not read waits for seconds, all else is the machine
STAMP: Final = re.compile(r"(\d+)@(\d+)")


@pytest.fixture
async def many(stack: Stack) -> Stack:
    """A daemon with workers in memory."""
    await stack.daemon(
        program=IN_MEMORY,
        PYTHONPATH=str(REPOSITORY),
        PYKOCLAW_MAX_WORKERS="100",
        PYKOCLAW_CLIENT_STALL=str(STALL),
    )
    return stack


def seqs(client: Client, session: str) -> list[int]:
    return [_seq_of(update) for update in client.of(session)]


def _seq_of(update: dict[str, Any]) -> int:
    seq: int = update["_meta"]["pykoclaw.dev/seq"]
    return seq


async def reached(seq: int, session: str, clients: list[Client]) -> None:
    """Wait until each client has this update."""
    for client in clients:
        await client.until(partial(lambda one: seqs(one, session)[-1:] == [seq], client))


def check(stack: Stack, session: str, clients: list[Client]) -> None:
    """Each client has the log but its own messages, before its answer, and what two have is the
    same.
    """
    rows, places = stack.log(session), stack.covered(session)
    assert places == list(range(1, len(places) + 1))
    asked = {row["seq"] for row in rows if row["kind"] == "user_message"}
    others = [
        told(one for one in client.of(session) if one["sessionUpdate"] != USER)
        for client in clients
    ]
    assert all(other == others[0] for other in others)
    for client in clients:
        held = seqs(client, session)
        own = asked - set(held)
        assert len(own) == 1
        assert held == sorted(set(held))
        (turn,) = {row["turn_id"] for row in rows if row["seq"] in own}
        last = max(row["seq"] for row in rows if row["turn_id"] == turn)
        shown = next(at for at, frame in enumerate(client.received) if _seq(frame, session) == last)
        answered = next(
            at
            for at, frame in enumerate(client.received)
            if "stopReason" in frame.get("result", {})
        )
        assert shown < answered


def _seq(frame: dict[str, Any], session: str) -> int | None:
    params = frame.get("params", {})
    if params.get("sessionId") != session or "update" not in params:
        return None
    seq: int | None = params["update"].get("_meta", {}).get("pykoclaw.dev/seq")
    return seq


async def gather_on(stack: Stack, fronts: list[Client]) -> list[str]:
    """A session for each front, but one for the first few; every id stands where its front does."""
    shared = await fronts[0].new(stack.work)
    for other in fronts[1:TOGETHER]:
        await other.resume(shared, stack.work, after=0)
    return [shared] * TOGETHER + [await front.new(stack.work) for front in fronts[TOGETHER:]]


@pytest.mark.long
async def test_fifty_fronts_get_complete_ordered_sessions(many: Stack) -> None:
    fronts = list(await asyncio.gather(*(many.front() for _ in range(MANY))))
    sessions = await gather_on(many, fronts)
    prompts = [
        front.prompting(session, f"pace {ANSWER} 20 20")
        for front, session in zip(fronts, sessions, strict=True)
    ]
    for answer in prompts:
        assert (await fronts[0].answer(answer))["stopReason"] == "end_turn"
    shared = sessions[0]
    await reached(many.log(shared)[-1]["seq"], shared, fronts[:TOGETHER])
    check(many, shared, fronts[:TOGETHER])
    numbers = [str(number) for number in range(ANSWER)]
    for front, session in zip(fronts[TOGETHER:], sessions[TOGETHER:], strict=True):
        check(many, session, [front])
        assert [number for number, _ in STAMP.findall(front.text(session))] == numbers


@pytest.mark.long
@pytest.mark.parametrize("count", [TOGETHER + 1, 8])
async def test_fronts_of_real_workers(stack: Stack, count: int) -> None:
    fronts = list(await asyncio.gather(*(stack.front() for _ in range(count))))
    sessions = await gather_on(stack, fronts)
    turn = script("repeat 100x5ms a{n}.", "bash echo from-the-tool", "repeat 100x5ms b{n}.")
    prompts = [
        front.prompting(session, turn) for front, session in zip(fronts, sessions, strict=True)
    ]
    for answer in prompts:
        assert (await fronts[0].answer(answer))["stopReason"] == "end_turn"
    shared = sessions[0]
    end = stack.log(shared)[-1]["seq"]
    await reached(end, shared, fronts[:TOGETHER])
    check(stack, shared, fronts[:TOGETHER])
    whole = [f"{part}{n}" for part in "ab" for n in range(1, 101)]
    assert re.findall(r"[ab]\d+", fronts[0].text(shared)) == whole * TOGETHER
    for front, session in zip(fronts[TOGETHER:], sessions[TOGETHER:], strict=True):
        check(stack, session, [front])
        assert re.findall(r"[ab]\d+", front.text(session)) == whole
    replayed = await stack.front()
    await replayed.load(shared, stack.work)
    assert {row["seq"] for row in stack.log(shared)} <= set(seqs(replayed, shared))
    assert told(one for one in replayed.of(shared) if one["sessionUpdate"] != USER) == told(
        one for one in fronts[0].of(shared) if one["sessionUpdate"] != USER
    )


# --- clients that do not read


class Watch:
    """When each delta arrived at the clients, against when it left its worker (ms)."""

    def __init__(self, clients: list[Client]) -> None:
        self.latencies: list[float] = []
        for client in clients:
            client.on_update = self._arrived

    def _arrived(self, update: dict[str, Any]) -> None:
        if update["sessionUpdate"] == "agent_message_chunk":
            for _, left in STAMP.findall(update["content"]["text"]):
                self.latencies.append((time.monotonic_ns() - int(left)) / 1e6)

    def middle(self) -> float:
        """Of what arrived since the last time."""
        taken, self.latencies = self.latencies, []
        return median(taken)


def deaf_client(stack: Stack) -> Deaf:
    """One without a front."""
    return Deaf(socket.socket(fileno=connect(stack.places.socket).detach()))


@contextmanager
def deaf_front(stack: Stack) -> Iterator[Deaf]:
    """A client that is deaf, and its front."""
    ours, theirs = socket.socketpair()
    with (stack.root / "deaf-front.log").open("wb") as stderr, theirs:
        end = theirs.fileno()
        process = subprocess.Popen(
            PROGRAM, stdin=end, stdout=end, stderr=stderr, env=stack.environment, cwd="/"
        )
    deaf = Deaf(ours)
    try:
        yield deaf
    finally:
        deaf.close()
        process.wait(30)


@pytest.mark.long
async def test_clients_not_reading_slow_nobody_and_catch_up(many: Stack) -> None:
    one, other, elsewhere = [await many.front() for _ in range(3)]
    session, quiet = await one.new(many.work), await elsewhere.new(many.work)
    await other.resume(session, many.work, after=0)
    watch = Watch([one, other, elsewhere])

    async def long_turn() -> float:
        answers = (
            one.prompting(session, f"pace {PIECES} 10 {PIECE}"),
            elsewhere.prompting(quiet, f"pace {PIECES} 10 20"),
        )
        for answer in answers:
            assert (await one.answer(answer))["stopReason"] == "end_turn"
        await reached(seqs(one, session)[-1], session, [other])
        return watch.middle()

    await long_turn()  # the first one starts what it needs
    before = await long_turn()
    after = seqs(one, session)[-1]
    with ExitStack() as ended:
        behind_front, direct = ended.enter_context(deaf_front(many)), deaf_client(many)
        ended.callback(direct.close)
        for deaf in (behind_front, direct):
            await deaf.follow(session, str(many.work), after)
        beside_deaf = await long_turn()
        assert beside_deaf < max(4 * before, NOISE), (
            f"{before:.1f} ms, with clients that do not read {beside_deaf:.1f}"
        )
        daemon_log = many.root / "daemon.log"
        await eventually(lambda: daemon_log.read_text().count('"client_gone"') == 2, STALL * 5)
        assert direct.hung_up_on

        end = seqs(one, session)[-1]
        missed = [update for update in other.of(session) if _seq_of(update) > after]
        await behind_front.read_up_to(end)
        assert told(behind_front.updates) == told(missed)
        await direct.read_up_to(end)
        assert direct.seqs[-1] < end  # cut off
        again = deaf_client(many)
        ended.callback(again.close)
        await again.follow(session, str(many.work), direct.seqs[-1])
        await again.read_up_to(end)
        shown = direct.seqs + again.seqs
        assert shown == sorted(set(shown))
        assert told(direct.updates + again.updates) == told(missed)
