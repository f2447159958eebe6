"""What the daemon and its workers have logged."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from tests.e2e.harness.stack import Stack


def logs(stack: Stack) -> list[str]:
    """The log files of the home."""
    return [path.read_text() for path in stack.home.glob(".local/state/pykoclaw/*/*.log*")]


# What a front says on stderr when it starts the daemon, which has a log.
STARTING: Final = re.compile(r"pykoclaw-acp \S+: starting the daemon at \S+\n")
# A worker has ended before asyncio had reaped its CLI, on a busy machine.
REAPED_LATE: Final = "that handles pid"
LOCKED: Final = re.compile(r"(?<![a-z])locked", re.IGNORECASE)  # not a loop that was blocked


def warnings(*texts: str) -> list[dict[str, Any] | str]:
    """Log lines that are more than information, and lines that are no log lines."""
    found: list[dict[str, Any] | str] = []
    for line in "\n".join(texts).splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            found += [line] if line.strip() else []
        else:
            if entry.get("level") not in ("debug", "info") and REAPED_LATE not in entry["event"]:
                found.append(entry)
    return found


def locks(stack: Stack, passing: float = 0) -> list[dict[str, Any] | str]:
    """Log lines of all daemons that say that another program's lock was met. One for which a commit
    only waited, less than `passing` s, is left out: on a busy machine others come first.
    """
    own = stack.root / "daemon.log"  # of those that the test has started itself
    texts = [*logs(stack), own.read_text() if own.exists() else ""]
    assert any(texts)
    met = [one for one in warnings(*texts) if LOCKED.search(str(one))]
    return [one for one in met if not _waited(one, passing)]


def _waited(line: dict[str, Any] | str, passing: float) -> bool:
    if isinstance(line, str) or not passing:
        return False
    if line["action"] == "store_available":
        return bool(line["seconds"] < passing)
    return bool(line["action"] == "store_unavailable")
