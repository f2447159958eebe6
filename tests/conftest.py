"""What all tests share: an empty home, nothing left behind, and long tests only when asked for."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

from pykoclaw_acp.logging.without_rich import import_structlog
from tests import skips, wheels
from tests.leftovers import Run, foreign_variables

import_structlog()  # a traceback that rich draws takes longer than most tests

# Begin a long run, one for each of xdist's workers in turn: last, one would run alone for long.
LONGEST = ("test_fuzz.py", "test_state_machine.py")
_PR_SET_CHILD_SUBREAPER = 36

hypothesis.settings.register_profile("tests", deadline=None)  # a busy machine misses any
hypothesis.settings.load_profile("tests")

_RUN = pytest.StashKey[Run]()
_LEFT = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    for number in (
        signal.SIGINT,
        signal.SIGHUP,
    ):  # a run in the background inherits that they are ignored
        if signal.getsignal(number) is signal.SIG_IGN:
            usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
            signal.signal(number, usual)
    if not hasattr(config, "workerinput"):  # xdist's workers inherit the run
        config.stash[_RUN] = Run()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What collecting imports stays to the end: no collection of garbage has to look at it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("PYKOCLAW_TEST_LONG") == "1":
        items[:] = _longest_first(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))
    else:
        skip = pytest.mark.skip(reason=skips.LONG)
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(skip)


def _longest_first(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """The tests in an order whose `workers` equal parts begin with their share of the longest."""
    longest = [item for item in items if item.path.name in LONGEST]
    longest.sort(key=lambda item: item.get_closest_marker("long") is None)
    others = [item for item in items if item.path.name not in LONGEST]
    ordered: list[pytest.Item] = []
    for part in range(workers):
        size = len(items) * (part + 1) // workers - len(items) * part // workers
        share = longest[part::workers]
        ordered += share + others[: size - len(share)]
        del others[: size - len(share)]
    return ordered


@pytest.hookimpl(trylast=True)  # after xdist has ended its workers
def pytest_sessionfinish(session: pytest.Session) -> None:
    run = session.config.stash.get(_RUN, None)
    if run is not None:
        session.config.stash[_LEFT] = left = run.leftovers()
        if left and session.exitstatus in {pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED}:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            terminalreporter.line(f"{name}: {value}")
    skipped = [one.longrepr[2] for one in terminalreporter.getreports("skipped")]
    if told := skips.line(skipped):
        terminalreporter.line(told, yellow=True, bold=True)
    left = config.stash.get(_LEFT, [])
    if left:
        terminalreporter.section("the tests left something behind", red=True)
        for line in left:
            terminalreporter.line(line)


def pytest_unconfigure(config: pytest.Config) -> None:
    run = config.stash.get(_RUN, None)
    if run is not None:
        run.close()


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout."""
    return wheels.build(wheels.CHECKOUT, tmp_path_factory.mktemp("wheel"))


class Homes:
    """Empty directories; one that a test has left as it was serves the next test, too."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._number = 0

    def empty(self) -> Path:
        home = self._root / str(self._number)
        if home.exists() and (home.stat().st_mode & 0o777 != 0o700 or os.listdir(home)):
            self._number += 1
            home = self._root / str(self._number)
        home.mkdir(mode=0o700, exist_ok=True)
        return home


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Homes:
    return Homes(tmp_path_factory.mktemp("h"))


@pytest.fixture(autouse=True)
def empty_home(homes: Homes, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty HOME for each test, and none of the variables that a developer or an earlier test
    may have set.
    """
    home = homes.empty()
    monkeypatch.setenv("HOME", str(home))
    for name in foreign_variables(os.environ):
        monkeypatch.delenv(name)
    return home


@pytest.fixture(autouse=True)
def orphans_are_inits() -> Generator[None]:
    """A launcher within a test makes this process adopt orphans. Nobody would reap those of later
    tests, and each look at the processes of the machine takes longer by every one of them.
    """
    yield
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
