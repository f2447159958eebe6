"""Notes of our own in a session's log: pure functions."""

from __future__ import annotations

from typing import Final

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
    return [Text(message_id, said, note=True)]


NOT_LOOKED: Final = "other programs"


def transcript_missing(claude_session_id: str) -> list[Event]:
    """Says that what another program said in this Claude session is not known here."""
    said = (
        "\n\n**Another program has continued this conversation, and what was said there is missing here.** It did so in"
        f" the Claude session {claude_session_id}, which has no transcript on this machine. Claude goes on with what"
        " is shown above.\n\n"
    )
    return [Text(f"missing-{claude_session_id}", said, note=True)]


def not_looked() -> list[Event]:
    """Says that turns of other programs may be missing."""
    said = (
        "\n\n**Turns of other programs may be missing here.** Claude's transcripts could not be read; the log of"
        " pykoclaw-acp says why.\n\n"
    )
    return [Text(NOT_LOOKED, said, note=True)]
