"""A front that has lost its connection speaks through the next: what came through the former, and
was not begun, is not begun any more.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pykoclaw_acp.link.places import DATABASE
from pykoclaw_acp.server import share
from tests.databases import place
from tests.integration.memory_world import world
from tests.integration.rest import come_to_rest
from tests.integration.store_faults import BUSY
from tests.promises import check_at_rest, turns


async def test_refused_prompt_of_former_connection_never_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had been read, and waited for the client's share of the daemon."""
    data = tmp_path / "data"
    data.mkdir(parents=True, mode=0o700)
    place(data / DATABASE)
    with world(tmp_path) as w:
        try:
            assert await w.start()
            client = w.front()
            made = client.new()
            await w.until(lambda: client.answer(made))
            session = client.asked[made].answer["result"]["sessionId"]  # type: ignore[index]
            w.faults.arm(BUSY, 0, None)
            first = client.prompt(session, "the first")
            await w.until(lambda: client.answer(first))

            with monkeypatch.context() as slow:
                slow.setattr(share, "SLICE", 0.0)
                client.prompt(session, "before it")
                asked = client.prompt(session, "once only")
                await w.quiet()
                assert client.answer(asked) is None
                client.cut()
            w.connect(client)
            await w.quiet()
            answer = client.answer(asked)
            assert answer is not None
            assert "error" in answer
            w.faults.heal()
            client.try_again()
            await come_to_rest(w)
            check_at_rest(w)
            assert sorted(row.words for row in turns(w)) == ["before it", "once only", "the first"]
        finally:
            await w.close()
