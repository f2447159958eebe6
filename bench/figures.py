"""What was measured: medians with their range, next to a baseline that was measured in the same
round.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from rich.table import Table


@dataclass(slots=True)
class Figure:
    """One row: for each round a value of the product, the baseline and, where it is there, the
    peer.
    """

    what: str
    baseline: str
    ours: list[float] = field(default_factory=list)
    against: list[float] = field(default_factory=list)
    peer: list[float] = field(default_factory=list)
    ratio: list[float] = field(default_factory=list)


class Figures:
    """All rows, in the order of their first value."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Figure] = {}

    def note(
        self, what: str, ours: float, baseline: str, against: float, peer: float | None = None
    ) -> None:
        """One round's values of a row; `what` ends with the unit."""
        row = self.rows.setdefault((what, baseline), Figure(what, baseline))
        row.ours.append(ours)
        row.against.append(against)
        row.ratio.append(ours / against)  # by round: what else the machine did then slowed both
        row.peer.extend([] if peer is None else [peer])

    def table(self) -> Table:
        """For people."""
        table = Table(
            "median [min..max]",
            "pykoclaw-acp",
            "baseline",
            "ratio",
            "peer",
            box=None,
            header_style="cyan",
        )
        for row in self.rows.values():
            ours, against, ratio, peer = map(_shown, (row.ours, row.against, row.ratio, row.peer))
            table.add_row(row.what, ours, f"{against} {row.baseline}", ratio, peer)
        return table


def _shown(values: list[float]) -> str:
    if not values:
        return "–"
    middle, low, high = (
        f"{v:.0f}" if abs(v) >= 100 else f"{v:.3g}"
        for v in (median(values), min(values), max(values))
    )
    return middle if len(values) == 1 else f"{middle} [{low}..{high}]"
