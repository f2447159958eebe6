"""How many plans of a piece of a transcript are kept: the newest ones, as far as there is room."""

from __future__ import annotations

from typing import Final

from pykoclaw_acp.model.events import Event, Plan, size

MOST_PLANS: Final = 64 * 1024  # characters of the plans in a piece, of which the newest counts


def without_old_plans(events: list[tuple[str, str, Event]]) -> list[tuple[str, str, Event]]:
    """The events with as many of the newest plans as there is room for: each is a whole one, and
    replaces those before it.
    """
    room = MOST_PLANS
    left: list[tuple[str, str, Event]] = []
    for one in reversed(events):
        if isinstance(one[2], Plan):
            if room <= 0:
                continue
            room -= size(one[2])
        left.append(one)
    return left[::-1]
