"""Who connects: has to say who it is in time, and may send long lines only after that."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.errors import StoreUnavailable
from pykoclaw_acp.link.framing import MAX_LINE_EARLY
from pykoclaw_acp.link.lines import GREETING
from pykoclaw_acp.model.condition import DatabaseState
from pykoclaw_acp.server import admission, clients, returning
from tests.integration.doors import INITIALIZE, door
from tests.integration.linked import front
from tests.integration.linked import new as new_of_front
from tests.integration.rig import rig
from tests.integration.wires import Wire, new
from tests.waiting import eventually

LONG = "x" * (MAX_LINE_EARLY + 10_000)


@pytest.mark.parametrize(
    "begun",
    [b"", b"fro", GREETING, GREETING + b'{"front": "f", ', b"{"],
    ids=["nothing", "half a greeting", "greeting", "half an introduction", "half a message"],
)
async def test_client_introducing_itself_late_is_disconnected(
    begun: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "HELLO", 0.2)
    async with door(tmp_path) as opened:
        visitor = await opened.visitor(begun)
        assert await visitor.line() is None


async def test_unreadable_introduction_is_refused_in_words(tmp_path: Path) -> None:
    async with door(tmp_path) as opened:
        visitor = await opened.visitor(GREETING + b'{"front": 1}\n')
        told = await visitor.line() or {}
        assert told["error"]["message"] == "The front's introduction cannot be read."
        assert await visitor.line() is None


async def test_front_is_told_why_it_is_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def locked(*_: object) -> None:
        raise StoreUnavailable(DatabaseState.LOCKED, "Another program keeps the database locked.")

    monkeypatch.setattr(returning, "come_back", locked)
    async with door(tmp_path) as opened:
        visitor = await opened.visitor(GREETING + b'{"front": "f"}\n')
        assert (await visitor.text()).startswith(b"welcome ")
        told = await visitor.line() or {}
        assert told["error"]["data"]["errorKind"] == "store_locked"
        assert await visitor.line() is None


async def test_another_users_client_is_disconnected_unheard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with door(tmp_path) as opened:
        monkeypatch.setattr(clients, "peer_uid", lambda _: os.geteuid() + 1)
        visitor = await opened.visitor(json.dumps(INITIALIZE).encode() + b"\n")
        assert await visitor.line() is None
        monkeypatch.undo()
        visitor = await opened.visitor(json.dumps(INITIALIZE).encode() + b"\n")
        assert (await visitor.line() or {})["result"]["protocolVersion"] == 1


async def test_bytes_one_by_one_are_no_introduction(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time counts from the connection, not from the last byte."""
    monkeypatch.setattr(admission, "HELLO", 0.2)
    async with door(tmp_path) as opened:
        visitor = await opened.visitor(GREETING)
        ended = asyncio.ensure_future(visitor.line())
        while not ended.done():
            visitor.writer.write(b" ")
            await asyncio.sleep(0.01)
        assert ended.result() is None


async def test_only_who_has_introduced_itself_may_be_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "HELLO", 2.0)
    async with door(tmp_path) as opened:
        client = await opened.visitor(json.dumps(INITIALIZE).encode() + b"\n")
        assert (await client.line() or {})["result"]["protocolVersion"] == 1
        command = await opened.visitor()
        command.say({"jsonrpc": "2.0", "id": 1, "method": "_pykoclaw.dev/rules/list"})
        assert (await command.line() or {})["id"] == 1
        refused = await command.line()
        assert refused is not None
        assert refused["error"]["message"].startswith("Nothing was asked for 2 s")
        assert await command.line() is None
        client.say({**INITIALIZE, "id": 2})
        assert (await client.line() or {})["id"] == 2


def _long_prompt(session: str) -> dict[str, Any]:
    return {
        "sessionId": session,
        "prompt": [{"type": "text", "text": LONG}, {"type": "text", "text": "say 1"}],
    }


async def test_client_may_send_long_lines_after_initialize_only(tmp_path: Path) -> None:
    async with rig(tmp_path) as r:
        wire = Wire(r)
        early = await wire.call("session/prompt", **_long_prompt("s"))
        assert early["error"]["code"] == -32600
        assert early["error"]["message"].startswith(
            "The line is longer than 1 MiB before `initialize`"
        )
        refused = await wire.call("initialize", protocolVersion="one")
        assert "error" in refused
        early = await wire.call("session/prompt", **_long_prompt("s"))
        assert early["error"]["code"] == -32600, "it has not introduced itself so"
        await wire.call("initialize", protocolVersion=1)
        session = await new(wire)
        late = await wire.call("session/prompt", **_long_prompt(session))
        assert late["result"]["stopReason"] == "end_turn"
        await wire.close()


async def test_fronts_client_sends_long_lines_only_after_initialize(tmp_path: Path) -> None:
    async with rig(tmp_path) as r, front(r, initialize=None) as one:
        one.call(1, "session/prompt", **_long_prompt("s"))
        early = await one.answer(1)
        assert early["error"]["code"] == -32600
        assert early["error"]["message"].startswith(
            "The line is longer than 1 MiB before `initialize`"
        )
        await one.result(2, "initialize", **INITIALIZE["params"])
        session = await new_of_front(one, 3)
        late = await one.result(4, "session/prompt", **_long_prompt(session))
        assert late["stopReason"] == "end_turn"
        await eventually(lambda: r.launcher.launched[0].prompts == ["say 1"])
