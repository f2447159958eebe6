"""Implements the sessions' port: looks at directories in a thread, so that no disk keeps others
waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from pykoclaw_acp.model.permissions import Workspace
from pykoclaw_acp.trust.content import Content
from pykoclaw_acp.trust.scan import scan, text, unchanged

LOOK_WAIT: Final = 30.0  # s
OVERDUE: Final = f"it could not be looked at within {LOOK_WAIT:g} s"


class Watch:
    """Implements `sessions.ports.Workspaces`."""

    async def look(
        self, cwd: str | None, directories: Sequence[str], sources: Sequence[str]
    ) -> Content:
        """What acts there, as in `scan`; a disk that does not answer in time may hold anything."""
        try:
            async with asyncio.timeout(LOOK_WAIT):
                return await asyncio.to_thread(scan, cwd, directories, sources)
        except TimeoutError:
            return Content(
                (Workspace(text(cwd or directories[0]), "", (OVERDUE,)),), {"": (0,) * 6}
            )

    async def unchanged(self, content: Content) -> bool:
        """Whether nothing that was looked at has changed since."""
        try:
            async with asyncio.timeout(LOOK_WAIT):
                return await asyncio.to_thread(unchanged, content)
        except TimeoutError:
            return False
