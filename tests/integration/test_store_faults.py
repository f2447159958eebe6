"""The store fails at each statement of everything that is written: nothing is lost, run twice or
pretended.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from pykoclaw_acp.link.places import DATABASE
from tests.databases import place
from tests.integration.memory_front import MemoryFront
from tests.integration.memory_world import MemoryWorker, World, world
from tests.integration.rest import come_to_rest, compare_with_a_new_client
from tests.integration.store_faults import (
    BUSY,
    CORRUPT,
    EIO,
    ERRORS,
    FULL,
    GONE,
    IOERR,
    READONLY,
    UNREADABLE,
    UNSURE,
    VARIANTS,
    StoreError,
)
from tests.promises import check, check_at_rest, turns

LONG: Final = os.environ.get("PYKOCLAW_TEST_LONG") == "1"
QUERIES: Final = 19  # of a scenario, of which the ordinary run takes one
LONGEST: Final = 150  # statements of one scenario, above which something is wrong
PATIENCE: Final = 30.0  # s of the program's time in which it must have told what it cannot do


@dataclass
class Stage:
    """A world with one session, and what a scenario has put there."""

    w: World
    client: MemoryFront
    session: str
    numbers: dict[str, int] = field(default_factory=dict)

    @property
    def worker(self) -> MemoryWorker:
        found = self.w.worker(self.session)
        assert found is not None
        return found

    def prompt(self, words: str) -> None:
        self.numbers[words] = self.client.prompt(self.session, words)

    async def running(self, words: str = "first") -> None:
        """A turn that waits for what its worker is told to do."""
        self.prompt(words)
        await self.w.until(
            lambda: (one := self.w.worker(self.session)) is not None and one.current is not None
        )
        self.worker.tell(f"{words} began, ")
        await self.w.quiet()

    async def behind(self, *words: str) -> None:
        """Prompts that wait behind the running one."""
        for one in words:
            self.prompt(one)
        await self.w.until(
            lambda: sum(row.state == "queued" for row in turns(self.w)) == len(words)
        )


async def stage(w: World) -> Stage:
    assert await w.start()
    client = w.front()
    number = client.new()
    await w.until(lambda: client.answer(number))
    return Stage(w, client, client.asked[number].answer["result"]["sessionId"])  # type: ignore[index]


Act = Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True)
class Scenario:
    """`prepare` runs on a healthy store, `act` on one that fails at some statement; an ordinary run
    takes each statement in so many.
    """

    name: str
    act: Act
    prepare: Act
    settings: dict[str, Any] = field(default_factory=dict)
    stride: int = 2


async def _nothing(s: Stage) -> None:
    pass


async def _one_runs(s: Stage) -> None:
    await s.running()


async def _one_waits(s: Stage) -> None:
    await s.running()
    await s.behind("second", "third")


async def _accept(s: Stage) -> None:
    s.prompt("second")


async def _first(s: Stage) -> None:
    s.prompt("first")


async def _new(s: Stage) -> None:
    s.client.new()


async def _dispatch(s: Stage) -> None:
    s.worker.end()


async def _record(s: Stage) -> None:
    for word in ("one ", "two ", "three "):
        s.worker.tell(word)
        await s.w.quiet()


async def _end(s: Stage) -> None:
    s.worker.tell("the last ")
    s.worker.end()


async def _cancel(s: Stage) -> None:
    s.client.cancel(s.session)


async def _die(s: Stage) -> None:
    s.w.launcher.die(s.worker, keeps=False)


async def _die_with_spool(s: Stage) -> None:
    s.worker.tell("nobody has taken this ")
    s.w.launcher.die(s.worker, keeps=True)


async def _ask(s: Stage) -> None:
    s.worker.ask("q1")


async def _asked(s: Stage) -> None:
    await s.running()
    s.worker.ask("q1")
    await s.w.until(lambda: s.client.questions)


async def _settle(s: Stage) -> None:
    s.client.reply("q1", "allow_once")


async def _park(s: Stage) -> None:
    """Nobody is there to answer."""
    s.w.leave(s.client)
    await s.w.pass_by(20)
    s.client = s.w.front()
    s.client.load(s.session)


async def _parked(s: Stage) -> None:
    await _asked(s)
    await _park(s)
    await s.w.until(lambda: s.client.questions)
    assert s.w.worker(s.session) is None


async def _load(s: Stage) -> None:
    other = s.w.front()
    other.load(s.session)


async def _set_mode(s: Stage) -> None:
    s.client.ask("session/set_mode", sessionId=s.session, modeId="plan")


async def _close(s: Stage) -> None:
    s.client.ask("session/close", sessionId=s.session)


async def _left(s: Stage) -> None:
    """Another daemon's worker, in mid-turn, and two prompts that wait; a dead one's spool."""
    other = s.client.new()
    await s.w.until(lambda: s.client.answer(other))
    second = Stage(s.w, s.client, s.client.asked[other].answer["result"]["sessionId"])  # type: ignore[index]
    await second.running("elsewhere")
    await _one_waits(s)
    await s.w.kill()
    s.worker.tell("while nobody listened, ")
    second.worker.tell("its last words, ")
    s.w.launcher.die(second.worker, keeps=True)


async def _adopt(s: Stage) -> None:
    await s.w.start()
    await s.w.quiet()
    if s.w.app is not None and s.worker.current is not None:
        s.worker.tell("adopted ")


PARK: Final = {"away_policy": "park"}
MANY: Final = 11  # of a scenario with many statements; no factor of how many errors take turns
SCENARIOS: Final = [
    Scenario("a new session", _new, _nothing),
    Scenario("the first prompt", _first, _nothing),
    Scenario("accept", _accept, _one_runs),
    Scenario("dispatch", _dispatch, _one_waits, stride=MANY),
    Scenario("record", _record, _one_waits),
    Scenario("end", _end, _one_waits, stride=MANY),
    Scenario("cancel", _cancel, _one_waits, stride=MANY),
    Scenario("a worker's death", _die, _one_waits, stride=MANY),
    Scenario("a worker's death with a spool", _die_with_spool, _one_waits, stride=MANY),
    Scenario("ask", _ask, _one_waits),
    Scenario("settle", _settle, _asked),
    Scenario("park", _park, _asked, PARK, MANY),
    Scenario("settle what is parked", _settle, _parked, PARK, MANY),
    Scenario("load", _load, _one_waits),
    Scenario("set a mode", _set_mode, _one_waits),
    Scenario("close", _close, _one_runs),
    Scenario("adopt", _adopt, _left, stride=MANY),
]
MOMENTS: Final = {"once": 1, "for a while": 4, "until healed": None}
IN_TURN: Final = [
    (FULL, "until healed"),
    (BUSY, "for a while"),
    (READONLY, "until healed"),
    (IOERR, "once"),
    (CORRUPT, "for a while"),
    (EIO, "once"),
    (EIO, "for a while"),
]


@contextmanager
def _of(case: str) -> Iterator[None]:
    """Say of what fails here at which statement it was."""
    try:
        yield
    except AssertionError as error:
        error.add_note(case)
        raise


async def play(
    path: Path, scenario: Scenario, error: StoreError, after: int, times: int | None
) -> bool:
    """One run; False if the scenario is over before `after` statements."""
    data = path / "data"
    data.mkdir(parents=True, mode=0o700)
    place(data / DATABASE)
    with world(path, **scenario.settings) as w:
        try:
            s = await stage(w)
            await scenario.prepare(s)
            w.faults.arm(error, after, times)
            await scenario.act(s)
            await w.pass_by(PATIENCE)
            check(w)
            failed = w.faults.raised > 0
            if error.kept and w.app is not None:
                await w.kill()  # only so it can be that this is found in the file
            w.faults.heal()
            await come_to_rest(w)
            check_at_rest(w)
            await w.restart()
            await come_to_rest(w)
            check_at_rest(w)
            await compare_with_a_new_client(w, s.session)
        finally:
            await w.close()
    return failed


async def every_statement(
    path: Path, scenario: Scenario, kinds: Sequence[tuple[StoreError, str]], stride: int = 1
) -> None:
    """Fail at the first statement, at the next, and so on; `kinds` take turns, each with how long
    it stays.
    """
    for after in range(0, LONGEST, stride):
        error, moment = kinds[after % len(kinds)]
        with _of(f"{scenario.name}: {error} {moment}, after {after} statements"):
            if not await play(path / str(after), scenario, error, after, MOMENTS[moment]):
                assert after > 0, "the scenario writes nothing"
                return
    raise AssertionError("the scenario never ends")


def name(one: object) -> str:
    return one.name if isinstance(one, Scenario) else str(one)


every_scenario = pytest.mark.parametrize("scenario", SCENARIOS, ids=name)


@every_scenario
async def test_writable_store_keeps_every_promise(tmp_path: Path, scenario: Scenario) -> None:
    assert not await play(tmp_path / "healthy", scenario, FULL, LONGEST * 10, None)


@every_scenario
async def test_an_error_at_any_statement_costs_nothing(tmp_path: Path, scenario: Scenario) -> None:
    """At every other one, or fewer; the long test leaves none out."""
    await every_statement(tmp_path, scenario, IN_TURN, scenario.stride)


@pytest.mark.long
@every_scenario
@pytest.mark.parametrize("error", ERRORS, ids=name)
async def test_every_error_at_every_statement(
    tmp_path: Path, scenario: Scenario, error: StoreError
) -> None:
    """At each statement the errors stay for different times."""
    first = ERRORS.index(error) % len(MOMENTS)
    moments = [*MOMENTS][first:] + [*MOMENTS][:first]
    await every_statement(tmp_path, scenario, [(error, moment) for moment in moments])


@pytest.mark.long
@every_scenario
@pytest.mark.parametrize("error", VARIANTS, ids=name)
async def test_variants_of_errors_at_every_other_statement(
    tmp_path: Path, scenario: Scenario, error: StoreError
) -> None:
    await every_statement(tmp_path, scenario, [(error, moment) for moment in MOMENTS], 2)


@every_scenario
async def test_failed_query_costs_nothing(tmp_path: Path, scenario: Scenario) -> None:
    """Of a daemon that serves; one that starts ends then with a reason, and is started again."""
    moments = [*MOMENTS] if LONG else ["for a while"]
    kinds = [(UNREADABLE, moment) for moment in moments]
    await every_statement(tmp_path, scenario, kinds, 1 if LONG else QUERIES)


@pytest.mark.long
@every_scenario
async def test_failed_commit_later_found_in_file(tmp_path: Path, scenario: Scenario) -> None:
    """As when the last fsync fails, and the machine goes down before anything else is written."""
    await every_statement(tmp_path, scenario, [(UNSURE, "until healed")])


@pytest.mark.parametrize("error", [BUSY, FULL, READONLY, IOERR, GONE], ids=name)
async def test_answers_come_within_a_second(tmp_path: Path, error: StoreError) -> None:
    """Of the program's time, while nothing can be written: what reads, and what is refused."""
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    place(data / DATABASE)
    with world(tmp_path) as w:
        try:
            s = await stage(w)
            await s.running()
            w.faults.arm(error)
            s.client.new()
            await w.until(lambda: w.app is not None and not w.app.database.condition.is_writable)
            others = [w.front() for _ in range(3)]
            await w.quiet()
            asked = [
                (others[0], others[0].ask("session/list")),
                (others[0], others[0].load(s.session)),
                (others[1], others[1].resume(s.session)),
                (others[2], others[2].new()),
                (s.client, s.client.prompt(s.session, "second")),
                (s.client, s.client.ask("session/set_mode", sessionId=s.session, modeId="plan")),
            ]
            await w.pass_by(1.0)
            answers = [front.answer(number) for front, number in asked]
            assert None not in answers
            assert ["result" in (one or {}) for one in answers] == [True] * 3 + [False] * 3
            w.faults.heal()
            await w.stop()  # which ends the process that looked for what the list has
        finally:
            await w.close()
