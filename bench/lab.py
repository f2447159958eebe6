"""Where measurements take place: a home of their own, the scripted model, and what the system says
of the processes.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil  # type: ignore[import-untyped]

from bench.agents import Agent
from pykoclaw_acp.demo import processes

QUIET: Final = 20.0  # percent of the machine that others may use while we begin
STILL: Final = 0.5  # s without work, after which processes count as idle
STILL_WAIT: Final = 20.0  # s
OURS: Final = (
    "front",
    "command",
    "daemon",
    "fork server",
    "worker",
    "tool",
)  # all but Claude's own
EVERY: Final = (*OURS, "claude")
WORK: Final = "project"  # the sessions' directory in the home


@dataclass(frozen=True, slots=True)
class Lab:
    """`commands`: of `ours`, `bare` and perhaps `peer`, in this order; `patience` (s): to wait for
    a quiet machine.
    """

    home: Path
    url: str
    environment: dict[str, str]
    commands: dict[str, list[str]]
    patience: float

    def start(self, who: str, **environment: str) -> Agent:
        """One of the agents."""
        return Agent(self.commands[who], self.environment | environment, self.home / WORK)

    def start_front(self, **environment: str) -> Agent:
        """A front of the daemon, which it starts if none runs."""
        variables = self.environment | environment
        return Agent([sys.executable, "-m", "pykoclaw_acp"], variables, self.home / WORK)

    def wait_until_quiet(self) -> None:
        """Wait for a second in which others leave the machine alone, not longer than `patience`."""
        deadline = time.monotonic() + self.patience
        while time.monotonic() < deadline and psutil.cpu_percent(1) > QUIET:
            pass

    def cpu(self, *roles: str) -> float:
        """Seconds of processor time that the live processes of these roles have used."""
        return sum(sum(one.cpu_times()[:2]) for one in self._find(roles))

    def memory(self, kind: str, *roles: str) -> float:
        """MiB, `pss` or `rss`, of the live processes of these roles, once everything is idle."""
        deadline, before, used = time.monotonic() + STILL_WAIT, -1.0, 0.0
        while used - before > 0.01 and time.monotonic() < deadline:
            before = used
            time.sleep(STILL)
            used = self.cpu(*EVERY)
        return float(
            sum(getattr(one.memory_full_info(), kind) for one in self._find(roles)) / 2**20
        )

    def _find(self, roles: tuple[str, ...]) -> list[psutil.Process]:
        return [psutil.Process(one.pid) for one in processes.find(self.home) if one.role in roles]
