"""What a run says of tests that were skipped, in one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

LONG = "long: run by `make test-long`"
_PREFIX = "Skipped: "


def line(reasons: Iterable[str]) -> str:
    """How many tests were skipped and why, the most frequent reason first; without the long ones,
    which this run was not to have. Empty if there are none.
    """
    told = [one.removeprefix(_PREFIX) for one in reasons]
    counts = Counter(one for one in told if one != LONG)
    if not counts:
        return ""
    why = "; ".join(f"{number} × {reason}" for reason, number in counts.most_common())
    return f"NOT TESTED HERE: {counts.total()} {'test' if counts.total() == 1 else 'tests'}: {why}"
