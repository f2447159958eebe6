"""Workers on this machine without a launcher: found by the cookie of their processes, and by the
directories of their instances.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pykoclaw_acp.link import records
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.pool import leftovers, local_whereabouts
from pykoclaw_acp.system import lineage, processes, reaper
from pykoclaw_acp.system.reaper import Stray


class LocalUnattendedWorkers:
    """Implements `UnattendedWorkers`."""

    def __init__(self, places: Places) -> None:
        self._places = places

    def holds(self, data: str) -> bool:
        """Look at the descriptors of all live workers of this user."""
        return local_whereabouts.is_held(data)

    def processes(self) -> Mapping[str, int]:
        """Count processes by their cookie."""
        found: dict[str, int] = {}
        names = records.names(self._places)

        def count(cookie: str) -> bool:
            name, _, worker = cookie.partition(":")
            if name in names:
                found[worker] = found.get(worker, 0) + 1
            return False

        reaper.find(count)
        return found

    def end(self, grace: float) -> int:
        """End the workers, which keep for the next daemon that they were stopped; then all processes
        with a cookie of theirs.
        """
        names = records.names(self._places)
        cookies: set[str] = set()

        def ours(cookie: str) -> bool:
            if cookie.partition(":")[0] not in names:
                return False
            cookies.add(cookie)
            return True

        if grace:  # else they lose what they have not written down
            reaper.end_these(_parents(reaper.find(ours)), grace)
        reaper.end_now(ours, grace)
        return len(cookies)

    def damaged_spools(self) -> list[str]:
        """List the directories for them."""
        return leftovers.kept_of(self._places.state, records.names(self._places))


def _parents(found: Sequence[Stray]) -> list[Stray]:
    """The workers, which have no cookie themselves, among the parents of these processes."""
    parents = {processes.parent(one.pid) for one in found}
    named = [pid for pid in parents if pid and processes.name(pid) == lineage.WORKER_NAME]
    started = ((pid, processes.start_time(pid)) for pid in named)
    return [Stray(pid, start) for pid, start in started if start is not None]
