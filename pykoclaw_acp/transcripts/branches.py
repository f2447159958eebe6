"""Which turns of a session's transcripts the followed Claude session holds: pure functions."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pykoclaw_acp.model.imports import TranscriptTurn


def chain(turns: Sequence[TranscriptTurn], head: str | None) -> set[str]:
    """The turns that lead to `head`, with it."""
    parents = {one.uuid: one.parent for one in turns}
    found: set[str] = set()
    while head is not None and head in parents and head not in found:
        found.add(head)
        head = parents[head]
    return found


def lacking(
    turns: Sequence[TranscriptTurn], head: str | None, running: Collection[str]
) -> list[TranscriptTurn]:
    """Turns that Claude, going on from `head`, does not know and has to be told of."""
    held = chain(turns, head)
    return [
        one for one in turns if not one.told and one.uuid not in held and one.uuid not in running
    ]
