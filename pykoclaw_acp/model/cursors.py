"""Choice of the cursor for a client that does not name one: its own process's, or one left by an
ended process.

While a client's process lives, its cursors are its own. After its end, the next process with the
client's name takes over the lowest cursor of the ended processes; each is taken over once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Reader:
    """A reader of a session: client name, client process, front."""

    client: str
    client_process: str
    front: str


@dataclass(frozen=True, slots=True)
class Cursor:
    """Position of a client process in a session's log, for one front, and who took it over.

    `least`: whoever takes it is shown what follows this place, as long as the process `beside`
    lives. `spare`: since when (ms, own clock) others have been taken, and this one or another was
    left; None: it never was.
    """

    client_process: str
    front: str
    seq: int
    used_by: str | None = None
    least: int | None = None
    beside: str | None = None
    spare: int | None = None


@dataclass(slots=True)
class Claim:
    """Result of a claim: where the reader starts (None: it never read), changed cursors, removed
    cursors.
    """

    start: int | None = None
    changed: list[Cursor] = field(default_factory=list)
    gone: list[Cursor] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Claimant:
    """A reader that opens a session, with what is known at that moment.

    `upto`: the place that it has named, or None. `fronts` are those through which the session is
    shown now. `lives` says of a process whether it is known, or must be taken, to live. `now` is
    what the own clock shows (ms).
    """

    reader: Reader
    fronts: Collection[str]
    lives: Callable[[str], bool]
    now: int
    upto: int | None = None

    def claim(self, cursors: Sequence[Cursor]) -> Claim:
        """Start position from the cursors of this session and client name."""
        own = [one for one in cursors if one.client_process == self.reader.client_process]
        if own:
            return self._go_on(own)
        left: dict[str, list[Cursor]] = {}
        for one in cursors:
            if one.used_by is None and not self.lives(one.client_process):
                left.setdefault(one.client_process, []).append(one)
        return self._take_over(list(left.values())) if left else Claim()

    def _go_on(self, own: list[Cursor]) -> Claim:
        """Continue a process with cursors: after those of its ended fronts, lowest first, each
        once.
        """
        mine = [one for one in own if one.front == self.reader.front]
        if mine:
            return Claim(
                mine[0].seq, changed=[replace(one, used_by=None) for one in mine if one.used_by]
            )
        gone = [one for one in own if one.front not in self.fronts]
        if self.upto is not None:
            known = [one for one in gone if one.seq <= self.upto]
            last = max(known, key=lambda one: one.seq, default=None)
            return Claim() if last is None else Claim(last.seq, gone=[last])
        first = min(gone or own, key=lambda one: one.seq)
        return Claim(first.seq, gone=[first] if gone else [])

    def _take_over(self, left: list[list[Cursor]]) -> Claim:
        """Take over the cursors of an ended process."""
        if self.upto is not None:
            # The client names its position: it takes the highest cursor up to it, and leaves those
            # to others at which they start lower.
            known = [one for one in left if _seq(one) <= self.upto]
            last = max(known, key=lambda one: (self._place(one), _seq(one)), default=None)
            if last is None:
                return Claim()
            start = self._place(last)
            higher = [process for process in left if self._place(process) > start]
            beside = [self._beside(one, start) for process in higher for one in process]
            return Claim(_seq(last), changed=self._used(last) + beside)
        # Of equal ones, the one that leaves the lower cursors to others.
        taken = min(left, key=lambda one: (self._place(one), -_seq(one)))
        start = self._place(taken)
        since = min((one.spare for one in taken if one.spare is not None), default=self.now)
        others = [one for process in left if process is not taken for one in process]
        beside = [
            replace(
                self._beside(one, start),
                spare=since if one.spare is None else min(since, one.spare),
            )
            for one in others
        ]
        return Claim(start, changed=self._used(taken) + beside)

    def _beside(self, other: Cursor, start: int) -> Cursor:
        """A cursor that is left: it is unknown which process came back, so who takes it starts as low
        while this one lives.
        """
        return replace(other, least=start, beside=self.reader.client_process)

    def _used(self, taken: list[Cursor]) -> list[Cursor]:
        return [replace(one, used_by=self.reader.client_process) for one in taken]

    def _place(self, left: list[Cursor]) -> int:
        return min(
            min(one.seq, one.least)
            if one.least is not None and one.beside is not None and self.lives(one.beside)
            else one.seq
            for one in left
        )


def _seq(left: list[Cursor]) -> int:
    return min(one.seq for one in left)


@dataclass(frozen=True, slots=True)
class CursorChange:
    """A change of a cursor; None: it is removed.

    Unless `whole`, only its position is known, and only moves forward.
    """

    session_id: str
    client: str
    client_process: str
    front: str
    cursor: Cursor | None
    whole: bool
