"""Calls that change something are done whole or not at all, whatever becomes of who made them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.channel.choosing import SetMode
from pykoclaw_acp.model.events import Text
from tests.integration.rig import Client, Rig, rig
from tests.integration.wires import Wire, client, load, new, prompt
from tests.waiting import eventually


def give_up_after(
    r: Rig, patch: pytest.MonkeyPatch, step: str, wire: Wire, *, leaves: bool
) -> None:
    """The next call is given up when the journal has done this, before the call knows of that."""
    doing, message_id = getattr(r.journal, step), wire.last_id + 1

    async def done(*given: Any, **more: Any) -> Any:
        result = await doing(*given, **more)
        if leaves:
            wire.connection.leave()
        else:
            wire.send({"method": "$/cancel_request", "params": {"requestId": message_id}})
            await wire.call("_test/next")  # it is read after that
        await asyncio.sleep(0)
        return result

    patch.setattr(r.journal, step, done)


@pytest.mark.parametrize("leaves", [True, False])
async def test_mode_call_abandoned_in_commit_still_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, leaves: bool
) -> None:
    async with rig(tmp_path) as r, client(r) as wire, client(r) as other:
        session = await new(wire)
        await wire.call("session/prompt", **prompt(session, "say 1"))
        await load(other, session)
        before = len(other.updates())
        give_up_after(r, monkeypatch, "append", wire, leaves=leaves)
        called = wire.begin("session/set_mode", sessionId=session, modeId="plan")
        (channel,) = r.launcher.launched
        await eventually(lambda: [one for one in channel.got if isinstance(one, SetMode)])
        await eventually(lambda: len(other.updates()) > before)
        assert r.sessions.live[session].options.permission_mode == "plan"
        assert leaves or "result" in await wire.answer(called)


@pytest.mark.parametrize("leaves", [True, False])
async def test_session_with_abandoned_close_takes_no_prompt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, leaves: bool
) -> None:
    async with rig(tmp_path) as r, client(r) as wire, client(r) as other:
        session = await new(wire)
        await wire.call("session/prompt", **prompt(session, "say 1"))
        give_up_after(r, monkeypatch, "mark_closed", wire, leaves=leaves)
        wire.begin("session/close", sessionId=session)
        await eventually(lambda: not r.launcher.live)
        refused = await other.call("session/prompt", **prompt(session, "say 1"))
        assert "is not open" in refused["error"]["message"]


async def test_abandoned_loads_words_on_lost_calls_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with rig(tmp_path) as r:
        session = await r.session()
        shown = Client()
        session.subscribe(shown, 0)
        append = r.journal.append

        async def append_and_cancel(*given: Any, **more: Any) -> Any:
            telling.cancel()
            return await append(*given, **more)

        monkeypatch.setattr(r.journal, "append", append_and_cancel)
        telling = asyncio.ensure_future(session.log.tell([Text("m", "Ended.")]))
        with pytest.raises(asyncio.CancelledError):
            await telling
        await eventually(lambda: shown.text == "Ended.")


async def test_call_abandoned_before_it_began_does_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for one that came before on the same session."""
    async with rig(tmp_path) as r, client(r) as wire:
        session = await new(wire)
        writable, append = asyncio.Event(), r.journal.append

        async def slowly(*given: Any, **more: Any) -> list[int]:
            await writable.wait()
            return await append(*given, **more)

        monkeypatch.setattr(r.journal, "append", slowly)
        first = wire.begin("session/set_mode", sessionId=session, modeId="plan")
        second = wire.begin("session/delete", sessionId=session)
        third = wire.begin("session/set_title", sessionId=session, title="Third")
        wire.send({"method": "$/cancel_request", "params": {"requestId": second}})
        assert "error" in await wire.answer(second)
        writable.set()
        assert "result" in await wire.answer(first)
        assert "result" in await wire.answer(third)
        assert await r.journal.find(session) is not None
