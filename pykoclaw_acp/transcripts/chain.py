"""What only a search of a transcript tells: the turn of an entry whose parent lies further back, and
where the log's part ends.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection
from typing import Final

from pykoclaw_acp.transcripts import entries, lines
from pykoclaw_acp.transcripts.state import OpenTurn, State
from pykoclaw_acp.transcripts.wire import Scan

MOST: Final = 1_000_000  # entries that are looked at, from the beginning
MOST_SEARCHES: Final = 8  # in a look: each reads the file from its beginning
MOST_BEGUN: Final = 20_000  # turns of a look that may go on later in it


class EarlierTurns:
    """Turns that go on after more entries, or more other turns, than `state` has."""

    def __init__(self, scan: Scan, descriptor: int, state: State) -> None:
        self._scan = scan
        self._file = descriptor
        self._state = state
        self._searches = 0
        self._begun = dict(state.turns)  # in this look, or not long before

    def add(self, uuid: str, turn: OpenTurn) -> None:
        """A turn begins, or goes on."""
        self._begun[uuid] = turn
        if len(self._begun) > MOST_BEGUN:
            del self._begun[next(iter(self._begun))]
        self._state.begin(uuid, turn)

    def turn_of(self, uuid: str, upto: int) -> str | None:
        """The turn that an entry before `upto` belongs to, which goes on; None if it is not found."""
        if not upto or self._searches == MOST_SEARCHES:
            return None
        self._searches += 1
        turns = {*self._begun, *self._scan.known, *self._scan.own}
        found = find_turn(self._file, upto, uuid, turns)
        if found is not None and found not in self._state.turns:
            self.add(found, self._begun.get(found) or self._before_look(found))
        return found

    def _before_look(self, turn: str) -> OpenTurn:
        after = self._scan.known.get(turn)
        if after is None:
            return OpenTurn("own")
        return OpenTurn("other") if self._scan.offset else OpenTurn("known", after=after)


def find_turn(descriptor: int, upto: int, uuid: str, turns: Collection[str]) -> str | None:
    """The turn that the entry `uuid`, before `upto`, belongs to; None if it is not there. `turns`: those
    that are known, as not every command began one.

    Entries are kept as hashes, 24 bytes each: a transcript may have a million of them.
    """
    ids, parents, prompts = array("q"), array("q"), array("q")
    for line in lines.read(descriptor, 0, upto):
        entry = entries.decode(line.text)
        if entry is None or entry.uuid is None or entry.is_sidechain:
            continue
        ids.append(hash(entry.uuid))
        parents.append(hash(entry.parent))
        prompts.append(line.begin if entry.uuid in turns or _begins_turn(entry) else -1)
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
    """Whether it is certain that the entry does."""
    if not entries.is_prompt(entry) or entries.by_claude_itself(entry):
        return False
    found = entries.message(entry)
    return found is None or entries.command(found.text) is None


def _uuid_at(descriptor: int, offset: int, upto: int) -> str | None:
    found = next(lines.read(descriptor, offset, upto), None)
    entry = None if found is None else entries.decode(found.text)
    return None if entry is None else entry.uuid
