"""Which cursor a client gets that names none, or only up to where it has everything."""

from __future__ import annotations

from collections.abc import Sequence

from pykoclaw_acp.model.cursors import Claim, Claimant, Cursor, Reader


def claim(cursors: Sequence[Cursor], *living: str, upto: int | None = None) -> Claim:
    """By a new process; of the earlier ones these live."""
    reader = Reader("editor", "new", "front")
    return Claimant(reader, (), lambda one: one in living, 1_000, upto).claim(cursors)


def test_named_place_leaves_the_lowest_to_others() -> None:
    """Whoever returns may be the one that a process which lives has taken over, at 0."""
    guarded = Cursor("first", "f1", 5, least=0, beside="taker")
    other = Cursor("second", "f2", 1)
    found = claim([guarded, other], "taker", upto=9)
    assert [(one.client_process, one.used_by) for one in found.changed] == [("second", "new")]
    assert claim([guarded], "taker").start == 0
    # Once the process has ended, its own cursor is left, and this one counts for itself.
    found = claim([guarded, other], upto=9)
    assert [one.client_process for one in found.changed] == ["first"]


def test_others_start_as_low_as_a_named_place() -> None:
    """Whoever names it may be the client of another process that has ended at the same place."""
    higher, named = Cursor("first", "f1", 1), Cursor("second", "f2", 0)
    found = claim([higher, named], upto=0)
    assert [(one.client_process, one.used_by) for one in found.changed] == [
        ("second", "new"),
        ("first", None),
    ]
    assert claim([found.changed[1]], "new").start == 0
    assert claim([found.changed[1]]).start == 1, "once that has ended, its own cursor is left"
