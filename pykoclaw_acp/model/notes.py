"""Notes of our own in a session's log: pure functions."""

from __future__ import annotations

from pykoclaw_acp.model.events import Event, Failure, Text
from pykoclaw_acp.model.turns import Outcome


def failure(turn_id: str, outcome: Outcome) -> list[Event]:
    """What the log says to the user about a turn without an answer."""
    if outcome.failure is None:
        return []
    return [Failure(f"{turn_id}-failure", outcome.failure.message, outcome.failure.kind)]


def gap(message_id: str, missing: int, file: str | None) -> list[Event]:
    """Says that at least so many entries of a worker's spool are missing here; `file` is where the
    rest is kept.
    """
    kept = f" What is left of the file is kept in {file}." if file is not None else ""
    said = (
        "\n\n**Something is missing here.** While no server was there, what Claude said and did was kept in a file, and"
        f" part of that file is damaged, gone or cannot be read: at least {missing} of its entries.{kept} What"
        " follows comes after the gap.\n\n"
    )
    return [Text(message_id, said)]
