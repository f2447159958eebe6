"""What only a search of a transcript tells: the turn of an entry whose parent lies further back, and
where the log's part ends.
"""

from __future__ import annotations

from array import array
from typing import Final

from pykoclaw_acp.transcripts import entries, lines
from pykoclaw_acp.transcripts.wire import Scan

MOST: Final = 1_000_000  # entries that are looked at, from the beginning


def find_turn(descriptor: int, upto: int, uuid: str) -> str | None:
    """The turn that the entry `uuid`, before `upto`, belongs to; None if it is not there.

    Entries are kept as hashes, 24 bytes each: a transcript may have a million of them.
    """
    ids, parents, prompts = array("q"), array("q"), array("q")
    for line in lines.read(descriptor, 0, upto):
        entry = entries.decode(line.text)
        if entry is None or entry.uuid is None or entry.is_sidechain:
            continue
        ids.append(hash(entry.uuid))
        parents.append(hash(entry.parent))
        prompts.append(line.begin if _begins_turn(entry) else -1)
        if len(ids) == MOST:
            break
    wanted = hash(uuid)
    for at in range(len(ids) - 1, -1, -1):
        if ids[at] != wanted:
            continue
        if prompts[at] >= 0:
            return _uuid_at(descriptor, prompts[at], upto)
        wanted = parents[at]
    return None


def taken_upto(scan: Scan, descriptor: int, begin: int, upto: int) -> int:
    """Where the last entry begins, between these places, that is known to be in the log if the file
    is read anew; -1 if none is.
    """
    uuids, found = {*scan.own, *scan.known, *scan.known.values()}, -1
    if not (scan.anew and uuids):
        return found
    for line in lines.read(descriptor, begin, upto):
        entry = entries.decode(line.text)
        if entry is not None and entry.uuid in uuids:
            found = line.begin
    return found


def _begins_turn(entry: entries.Entry) -> bool:
    if not entries.is_prompt(entry):
        return False
    found = entries.message(entry)
    return found is None or entries.command(found.text) is None


def _uuid_at(descriptor: int, offset: int, upto: int) -> str | None:
    found = next(lines.read(descriptor, offset, upto), None)
    entry = None if found is None else entries.decode(found.text)
    return None if entry is None else entry.uuid
