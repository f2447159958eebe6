"""Calls that meet a shortage of descriptors; calls that open sessions, and those behind them."""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.server import share
from tests.integration.linked import front, new, words
from tests.integration.rig import rig
from tests.waiting import eventually


async def test_only_new_prompts_are_to_be_sent_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that comes again may be in the journal since an earlier daemon, which runs it."""

    def lacking(_: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    async with rig(tmp_path) as r, front(r) as one:
        session = await new(one)
        monkeypatch.setattr("pykoclaw_acp.server.prompts.content.accepted", lacking)
        one.call(2, "session/prompt", **words(session, "say 1"))
        one.call(3, "session/prompt", again=1000, **words(session, "say 1"))
        codes = [(await one.answer(number))["error"]["code"] for number in (2, 3)]
        assert codes == [-32012, -32603]


async def test_prompt_behind_load_waits_for_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load has opened the session, so that the prompt needs no place."""
    monkeypatch.setattr(share, "PLACES", 1)
    async with rig(tmp_path) as r, front(r) as one:
        mine, other = await new(one), await new(one, 2)
        r.sessions.live.remove(mine)
        let = asyncio.Event()
        find = r.sessions.find

        async def finding(session_id: str) -> Any:
            if session_id == other:
                await let.wait()
            return await find(session_id)

        monkeypatch.setattr(r.sessions, "find", finding)
        one.call(3, "session/load", sessionId=mine, cwd="/", mcpServers=[])
        one.call(4, "session/load", sessionId=other, cwd="/", mcpServers=[])
        one.call(5, "session/prompt", **words(mine, "say 1"))
        try:
            answer = await one.answer(5)
            assert answer["result"]["stopReason"] == "end_turn"
            assert not any(rest.startswith("4 ") for rest in one.rests("answer"))
        finally:
            let.set()
        await eventually(lambda: any(rest.startswith("4 ") for rest in one.rests("answer")))
