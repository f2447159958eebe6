"""Implements the sessions' port: looks at directories in a thread, so that no disk keeps others
waiting.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from functools import partial
from typing import Final

from pykoclaw_acp.model.permissions import Workspace
from pykoclaw_acp.system import disks
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
            await asyncio.gather(*map(_answers, filter(None, [cwd, *directories])))
            place = cwd or directories[0]
            return await disks.call(place, partial(scan, cwd, directories, sources), LOOK_WAIT)
        except TimeoutError:
            return Content(
                (Workspace(text(cwd or directories[0]), "", (OVERDUE,)),), {"": (0,) * 6}
            )

    async def unchanged(self, content: Content) -> bool:
        """Whether nothing that was looked at has changed since."""
        place = next(iter(content.resolved), "")
        try:
            return await disks.call(place, partial(unchanged, content), LOOK_WAIT)
        except TimeoutError:
            return False


async def _answers(path: str) -> None:
    """Raises TimeoutError if its disk does not answer."""
    await disks.call(path, partial(os.path.exists, path))
