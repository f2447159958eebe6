"""The agent process as Mitto has it: its pipes, its limits, its way to end it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.e2e.harness import Client
from tests.e2e.mitto import reading

LINE_LIMIT: Final = (
    10 * 1024 * 1024
)  # bytes; a longer one closes the connection (bufio.Scanner: token too long)
# Limits in seconds.
NEW: Final = 25.0
NEW_AUXILIARY: Final = 30.0
RESUME: Final = 10.0
LOAD: Final = 30.0
SET_MODEL: Final = 8.0
SET_MODE: Final = 30.0


class Overdue(Exception):
    """An answer did not come within Mitto's limit."""


class Wire(Client):
    """One agent process. On top of the harness' checks of every frame it has what only Mitto trips
    over.
    """

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.show: Callable[[str, dict[str, Any]], None] = lambda _session, _update: None
        self.noise: list[bytes] = []  # lines that do not begin with `{`: dropped
        self.longest = 0  # bytes of a line
        self._late: list[int] = []
        self.lost: set[str] = set()  # sessions in which what was lost may come again
        super().__init__(process, log)

    @property
    def stderr(self) -> str:
        """What the process, and whoever has its standard error, wrote there."""
        return self.log.read_text(errors="replace")

    @property
    def alarms(self) -> list[str]:
        """The words for which Mitto takes the process for dead."""
        return reading.alarms(self.stderr)

    async def timed(self, limit: float, method: str, /, **params: Any) -> dict[str, Any]:
        """A call within Mitto's limit; raises Overdue, and RpcError.

        That a request was overdue is told by `$/cancel_request` after the next request.
        """
        if method == "session/load":
            self.lost.add(params["sessionId"])
        message, future = self.request(method, **params)
        late, self._late = self._late, []
        cancels = [
            {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": one}}
            for one in late
        ]
        self.send(message, *cancels)
        try:
            return await asyncio.wait_for(asyncio.shield(future), limit)
        except TimeoutError:
            self._late.append(message["id"])
            raise Overdue(method) from self.fault

    async def kill_group(self) -> None:
        """The end of an agent in Mitto: SIGKILL to its process group, input still open, nothing
        said before.
        """
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        await self.gone()

    def _take(self, line: bytes) -> None:
        if not line.startswith(b"{"):
            self.noise.append(line)
            return
        self.longest = max(self.longest, len(line))
        assert len(line) <= LINE_LIMIT, "bufio.Scanner: token too long"
        super()._take(line)

    def _updated(self, frame: dict[str, Any]) -> None:
        self._loading |= self.lost & {frame["params"]["sessionId"]}
        super()._updated(frame)
        self.show(frame["params"]["sessionId"], frame["params"]["update"])
