"""What clients are shown, by the settings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Showing:
    """`legacy_models`: `models` and `session/set_model`; None: for clients that are known to need
    them. `thoughts`: Claude's and its subagents' thinking, live and in replays.
    """

    legacy_models: bool | None = None
    thoughts: bool = True
