"""What all tests share: an empty home, nothing left behind, and long tests only when asked for."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.leftovers import Run, foreign_variables

_RUN = pytest.StashKey[Run]()
_LEFT = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    for number in (
        signal.SIGINT,
        signal.SIGHUP,
    ):  # a run in the background inherits that they are ignored
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    if not hasattr(config, "workerinput"):  # xdist's workers inherit the run
        config.stash[_RUN] = Run()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("PYKOCLAW_TEST_LONG") != "1":
        skip = pytest.mark.skip(reason="long: run by `make test-long`")
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(skip)


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
    left = config.stash.get(_LEFT, [])
    if left:
        terminalreporter.section("the tests left something behind", red=True)
        for line in left:
            terminalreporter.line(line)


def pytest_unconfigure(config: pytest.Config) -> None:
    run = config.stash.get(_RUN, None)
    if run is not None:
        run.close()


@pytest.fixture(autouse=True)
def empty_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new, empty HOME for each test, and none of the variables that a developer or an earlier
    test may have set.
    """
    home = tmp_path_factory.mktemp("h")
    monkeypatch.setenv("HOME", str(home))
    for name in foreign_variables(os.environ):
        monkeypatch.delenv(name)
    return home
