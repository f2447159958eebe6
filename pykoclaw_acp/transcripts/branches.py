"""Which turns of a session's transcripts the followed Claude session holds: pure functions."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pykoclaw_acp.model.contexts import entry_uuid
from pykoclaw_acp.model.imports import TranscriptTurn, chain


def lacking(
    turns: Sequence[TranscriptTurn],
    head: str | None,
    running: Collection[str],
    *,
    branching: bool = False,
) -> list[TranscriptTurn]:
    """Turns that Claude does not know and has to be told of: it goes on from `head`, or is yet to
    branch off before whatever it was not told of.

    What it was told in a turn that is on another branch, it does not know.
    """
    parents = {one.uuid: one.parent for one in turns}
    held = {one.uuid for one in turns if one.own} if branching else chain(parents, head)
    forgotten = parents.keys() - held - set(running)
    return [
        one
        for one in turns
        if one.uuid in forgotten and (not one.told or entry_uuid(one.told_in or "") in forgotten)
    ]
