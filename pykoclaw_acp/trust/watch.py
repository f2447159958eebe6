"""Implements the sessions' port: looks at directories in a thread, so that no disk keeps others
waiting.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, TypeVar
from weakref import WeakValueDictionary

from pykoclaw_acp.errors import WorkerFailed
from pykoclaw_acp.model.permissions import Workspace
from pykoclaw_acp.system import disks, shortage
from pykoclaw_acp.tasks import Tasks
from pykoclaw_acp.trust.content import Content
from pykoclaw_acp.trust.listed import text
from pykoclaw_acp.trust.scan import scan, unchanged

T = TypeVar("T")

LOOKS: Final = 5  # at a time: they compute for long, and share the threads for calls about disks
LOOK_WAIT: Final = 30.0  # s; a look ends by itself before, unless its disk hangs
OVERDUE: Final = f"it could not be looked at within {LOOK_WAIT:g} s"


class Watch:
    """Implements `sessions.ports.Workspaces`."""

    def __init__(self) -> None:
        self._looks = asyncio.Semaphore(LOOKS)
        self._each: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()  # by disk
        self._tasks = Tasks()

    async def look(
        self, cwd: str | None, directories: Sequence[str], sources: Sequence[str]
    ) -> Content:
        """What acts there, as in `scan`; a disk that does not answer in time may hold anything.

        Raises WorkerFailed if this process has too little left to look.
        """
        try:
            await asyncio.gather(*map(_answers, filter(None, [cwd, *directories])))
            place = cwd or directories[0]
            begun = asyncio.Event()
            look = self._look(place, partial(scan, cwd, directories, sources), begun)
            # Who does not wait for it any more does not end its thread.
            return await self._tasks.finish(look, begun)
        except TimeoutError:
            return Content(
                (Workspace(text(cwd or directories[0]), "", (OVERDUE,)),), {"": (0,) * 6}
            )

    async def _look(self, place: str, look: Callable[[], Content], begun: asyncio.Event) -> Content:
        # Looks at a slow disk wait here, where they keep none at another from beginning.
        each = self._each.setdefault(disks.disk_of(place), asyncio.Semaphore(disks.EACH))
        async with each, self._looks:
            begun.set()
            return await _call(place, look)

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
