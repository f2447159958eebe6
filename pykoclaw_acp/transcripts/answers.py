"""What became of a prompt in a transcript that may never have reached Claude: a command, or one of
Claude's own. The lines that follow it say so.
"""

from __future__ import annotations

from typing import Final, Literal

from pykoclaw_acp.transcripts import entries, lines
from pykoclaw_acp.transcripts.wire import Scan
from pykoclaw_acp.translation import call_ids

AHEAD: Final = 1000  # lines in which it is looked for


class Answers:
    """Finds them in the file that is open as `descriptor`, in its first `upto` bytes."""

    def __init__(self, scan: Scan, descriptor: int, upto: int) -> None:
        self._hold = scan.hold
        self._file = descriptor
        self._upto = upto
        self._own = frozenset(scan.own)
        self._own_messages = {*scan.own_messages, *map(call_ids.given, scan.own_messages)}

    def to(self, uuid: str, line: lines.Line) -> Literal["own", "other", "no", "open"]:
        """What became of the prompt of this uuid, which is in this line: `own`, `other`, `no` answer,
        or `open` as long as nothing follows it.

        One that is still open when a later turn of another branch is answered, is `other`: it must
        not hold back that turn, and an answer that comes later finds its turn.
        """
        below, elsewhere, passed = {uuid}, set[str](), False  # passed: a later turn is answered
        for count, after in enumerate(lines.read(self._file, line.end, self._upto)):
            entry = entries.decode(after.text)
            if entry is None or entry.uuid is None or entry.parent not in below:
                if count >= AHEAD:
                    return "no"
                if entry is not None and entry.uuid is not None:
                    passed = passed or (entry.type == "assistant" and entry.parent in elsewhere)
                    if entry.parent in elsewhere or entries.is_prompt(entry):
                        elsewhere.add(entry.uuid)
                continue
            below.add(entry.uuid)
            if entry.type == "assistant" and (found := entries.message(entry)) is not None:
                ids = {
                    entry.uuid,
                    found.id,
                    *(one.get("id") for one in found.blocks if entries.is_call(one)),
                }
                if not self._own_messages.isdisjoint(ids):
                    return "own"
                if all(one.get("type") in entries.THOUGHTS for one in found.blocks):
                    continue  # which the log may lack
                return "open" if self._hold else "other"
            if entry.uuid in self._own or entries.is_prompt(entry) or entries.is_output(entry):
                return "no"
        return "other" if passed and not self._hold else "open"
