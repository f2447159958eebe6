"""Implements the sessions' port: looks at directories in a thread, so that no disk keeps others
waiting.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar

from pykoclaw_acp.errors import WorkerFailed
from pykoclaw_acp.model.permissions import Workspace
from pykoclaw_acp.system import disks, shortage
from pykoclaw_acp.trust.content import Content
from pykoclaw_acp.trust.listed import text
from pykoclaw_acp.trust.scan import scan, unchanged

T = TypeVar("T")

LOOK_WAIT: Final = 30.0  # s
OVERDUE: Final = f"it could not be looked at within {LOOK_WAIT:g} s"


class Watch:
    """Implements `sessions.ports.Workspaces`."""

    async def look(
        self, cwd: str | None, directories: Sequence[str], sources: Sequence[str]
    ) -> Content:
        """What acts there, as in `scan`; a disk that does not answer in time may hold anything.

        Raises WorkerFailed if this process has too little left to look.
        """
        try:
            await asyncio.gather(*map(_answers, filter(None, [cwd, *directories])))
            place = cwd or directories[0]
            return await _call(place, partial(scan, cwd, directories, sources))
        except TimeoutError:
            return Content(
                (Workspace(text(cwd or directories[0]), "", (OVERDUE,)),), {"": (0,) * 6}
            )

    async def unchanged(self, content: Content) -> bool:
        """Whether nothing that was looked at has changed since; raises as `look`."""
        place = next(iter(content.resolved), "")
        try:
            return await _call(place, partial(unchanged, content))
        except TimeoutError:
            return False


async def _call(place: str, look: Callable[[], T]) -> T:
    try:
        return await disks.call(place, look, LOOK_WAIT)
    except OSError as error:
        if (found := shortage.of(error)) is None:
            raise
        said = f"The prompt was not sent to Claude: the directory could not be looked at, as {found[1]}"
        raise WorkerFailed(found[0], said) from error


async def _answers(path: str) -> None:
    """Raises TimeoutError if its disk does not answer."""
    await disks.call(path, partial(os.path.exists, path))
