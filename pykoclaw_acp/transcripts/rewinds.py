"""Rewinds that were done in other programs, as the CLI notes them in a transcript.

The CLI notes at once a rewind that a program has asked for. One that was done in a terminal it notes
with the first turn after it, between the prompt and the answer.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from pykoclaw_acp.model import notes
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.neutral import neutral
from pykoclaw_acp.transcripts import entries, lines
from pykoclaw_acp.transcripts.entries import Entry
from pykoclaw_acp.transcripts.origins import of_terminal
from pykoclaw_acp.transcripts.state import OpenTurn, State
from pykoclaw_acp.transcripts.wire import Piece, Scan

AHEAD: Final = 1000  # lines in which the note of a terminal is looked for
MOST_WORDS: Final = 80  # characters
_LOOKED_AT: Final = 4096  # characters of a prompt in which its first words are looked for
_NOWHERE: Final = "00000000-0000-0000-0000-000000000000"
_TERMINAL: Final = "cli"


class Rewind(NamedTuple):
    """A rewind before the entry `uuid`: Claude went on from the turn `newest`, and goes on from `kept`."""

    uuid: str
    newest: str
    kept: str
    said: Event


class Rewinds:
    """Finds them in the file that is open as `descriptor`, in its first `upto` bytes."""

    def __init__(self, scan: Scan, descriptor: int, upto: int, state: State) -> None:
        self._scan = scan
        self._file = descriptor
        self._upto = upto
        self._state = state

    def note(self, entry: Entry) -> None:
        """The CLI notes the entry with which its conversation ends, and whether that is a rewind."""
        self._state.note_leaf(entry.leaf_uuid)
        self._state.rewound = entry.explicit is True and entry.rewound is True

    def begin(self, turn: OpenTurn, entry: Entry) -> None:
        """A turn begins with this entry."""
        texts = entries.users_words(entries.message(entry) or entries.Message())
        words = " ".join("\n".join(texts)[:_LOOKED_AT].split())
        turn.words = words if len(words) <= MOST_WORDS else f"{words[: MOST_WORDS - 1]}…"
        self._state.rewound = False

    def before(
        self, entry: Entry, newest: str, kept: str, line: lines.Line
    ) -> Rewind | Literal["open"] | None:
        """The rewind before this entry, which continues the turn `kept`, while the CLI would have gone
        on from `newest`; `open` as long as that cannot be told.

        Turns that go on meanwhile were not rewound: another program runs at the same time.
        """
        uuid = str(entry.uuid)
        if newest == kept or uuid in self._scan.known or not self._scan.rewinds:
            return None
        if not entries.is_prompt(entry) and not entries.is_output(entry):
            return None
        left = self._state.since(newest, kept)
        noted = self._state.rewound
        if not left or not (noted or entry.entrypoint == _TERMINAL):
            return None
        below, passed = {uuid}, {one for turn in left for one in turn.recent}
        for count, after in enumerate(lines.read(self._file, line.end, self._upto)):
            found = entries.decode(after.text)
            if count == AHEAD:
                break
            if found is None or found.uuid is None or found.is_sidechain:
                noted = noted or (found is not None and _is_terminals(found))
                continue
            if found.parent in passed:
                return None
            if found.parent in below:
                below.add(found.uuid)
            if not noted and (found.type == "assistant" or found.uuid not in below):
                return None
        else:
            if not noted:
                return "open"
        first = left[-1].words if left[-1].parent == kept else ""
        place = of_terminal(entry.entrypoint)
        said = notes.rewound_elsewhere(uuid, neutral(first), in_terminal=place)
        return Rewind(uuid, newest, kept, said) if noted else None

    def add(self, rewind: Rewind | None, piece: Piece, place: int) -> None:
        """Add a rewind to a piece, with what is said of it at this place among the events."""
        if rewind is None:
            return
        piece.rewinds.append((rewind.newest, rewind.kept or None))
        piece.events.insert(place, (rewind.uuid, f"{rewind.uuid}-rewound:0", rewind.said))


def _is_terminals(entry: Entry) -> bool:
    return entry.type == "last-prompt" and entry.explicit is True and entry.leaf_uuid == _NOWHERE
