"""Clients that come back to a daemon whose database has a damaged page."""

from __future__ import annotations

from pathlib import Path

import pytest

from pykoclaw_acp.model.events import Text
from pykoclaw_acp.store import preflight
from pykoclaw_acp.store.session_journal import SessionJournal
from tests import damaged
from tests.integration.linked import front, new, words
from tests.integration.rig import rig


@pytest.mark.parametrize("where", ["log", "acp_cursors", "acp_turns", "acp_permissions"])
async def test_client_is_answered_beside_damaged_page(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "FULL_CHECK_LIMIT", 0)
    async with rig(tmp_path) as r, front(r) as one:
        hurt, good = await new(one, 1), await new(one, 2)
        await one.result(3, "session/prompt", **words(hurt, "say 1"))
        await one.result(4, "session/prompt", **words(good, "say 1"))
        said = [Text(f"hurt{n}", "x" * 1000) for n in range(20)]
        await SessionJournal(r.database).append(hurt, said)
        path = r.database.path
    if where == "log":
        damaged.page_with(path, b'"hurt2"')
    else:
        damaged.table(path, where)
    places = {one: {"seq": 1, "seen": 1, "opened": {}} for one in (hurt, good)}
    async with rig(tmp_path) as r, front(r, sessions=places, asked=["x"]) as one:
        one.call(5, "session/prompt", **words(good, "say 2"))
        answer = await one.answer(5)
        if where in ("log", "acp_cursors"):  # it needs none of these rows
            assert answer["result"]["stopReason"] == "end_turn"
        else:
            assert "damaged" in answer["error"]["message"]
