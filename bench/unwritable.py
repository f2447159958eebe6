"""How long a client waits while the database cannot be written: for history, and for a refusal.

The baseline of the rows is a limit of one second: a ratio above 1 is a regression.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Final
from uuid import uuid4

from bench.agents import Agent, Turn
from bench.figures import Figures
from bench.lab import Lab
from bench.turns import HELLO, MS
from pykoclaw_acp.store.sqlite import sqlite3

LIMIT: Final = 1000.0  # ms
READS: Final = ("session/load", "session/resume", "session/list")
REFUSED: Final = ("session/new", "session/prompt")


def unwritable(lab: Lab, figures: Figures, times: int) -> None:
    """The longest of so many requests of each kind, from the moment in which writing fails on."""
    data = lab.home / "unwritable"
    agent = lab.start("ours", PYKOCLAW_DATA=str(data))
    session, _ = agent.new()
    agent.prompt(session, HELLO)
    kinds: dict[str, Callable[[], AbstractContextManager[None]]] = {
        "locked by another program": lambda: _locked(data / "pykoclaw.db"),
        "refused by the disk": lambda: _full(agent.pid),
    }
    for kind, limit in kinds.items():
        with limit():
            reads = [_read(agent, method, session) for _ in range(times) for method in READS]
            refused = [_refuse(agent, method, session) for _ in range(times) for method in REFUSED]
        figures.note(f"history while writes are {kind} → answered, ms", max(reads), "limit", LIMIT)
        figures.note("… what is new → refused, ms", max(refused), "limit", LIMIT)
        _wait_until_writable(agent, session)
    agent.close()


def _read(agent: Agent, method: str, session: str) -> float:
    if method == "session/list":
        turn, _ = agent.wait(agent.begin(method))
    else:
        turn = agent.reopen(method, session)
    return (turn.ended - turn.sent) * MS


def _refuse(agent: Agent, method: str, session: str) -> float:
    if method == "session/new":
        turn = agent.begin(method, cwd=str(Path.cwd()), mcpServers=[])
    else:
        turn = agent.begin_prompt(session, f"{HELLO} {uuid4()}")
    if _is_answered(agent, turn):
        raise RuntimeError(f"{method} was accepted though nothing can be written")
    return (turn.ended - turn.sent) * MS


def _is_answered(agent: Agent, turn: Turn) -> bool:
    """Whether the response is no error."""
    try:
        agent.wait(turn)
    except RuntimeError:
        return False
    return True


def _wait_until_writable(agent: Agent, session: str) -> None:
    """The daemon looks again at intervals of at most 2 s."""
    while not _is_answered(agent, agent.begin_prompt(session, HELLO)):
        pass


@contextlib.contextmanager
def _locked(database: Path) -> Iterator[None]:
    with closing(sqlite3.connect(database, isolation_level=None, timeout=30)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


@contextlib.contextmanager
def _full(pid: int) -> Iterator[None]:
    """Each write to a file fails, as on a full disk."""
    none, all_of_it = 1, resource.RLIM_INFINITY
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (none, all_of_it))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (all_of_it, all_of_it))
