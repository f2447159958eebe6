"""Windows of a client, each with what it has seen."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pykoclaw_acp.sessions.cursor_retention import CursorAges
from pykoclaw_acp.store.session_journal import SessionJournal
from pykoclaw_acp.system import clock
from tests.integration.linked import Front, front, there
from tests.integration.rig import Rig, rig
from tests.waiting import eventually


def process(pid: int, start: int = 7, **other: Any) -> dict[str, Any]:
    """As a front names its parent."""
    return {"pid": pid, "start": start, "boot": "this boot", "space": 1, **other}


class Windows:
    """A client's processes: which of them live, and the fronts that they have started."""

    def __init__(self, r: Rig, stack: AsyncExitStack, patch: pytest.MonkeyPatch) -> None:
        self.r = r
        self._patch = patch
        self.living: set[str] = set()
        r.sessions.confirmations.alive = self._alive
        self._stack = stack
        self._fronts = 0

    def _alive(self, client_process: str) -> bool | None:
        return client_process in self.living if client_process.startswith("this boot") else None

    async def open(
        self, pid: int, start: int = 7, *, hello: dict[str, Any] | None = None, **more: Any
    ) -> Front:
        """A front of the window."""
        self.living.add(f"this boot:1:{pid}:{start}")
        self._fronts += 1
        said = {"parent": process(pid, start)} if hello is None else hello
        said = {"front": f"front {self._fronts}", **said}
        name = str(said.pop("front"))
        return await self._stack.enter_async_context(front(self.r, name, **said, **more))

    async def die(self, pid: int, one: Front | None = None, start: int = 7) -> None:
        """The window is killed, with its front."""
        self.living.discard(f"this boot:1:{pid}:{start}")
        if one is not None:
            await one.leave()

    async def pass_time(self, length: int) -> None:
        """The machine is awake for as much as this (ms); a daemon looks before and after
        it.
        """
        ages = CursorAges(self.r.sessions, SessionJournal(self.r.database))
        await ages.look()
        uptime = clock.uptime
        self._patch.setattr(clock, "uptime", lambda: uptime() + length)
        await ages.look()


@asynccontextmanager
async def windows(path: Path) -> AsyncIterator[Windows]:
    async with rig(path) as r:
        async with AsyncExitStack() as stack:
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            yield Windows(r, stack, patch)
        await r.sessions.confirmations.flush()


async def seen(w: Windows, one: Front, seq: int) -> None:
    """The front confirms what it was told, and it is written."""
    await eventually(lambda: max(_told(one)) >= seq)
    one.say(f"seen 1 {seq}")
    await there(w.r, f"SELECT 1 FROM acp_cursors WHERE seq = {seq}")


def _told(one: Front) -> list[int]:
    return [
        int(rest.split()[1])
        for kind in ("attached", "update", "cursor")
        for rest in one.rests(kind)
    ]


async def resume(one: Front, session: str, number: int = 1, **more: Any) -> None:
    await one.result(number, "session/resume", sessionId=session, cwd="/", **more)
