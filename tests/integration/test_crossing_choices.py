"""A choice that crosses with a report of the worker: what clients are shown is what Claude runs with."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from claude_agent_sdk import ClaudeSDKClient, SystemMessage

from pykoclaw_acp.channel.choosing import SetConfig, SetMode, SetModel
from pykoclaw_acp.channel.frames import EventFrame, ToWorker
from pykoclaw_acp.model.events import Event, ModeChanged
from pykoclaw_acp.worker.choices import Choices
from tests.integration.memory_launcher import MemoryChannel
from tests.integration.rig import hanging, rig
from tests.waiting import eventually
from tests.workers import OPTIONS


class Claude:
    """The SDK's client, whose CLI is in this mode."""

    mode = "default"

    async def get_server_info(self) -> dict[str, Any]:
        return {}

    async def set_permission_mode(self, mode: str) -> None:
        self.mode = mode


class Side:
    """The worker's side of choices, on a worker in memory."""

    def __init__(self, worker: MemoryChannel) -> None:
        self.claude = Claude()
        self._worker = worker
        self._reported = 0
        self.choices = Choices(OPTIONS, self._tell, lambda: self._reported > worker.acked)
        self._send = worker.send
        worker.send = self._take  # type: ignore[method-assign]

    async def connect(self) -> None:
        await self.choices.connected(cast("ClaudeSDKClient", self.claude))

    def leave_plan_mode(self) -> None:
        """As Claude does by itself, once its plan was approved."""
        self.claude.mode = "acceptEdits"
        self.choices.follow(SystemMessage("status", {"permissionMode": "acceptEdits"}))

    def _tell(self, event: Event) -> None:
        self._worker.last += 1
        self._reported = self._worker.last
        epoch = self._worker.spec.epoch
        self._worker.say(EventFrame(epoch=epoch, n=self._reported, turn_id=None, event=event))

    async def _take(self, frame: ToWorker) -> None:
        await self._send(frame)
        if isinstance(frame, SetMode | SetModel | SetConfig):
            self.choices.choose(frame)


@pytest.mark.parametrize("order", ["choice is stored first", "report is stored first"])
async def test_mode_chosen_as_claude_changes_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    async with rig(tmp_path) as r:
        session, _, worker = await hanging(r)
        side = Side(worker)
        await side.connect()
        append = r.journal.append

        async def crossing(*given: Any, **more: Any) -> list[int]:
            seqs = await append(*given, **more)
            monkeypatch.setattr(r.journal, "append", append)
            side.leave_plan_mode()
            return seqs

        if order == "choice is stored first":
            monkeypatch.setattr(r.journal, "append", crossing)
        else:
            side.leave_plan_mode()
            await eventually(lambda: session.options.permission_mode == "acceptEdits")
        await session.choosing.choose("modeId", mode="plan")
        await eventually(lambda: side.claude.mode == "plan")

        async def shown() -> bool:
            logged = await r.journal.read(session.id, 0, 1000)
            modes = [e.mode for one in logged if isinstance(e := one.event, ModeChanged)]
            return len(modes) > 1 and modes[-1] == "plan" and worker.acked == worker.last

        told: bool = await eventually(shown)
        assert told
        assert session.options.permission_mode == session.record.mode == "plan"
        await session.choosing.tell_worker()
        assert [one.mode for one in worker.got if isinstance(one, SetMode)] == ["plan"]
