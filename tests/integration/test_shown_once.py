"""What a client was shown before its front has found another daemon is not shown again after that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pykoclaw_acp.model.events import ToolStarted
from tests.integration import trusting
from tests.integration.linked import Front, front, new, words
from tests.integration.rig import rig
from tests.waiting import eventually

CLIENT = {"protocolVersion": 1, "clientInfo": {"name": "mitto", "version": "1"}}


def updates(one: Front) -> list[dict[str, Any]]:
    """Updates of the log, and others."""
    lines = [rest.split(" ", 2)[2] for rest in one.rests("update")] + one.rests("notify")
    frames = [json.loads(line)["params"] for line in lines]
    return [params["update"] for params in frames if "update" in params]


def calls(one: Front) -> list[tuple[str, str]]:
    found = [update for update in updates(one) if "toolCallId" in update]
    return [(update["sessionUpdate"], update["status"]) for update in found]


def place(seq: int) -> dict[str, Any]:
    """As a front says where its client stands."""
    return {"seq": seq, "seen": seq, "opened": {}}


async def test_announced_call_goes_on_after_daemons_restart(tmp_path: Path) -> None:
    begun = ToolStarted("call", "Write", "Write a", "edit", pending=True)
    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        found = await r.sessions.find(session)
        assert found is not None
        await found.log.tell([begun])
        await eventually(lambda: calls(one) == [("tool_call", "pending")])
        await one.leave()
        async with front(r, sessions={session: place(one.seqs()[-1])}) as two:
            await eventually(lambda: two.rests("attached"))
            await found.log.tell([replace(begun, pending=False, input={"file_path": "a"})])
            await eventually(lambda: calls(two) == [("tool_call_update", "in_progress")])


async def test_pending_trust_request_is_announced_once(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    trusting.act(work, "true")
    async with trusting.rig(tmp_path) as r, front(r, initialize=CLIENT) as one:
        params = {"cwd": str(work), "mcpServers": []}
        session = str((await one.result(1, "session/new", **params))["sessionId"])
        one.call(2, "session/prompt", **words(session, "say 1"))
        await eventually(lambda: one.rests("request"))
        assert calls(one) == [("tool_call", "pending")]
        assert sum("hook at Stop" in str(update) for update in updates(one)) == 1
        asked = json.loads(one.rests("request")[0].partition(" ")[0])
        found = await r.sessions.find(session)
        assert found is not None
        at = found.last_seq
        await eventually(lambda: one.rests("taken"))
        await one.leave()
        hello: dict[str, Any] = {"initialize": CLIENT, "asked": [asked], "taken": [2]}
        async with front(r, sessions={session: place(at)}, **hello) as two:
            two.call(2, "session/prompt", again=1, **words(session, "say 1"))
            await eventually(lambda: two.rests("request"))
            assert calls(two) == []
            assert updates(two) == []
            result = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
            two.say("> 3 " + json.dumps({"jsonrpc": "2.0", "id": asked, "result": result}))
            await two.answer(2)
            assert calls(two)[0] == ("tool_call_update", "in_progress")
            await two.result(4, "session/load", sessionId=session, **params)
            assert calls(two)[-2][0] == "tool_call"


async def test_failure_is_told_once_after_return(tmp_path: Path) -> None:
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
