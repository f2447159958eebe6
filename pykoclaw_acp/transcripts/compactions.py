"""Compactions in a transcript: what they show, and whose they are. The CLI writes the boundary of one
before the `/compact` that it was made for.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Literal

from pykoclaw_acp.model.events import Event
from pykoclaw_acp.transcripts import entries, lines
from pykoclaw_acp.transcripts.entries import Entry
from pykoclaw_acp.translation import compaction

AHEAD: Final = 1000  # lines in which the command is looked for
_COMMAND: Final = "/compact"


def events(entry: Entry) -> list[Event]:
    """Events of a compaction, if the entry is the boundary of one."""
    given = entries.compaction(entry)
    return [] if given is None else compaction.of_transcript(str(entry.uuid), given)


def whose(
    descriptor: int, entry: Entry, line: lines.Line, upto: int, own: Collection[str]
) -> Literal["own", "other", "turn", "open"]:
    """Whether the entry in this line is the boundary of a compaction for a prompt of ours, whose uuids
    `own` has, or for a command of another program; `open` as long as nothing follows it that says so.

    `turn`: what it is, is of the turn that it is in, as a compaction that Claude has made by itself.
    """
    given = entries.compaction(entry)
    if given is None or given.get("trigger") == "auto":
        return "turn"
    below, passed = {entry.uuid}, False
    for count, after in enumerate(lines.read(descriptor, line.end, upto)):
        found = entries.decode(after.text)
        if found is None or found.uuid is None or found.parent not in below:
            passed = passed or (found is not None and found.uuid is not None)
            if count >= AHEAD:
                return "turn"
            continue
        below.add(found.uuid)
        if found.uuid in own:
            return "own"
        made = found.is_meta or found.is_compact_summary
        if found.type == "assistant" or (found.type == "user" and not made):
            words = (entries.message(found) or entries.Message()).text
            command = entries.command(words) or ""
            return "other" if command.startswith(_COMMAND) else "turn"
    return "turn" if passed else "open"
