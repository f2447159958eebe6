"""What a client was shown before its front has found another daemon is not shown again after that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.integration.linked import front, new, words
from tests.integration.rig import rig
from tests.waiting import eventually

CLIENT = {"protocolVersion": 1, "clientInfo": {"name": "mitto", "version": "1"}}


def place(seq: int) -> dict[str, Any]:
    """As a front says where its client stands."""
    return {"seq": seq, "seen": seq, "opened": {}}


async def test_failure_in_the_answer_is_no_update_after_return(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r, initialize=CLIENT) as one:
        session = await new(one)
        one.call(2, "session/prompt", **words(session, "hang"))
        await eventually(lambda: r.launcher.launched and r.launcher.launched[-1].acked)
        found = await r.sessions.find(session)
        assert found is not None
        at = found.last_seq
        await eventually(lambda: one.rests("taken"))
        await one.leave()
        r.launcher.launched[-1].kill()
        await found.idle()
        hello: dict[str, Any] = {"initialize": CLIENT, "sessions": {session: place(at)}}
        async with front(r, taken=[2], **hello) as two:
            await eventually(lambda: two.rests("cursor"))
            two.call(2, "session/prompt", again=1, **words(session, "hang"))
            said = (await two.answer(2))["error"]["message"]
            assert said not in two.text()
            two.say("done 2")
            loaded = await two.result(3, "session/load", sessionId=session, cwd="/", mcpServers=[])
            assert "modes" in loaded
            assert said in two.text()
