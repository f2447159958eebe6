"""Sessions in a directory with active content, and somebody who answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.model.turns import Outcome, Turn
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.trust.watch import Watch
from tests.integration.asking import LONG, Person, choice
from tests.integration.asking import rig as asking_rig
from tests.integration.rig import Rig
from tests.waiting import eventually
from tests.workers import OPTIONS


def looking() -> dict[str, Any]:
    """What a rig has that looks at directories."""
    options = replace(OPTIONS, setting_sources=("user", "project", "local"))
    return {"options": options, "workspaces": Watch()}


@asynccontextmanager
async def rig(
    path: Path, policy: Any = "wait", timeout: float = LONG, **more: Any
) -> AsyncIterator[Rig]:
    (path / "data").mkdir()
    async with asking_rig(path / "data", policy, timeout, **looking(), **more) as r:
        yield r


def act(work: Path, command: str) -> None:
    """Let the directory hold a hook."""
    file = work / ".claude/settings.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(
        json.dumps({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}})
    )


class Working:
    """A session in the directory, and somebody who answers."""

    def __init__(self, r: Rig, session: Session) -> None:
        self.r, self.session, self.person = r, session, Person()
        session.subscribe(self.person, 0)

    @classmethod
    async def begin(cls, r: Rig, work: Path) -> Working:
        return cls(r, await r.sessions.create(str(work), (), ()))

    async def prompt(self, text: str = "say 1") -> Turn:
        return await self.r.prompt(self.session, text)

    async def asked(self, count: int = 1) -> str:
        """Wait for so many questions about trust; the id of the last."""
        await eventually(lambda: len(self.person.ids) >= count)
        assert len(self.person.ids) == count
        return self.person.ids[-1]

    async def answer(self, turn: Turn, option: str) -> Outcome:
        await self.person.answer(await self.asked(len(self.person.ids) or 1), choice(option))
        return await over(turn)

    @property
    def options(self) -> list[WorkerOptions]:
        """How its workers were launched."""
        return [
            one.spec.options
            for one in self.r.launcher.launched
            if one.spec.session_id == self.session.id
        ]

    @property
    def said(self) -> str:
        return self.person.text


async def over(turn: Turn) -> Outcome:
    return (await asyncio.wait_for(turn.ended, 30))[0]
