"""Random walks over windows of a client that are shown a session, confirm, die and return: none
misses an event.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pykoclaw_acp.model.cursors import Cursor, Reader
from pykoclaw_acp.sessions.confirmations import Confirmations
from tests.twins.cursors import MemoryCursorStore

LONG = os.environ.get("PYKOCLAW_TEST_LONG") == "1"
SESSION = "s"


@dataclass(eq=False)
class Process:
    """A client's process. `has`: every event up to here has arrived at it, or at the process that
    it took over from.

    `sent` is how far its front was told, which may be on its way; `front` is None while it has
    none.
    """

    name: str
    client_process: str
    has: int = 0
    sent: int = 0
    front: str | None = None
    connected: bool = False
    alive: bool = True
    opened: bool = False  # the session, ever

    @property
    def reader(self) -> Reader:
        assert self.front is not None
        return Reader(self.name, self.client_process, self.front)


@dataclass(eq=False)
class Window:
    """What a person takes for one client: a process after the other. `had`: what the earlier ones
    were shown, which is in its history. `since`: who took over after its process died.
    """

    name: str
    process: Process
    had: int = 0
    since: list[Process] = field(default_factory=list)


class Walk(RuleBasedStateMachine):
    """The model knows what each process has; what it is shown next must follow that."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.store = MemoryCursorStore()
        self.end = 0
        self.windows: list[Window] = []
        self.left: list[Process] = []  # processes that ended, and that nobody has taken over from
        self.count = 0
        self.verifiable = True
        self.mistaken: set[str] = set()  # names of which one that lived was taken for ended
        self._start_daemon()

    def teardown(self) -> None:
        self._stop_writing()
        self.run(asyncio.sleep(0))
        self.loop.close()

    def run(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(coroutine)

    def _stop_writing(self) -> None:
        for task in asyncio.all_tasks(self.loop):
            if task.get_name() == "write-confirmations":
                task.cancel()

    def _start_daemon(self) -> None:
        self.confirmations = Confirmations(self.store, self._alive)

    def _alive(self, client_process: str) -> bool | None:
        if not self.verifiable:
            return None
        return any(
            one.process.client_process == client_process and one.process.alive
            for one in self.windows
        )

    def _next(self, word: str) -> str:
        self.count += 1
        return f"{word} {self.count}"

    @initialize(
        names=st.sampled_from(["aaa", "aab", "aba", "baa"]),
        places=st.lists(st.integers(0, 6), min_size=3, max_size=3),
        verifiable=st.booleans(),
    )
    def open_windows(self, names: str, places: list[int], verifiable: bool) -> None:
        # or else a process lives, as far as is known, while it is connected
        self.verifiable = verifiable
        self.end = 6
        for name, place in zip(names, places, strict=True):
            window = Window(name, Process(name, self._next("process")))
            self.windows.append(window)
            window.process.front = self._next("front")
            window.process.has = place
            self._attach(window.process, place)
            window.process.sent = self.end
        self.run(self.confirmations.written(60))

    def _attach(self, one: Process, place: int, seen: int | None = None) -> None:
        async def note() -> None:
            self.confirmations.note(SESSION, one.reader, place if seen is None else seen)

        self.run(note())
        one.connected = one.opened = True
        one.sent = place

    def _claim(self, one: Process, upto: int | None = None) -> int | None:
        others = {
            w.process.reader for w in self.windows if w.process.connected and w.process is not one
        }
        claimed = self.confirmations.claim(SESSION, self.end, one.reader, others, upto)
        return cast("int | None", self.run(claimed))

    def _of(self, at: int, condition: Callable[[Window], bool]) -> Window | None:
        fitting = [one for one in self.windows if condition(one)]
        return fitting[at % len(fitting)] if fitting else None

    # --- what happens

    @rule(count=st.integers(5, 20))
    def more_is_said(self, count: int) -> None:
        self.end += count
        for one in self.windows:
            if one.process.connected:
                one.process.sent = self.end

    @rule(at=st.integers(0, 2), part=st.integers(1, 9), confirms=st.booleans())
    def some_of_it_arrives(self, at: int, part: int, confirms: bool) -> None:
        window = self._of(at, lambda one: one.process.front is not None)
        if window is None:
            return
        one = window.process
        one.has = max(one.has, min(one.sent, one.has + part))
        if confirms and one.connected:

            async def note() -> None:
                self.confirmations.note(SESSION, one.reader, min(one.has, one.sent))

            self.run(note())

    @rule(at=st.integers(0, 2))
    def a_front_dies(self, at: int) -> None:
        if window := self._of(at, lambda one: one.process.front is not None):
            window.process.front = None
            window.process.connected = False

    @rule(which=st.sets(st.integers(0, 2), min_size=1))
    def processes_die(self, which: set[int]) -> None:
        for window in [
            one for at, one in enumerate(self.windows) if at in which and one.process.alive
        ]:
            one = window.process
            one.alive = one.connected = False
            one.front = None
            window.had = max(window.had, one.has)
            window.since = []
            self.left.append(one)

    @rule()
    def it_is_written(self) -> None:
        self.run(self.confirmations.flush())

    @rule()
    def the_daemon_dies(self) -> None:
        """What was not written is gone."""
        self._stop_writing()
        self._start_daemon()
        for window in self.windows:
            window.process.connected = False

    @rule(at=st.integers(0, 2))
    def a_front_connects_again(self, at: int) -> None:
        window = self._of(
            at, lambda one: one.process.front is not None and not one.process.connected
        )
        if window is not None:
            one = window.process
            place = self._claim(one, upto=one.sent)
            seen = min(one.has, one.sent)
            self._attach(one, one.sent, seen if place is None else min(place, seen))
            one.sent = self.end

    # --- who returns

    def _returns(self, at: int) -> tuple[Window, Process, bool] | None:
        window = self._of(at, lambda one: one.process.front is None)
        if window is None:
            return None
        new = not window.process.alive
        if new and not self.verifiable:
            # One without a connection counts as ended, and its place is used up.
            self.mistaken |= {
                one.name
                for one in self.windows
                if one.name == window.name and one.process.alive and not one.process.connected
            }
        if new:
            window.process = Process(window.name, self._next("process"), has=window.process.has)
        window.process.front = self._next("front")
        return window, window.process, new

    @rule(at=st.integers(0, 2))
    def one_resumes(self, at: int) -> None:
        """Without a place: it must be shown all that its process has not, or one that it could be
        has not.
        """
        if (found := self._returns(at)) is None:
            return
        window, one, new = found
        start = self._claim(one)
        assert start is not None, "a window that was here before was shown nothing of the past"
        if not new:
            assert start <= one.has
        else:
            fitting = [process for process in self.left if process.name == one.name]
            least = min(fitting, key=lambda process: process.has)
            known = one.name not in self.mistaken
            assert start <= least.has or not known, (
                f"shown after {start}, and the one that has least has {least.has}"
            )
            if known and all(taker.alive for taker in window.since):
                assert start <= window.had, f"shown after {start}, and this window has {window.had}"
            self._took_over(one, least)
            one.has = start
        self._attach(one, start)
        self.run(self.confirmations.written(60))  # before the answer
        one.sent = self.end

    @rule(at=st.integers(0, 2), loads=st.booleans())
    def one_says_where_it_stands(self, at: int, loads: bool) -> None:
        """By a load, which shows everything, or by the place up to which it has everything."""
        if (found := self._returns(at)) is None:
            return
        window, one, new = found
        before = window.process.has
        self._claim(one, upto=self.end if loads else before)
        if new:
            mine = min(
                (process for process in self.left if process.name == one.name),
                key=lambda process: (process.has != before, process.has),
            )
            self._took_over(one, mine)
        self._attach(one, 0 if loads else before)
        self.run(self.confirmations.written(60))
        one.sent = self.end
        if loads:
            one.has = window.had = 0  # what it has is thrown away

    def _took_over(self, one: Process, left: Process) -> None:
        self.left.remove(left)
        for window in self.windows:
            if window.name == one.name and not window.process.alive:
                window.since.append(one)

    @invariant()
    def nobody_is_behind_what_he_has(self) -> None:
        """What is known of a process that lives is never more than it has."""

        async def known() -> list[Cursor]:
            return [one for name in "ab" for one in await self.confirmations.cursors(SESSION, name)]

        places = {(one.client_process, one.front): one.seq for one in self.run(known())}
        for window in self.windows:
            one = window.process
            if one.front is not None:
                assert places.get((one.client_process, one.front), 0) <= one.has


TestWalks = Walk.TestCase
TestWalks.settings = settings(
    max_examples=2000 if LONG else 20, stateful_step_count=60, deadline=None
)
