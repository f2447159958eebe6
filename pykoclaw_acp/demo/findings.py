"""Findings of the demo: expectations, observations, and the rows of its table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

EXPECTED: Final = {
    "initialize": "ACP 1; can load, resume and close sessions",
    "session/new": "an id, and no Claude started for it",
    "daemon": "started by the front, in a session of its own",
    "first token": "text arrives while the model still speaks",
    "permission": "asked before the tool runs, once first",
    "tool": "ran once, and its file is on the disk",
    "daemon killed": "a pause: each word once, one end, asked once",
    "new editor": "ready at once: daemon and worker are there",
    "resume": "the rest by the cursor: each word once",
    "SIGKILL": "the whole tree dies in mid-answer",
    "start again": "ready again on the same data",
    "session/load": "all updates again: same ids, same texts",
    "broken turn": "one; the half answer kept, and called one",
    "context": "the model is sent all earlier turns",
    "session/cancel": "stops the answer; the turn is cancelled",
    "sent once": "each prompt reached the model exactly once",
    "end of input": "front: exit 0 within a second; the daemon stays",
    "SIGTERM": "the daemon ends, no process left",
}


@dataclass(frozen=True, slots=True)
class DemoStep:
    """A step. `right` is None if it was not reached; `ms` is None if no time was measured."""

    step: str
    expected: str
    seen: str
    right: bool | None
    ms: float | None = None


class Findings:
    """Rows of all steps, in order."""

    def __init__(self) -> None:
        self._rows: dict[str, DemoStep] = {}

    def saw(self, step: str, seen: str, *, right: bool, ms: float | None = None) -> DemoStep:
        """Record the observation of a step."""
        row = self._rows[step] = DemoStep(step, EXPECTED[step], seen, right, ms)
        return row

    def broke(self, what: str) -> DemoStep:
        """The demo was interrupted: the first step without an observation has failed."""
        missing = [step for step in EXPECTED if step not in self._rows]
        step = missing[0] if missing else list(EXPECTED)[-1]
        return self.saw(step, what, right=False)

    @property
    def rows(self) -> list[DemoStep]:
        """All steps, also those that were not reached."""
        return [
            self._rows.get(step) or DemoStep(step, expected, "not reached", None)
            for step, expected in EXPECTED.items()
        ]

    @property
    def wrong(self) -> list[DemoStep]:
        """Steps that differ from the expectation."""
        return [row for row in self.rows if row.right is False]

    @property
    def passed(self) -> bool:
        """Whether all steps are as expected."""
        return all(row.right for row in self.rows)
