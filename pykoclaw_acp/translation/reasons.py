"""Why Claude has started a turn by itself, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pykoclaw_acp.model.events import WHY, Event, note_event

UNKNOWN: Final = "Claude goes on by itself."


def line(turn: str, ended: Mapping[str, str], watched: Sequence[str] = ()) -> list[Event]:
    """What is said before such a turn; `ended`: a sentence for the call of each task that has ended;
    `watched`: what Claude may have had news of.
    """
    why = " ".join(ended.values()) or UNKNOWN
    if watched and not ended:
        why = f"Claude has news of the {' or the '.join(watched)}."
    return [note_event(f"{turn}{WHY}", f"> {why}", tuple(ended))]
