"""Processes of the demo, found in /proc by its temporary home in their environment.

Daemon, fork server, worker and Claude have their own process sessions, and orphans lose their
parents. The environment is inherited by all children, and the home is unique.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pykoclaw_acp.system import processes as facts
from pykoclaw_acp.system import reaper

KILL_WAIT: Final = 10.0  # s; SIGKILL takes milliseconds
END_WAIT: Final = 10.0  # s; for processes that were told to end
_POLL: Final = 0.01  # s
# what a worker calls itself; it has the command line of the fork server
_WORKER: Final = "pykoclaw-worker"
_SPAWNING: Final = ("front", "daemon")
_ORDER: Final = ("front", "command", "daemon", "fork server", "worker", "claude", "tool")


@dataclass(frozen=True, slots=True)
class DemoProcess:
    """A live process of the demo. `start_time` tells it from another process with a recycled pid;
    `command` is short.
    """

    pid: int
    start_time: int
    role: str
    program: str
    command: str


def find(home: Path) -> list[DemoProcess]:
    """Live processes whose environment refers to `home`, the front first."""
    mark = os.fsencode(home)
    found: dict[int, list[str]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark in (entry / "environ").read_bytes():
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
                found[int(entry.name)] = command.rstrip("\0").split("\0")
        except OSError:
            continue  # ended meanwhile, or somebody else's
    processes: list[DemoProcess] = []
    for pid, arguments in found.items():
        started = facts.start_time(pid)
        if started is None or facts.state(pid) in ("Z", "X"):
            continue
        role = "worker" if facts.name(pid) == _WORKER else _role(arguments)
        if role in _SPAWNING and found.get(facts.parent(pid) or 0) == arguments:
            continue  # forked just now: it is about to become what it was forked for
        # Directories, and the CLI's many options, are long and say little.
        short = " ".join([os.path.basename(arguments[0]), *arguments[1:5]])
        processes.append(DemoProcess(pid, started, role, arguments[0], short))
    return sorted(processes, key=lambda process: (_ORDER.index(process.role), process.pid))


def kill(home: Path) -> list[DemoProcess]:
    """Send SIGKILL repeatedly until no process is left; returns those that were found first.

    Raises TimeoutError with the processes that do not die.
    """
    deadline = time.monotonic() + KILL_WAIT
    first = left = find(home)
    while left:
        for process in left:
            reaper.send(process.pid, process.start_time, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise TimeoutError(f"not killed: {', '.join(f'{one.role} {one.pid}' for one in left)}")
        time.sleep(_POLL)
        left = find(home)
    return first


def wait(home: Path) -> list[DemoProcess]:
    """Wait until no process is left; returns those that have not ended within `END_WAIT`."""
    deadline = time.monotonic() + END_WAIT
    while (left := find(home)) and time.monotonic() < deadline:
        time.sleep(_POLL)
    return left


def pids(found: list[DemoProcess], role: str) -> list[int]:
    """Processes with this role."""
    return [process.pid for process in found if process.role == role]


def send(home: Path, role: str, number: signal.Signals) -> list[int]:
    """Send a signal to the processes with this role; returns the pids."""
    sent = [process for process in find(home) if process.role == role]
    for process in sent:
        reaper.send(process.pid, process.start_time, number)
    return [process.pid for process in sent]


def _role(arguments: list[str]) -> str:
    if arguments[1:3] == ["-m", "pykoclaw_acp"]:
        return {(): "front", ("serve",): "daemon"}.get(tuple(arguments[3:]), "command")
    if arguments[1:3] == ["-m", "pykoclaw_acp.worker.forkserver"]:
        return "fork server"
    return "claude" if os.path.basename(arguments[0]) == "claude" else "tool"
