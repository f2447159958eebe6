"""Several clients have one session open: what one of them does, the others are told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.channel.frames import EventFrame
from pykoclaw_acp.model.events import TextPart, ToolEnded, ToolStarted
from pykoclaw_acp.model.permissions import PermissionRequest
from tests.integration.asking import choice
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.rig import Rig, rig
from tests.integration.wires import Wire, client, load, prompt
from tests.integration.wires import hanging as hanging_turn
from tests.waiting import eventually, not_within


@dataclass
class Shared:
    """Two clients have a session open, in whose turn, the first one's, nothing happens by itself."""

    r: Rig
    zed: Wire
    toad: Wire
    session: str
    running: int
    worker: MemoryChannel
    turn: str

    async def end(self) -> None:
        """Let the turn end."""
        self.worker.say(self.worker.ended(self.turn))
        await self.zed.answer(self.running)

    def begin_prompt(self, one: Wire, text: str) -> int:
        return one.begin("session/prompt", **prompt(self.session, text))

    async def refuse(self, one: Wire, told: str) -> list[Any]:
        """What the clients are shown of a call that this one refuses, of which Claude was told so."""
        self._say(ToolStarted("call", "Bash", "make", "execute"))
        self.worker.last += 1
        self.worker.say(
            PermissionRequest(
                epoch=self.worker.spec.epoch, n=self.worker.last, ask_id="ask", turn_id=self.turn,
                tool_call_id="call", title="Bash: make", tool_kind="execute",
            )
        )  # fmt: skip
        await eventually(lambda: any(line.get("id") == "ask" for line in one.lines))
        one.send({"id": "ask", "result": {"outcome": choice("reject_once")}})
        await eventually(lambda: self.worker.answers)
        self._say(ToolEnded("call", "failed", (TextPart(told),)))
        await self.end()
        return [
            part["content"]["text"]
            for update in self.zed.updates()
            if update["sessionUpdate"] == "tool_call_update"
            for part in update.get("content", ())
        ]

    def _say(self, event: ToolStarted | ToolEnded) -> None:
        self.worker.last += 1
        self.worker.say(
            EventFrame(
                epoch=self.worker.spec.epoch, n=self.worker.last, turn_id=self.turn, event=event
            )
        )


@asynccontextmanager
async def shared(path: Path, second: str | None = "toad") -> AsyncIterator[Shared]:
    async with rig(path) as r, client(r, "zed") as zed, client(r, second) as toad:
        found = await hanging_turn(r, zed)
        assert "result" in await load(toad, found[0])
        yield Shared(r, zed, toad, *found)


# --- who has stopped a turn


@pytest.mark.parametrize(
    ("name", "place"),
    [("toad", "toad"), ("to\u202ead", "to\\u202ead"), (None, "a client without a name")],
)
async def test_stop_by_another_client_names_it(
    tmp_path: Path, name: str | None, place: str
) -> None:
    async with shared(tmp_path, name) as s:
        s.toad.send({"method": "session/cancel", "params": {"sessionId": s.session}})
        assert (await s.zed.answer(s.running))["result"]["stopReason"] == "cancelled"
        assert s.zed.text() == f"\n\nCancelled in {place}.\n\n"
        await eventually(lambda: s.toad.text() == s.zed.text())


async def test_taking_back_waiting_prompt_names_client(tmp_path: Path) -> None:
    async with shared(tmp_path) as s:
        waiting = s.begin_prompt(s.toad, "waits")
        await eventually(lambda: len(s.r.sessions.live[s.session].turns) == 2)
        s.toad.send({"method": "$/cancel_request", "params": {"requestId": waiting}})
        await s.toad.answer(waiting)
        await s.end()
        said = "\n\nCancelled in toad before it was sent to Claude: “waits”\n\n"
        await eventually(lambda: s.zed.text() == said)


async def test_client_alone_is_not_named(tmp_path: Path) -> None:
    async with shared(tmp_path) as s:
        await s.toad.call("session/close", sessionId=s.session)
        await s.zed.answer(s.running)
        running = s.begin_prompt(s.zed, "hang")
        await eventually(lambda: len(s.r.launcher.live) == 1 and s.r.launcher.live[0].acked)
        s.zed.send({"method": "session/cancel", "params": {"sessionId": s.session}})
        await s.zed.answer(running)
        assert s.zed.text().endswith("\n\nCancelled.\n\n")


# --- who has refused a call


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        ("Refused.", "Refused in toad."),
        ("Refused: too slow", "Refused in toad: too slow"),
        ("Kept planning.", "Kept planning in toad."),
        ("No such file.", "No such file."),
    ],
)
async def test_refusal_by_another_client_names_it(tmp_path: Path, told: str, shown: str) -> None:
    async with shared(tmp_path) as s:
        assert await s.refuse(s.toad, told) == [shown]


# --- who has closed the session


async def test_close_leaves_session_open_for_others(tmp_path: Path) -> None:
    async with shared(tmp_path) as s:
        await s.toad.call("session/close", sessionId=s.session)
        assert (await s.zed.answer(s.running))["result"]["stopReason"] == "cancelled"
        closed = "\n\nClosed in toad. The next message opens the session again.\n\n"
        await eventually(lambda: s.zed.text() == f"\n\nCancelled in toad.\n\n{closed}")
        assert not s.r.launcher.live
        assert closed not in s.toad.text()
        await s.toad.call("session/close", sessionId=s.session)
        await not_within(lambda: s.zed.text().count(closed) > 1)
        answered = await s.zed.answer(s.begin_prompt(s.zed, "say 3"))
        assert answered["result"]["stopReason"] == "end_turn"
        assert s.zed.text().endswith("0 1 2 ")
        assert "0 1 2 " not in s.toad.text()


async def test_mode_can_be_chosen_after_others_close(tmp_path: Path) -> None:
    async with shared(tmp_path) as s:
        await s.toad.call("session/close", sessionId=s.session)
        chosen = await s.zed.call("session/set_mode", sessionId=s.session, modeId="plan")
        assert "result" in chosen


async def test_client_that_closed_has_to_load(tmp_path: Path) -> None:
    """As has one that comes anew."""
    async with shared(tmp_path) as s, client(s.r, "toad") as later:
        await s.toad.call("session/close", sessionId=s.session)
        for one in (s.toad, later):
            refused = await one.answer(s.begin_prompt(one, "say 3"))
            assert refused["error"]["code"] == -32600
        await load(s.toad, s.session)
        assert "result" in await s.toad.answer(s.begin_prompt(s.toad, "say 3"))
