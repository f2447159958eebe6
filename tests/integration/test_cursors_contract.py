"""Contract of `sessions.ports.CursorStore`: a place moves on, never back, unless all of the cursor
is known.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from pykoclaw_acp.model.cursors import Cursor, CursorChange
from tests.integration.journals import BOTH, Subject, subject


@pytest.fixture(params=BOTH)
async def s(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Subject]:
    async with subject(request.param, tmp_path) as made:
        yield made


async def change(
    s: Subject, cursor: Cursor | None, *, whole: bool = False, client: str = "Zed"
) -> None:
    client_process, front = ("i", "f") if cursor is None else (cursor.client_process, cursor.front)
    await s.journal.change_cursors(
        [CursorChange("one", client, client_process, front, cursor, whole)]
    )


async def cursors(s: Subject, client: str = "Zed") -> list[Cursor]:
    return await s.journal.cursors("one", client)


async def test_a_confirmed_place_moves_on_and_never_back(s: Subject) -> None:
    for seq in (5, 7, 3):
        await change(s, Cursor("i", "f", seq))
    assert await cursors(s) == [Cursor("i", "f", 7)]
    assert await cursors(s, "Mitto") == []
    assert await s.journal.cursors("two", "Zed") == []


async def test_a_cursor_that_is_known_whole_is_replaced(s: Subject) -> None:
    await change(s, Cursor("i", "f", 7))
    known = Cursor("i", "f", 3, used_by="j", least=2, beside="k", spare=9)
    await change(s, known, whole=True)
    assert await cursors(s) == [known]


async def test_processes_and_fronts_have_cursors_of_their_own(s: Subject) -> None:
    for client_process, front, seq in (("i", "f", 1), ("i", "g", 2), ("j", "f", 3)):
        await change(s, Cursor(client_process, front, seq))
    assert {(one.client_process, one.front, one.seq) for one in await cursors(s)} == {
        ("i", "f", 1),
        ("i", "g", 2),
        ("j", "f", 3),
    }
    assert sorted(await s.journal.client_processes()) == ["i", "j"]
    await change(s, None)
    assert len(await cursors(s)) == 2


async def test_changes_are_applied_in_their_order(s: Subject) -> None:
    one = Cursor("i", "f", 5)
    drop = CursorChange("one", "Zed", "i", "f", None, whole=True)
    again = CursorChange("one", "Zed", "i", "f", one, whole=False)
    await s.journal.change_cursors(
        [CursorChange("one", "Zed", "i", "f", Cursor("i", "f", 9), whole=False), drop, again]
    )
    assert await cursors(s) == [one]
    await s.journal.change_cursors([])


async def test_cursors_of_ended_instances_are_dropped_in_time(s: Subject) -> None:
    now = s.journal.clock.now()
    await change(s, Cursor("gone", "f", 1))
    await change(s, Cursor("here", "f", 1))
    await s.journal.age_cursors(["gone"], ["here"], now - 1)
    assert len(await cursors(s)) == 2, "it has ended just now"
    await s.journal.age_cursors([], [], s.journal.clock.now())
    assert await cursors(s) == [Cursor("here", "f", 1)]


async def test_an_instance_that_lives_after_all_is_kept(s: Subject) -> None:
    await change(s, Cursor("i", "f", 1, spare=5), whole=True)
    await s.journal.age_cursors(["i"], [], -1)  # its clock may be at 0 yet
    await s.journal.age_cursors([], ["i"], s.journal.clock.now())
    assert await cursors(s) == [Cursor("i", "f", 1)]


async def test_a_spare_cursor_is_dropped_in_time(s: Subject) -> None:
    await change(s, Cursor("i", "f", 1, spare=5), whole=True)
    await s.journal.age_cursors([], [], 4)
    assert len(await cursors(s)) == 1
    await s.journal.age_cursors([], [], 5)
    assert await cursors(s) == []


async def test_a_client_that_confirms_again_has_not_ended(s: Subject) -> None:
    await change(s, Cursor("i", "f", 1))
    await s.journal.age_cursors(["i"], [], 0)
    await change(s, Cursor("i", "f", 2))
    await s.journal.age_cursors([], [], s.journal.clock.now())
    assert await cursors(s) == [Cursor("i", "f", 2)]
