"""Whether a database that was found is the instance itself, or a copy of it: a pure function of
what is known.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from pykoclaw_acp.link.records import Site
from pykoclaw_acp.pool.whereabouts import Direction

Verdict = Literal["same", "moved", "copy"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """`recorded` is where the data directory was, as the database says, `here` where it is.

    `workers` is where the live workers of the instance see their data directory. `served`: another
    daemon has the instance. `lives_elsewhere`: where the state directory last knew it, there still
    is that very directory with a database. `original_is_there`: so it is, of whatever kind, at the
    recorded path.
    """

    recorded: Site
    here: Site
    workers: Collection[Direction] = ()
    served: bool = False
    lives_elsewhere: bool = False
    original_is_there: bool = False


def judge(evidence: Evidence) -> Verdict:
    """What workers see counts most, then what the state directory knows, then paths; any doubt
    makes it a copy.
    """
    at_place = evidence.here.path == evidence.recorded.path
    ours: Verdict = "same" if at_place else "moved"
    if evidence.served:
        return "copy"
    if "here" in evidence.workers:
        return ours
    if "elsewhere" in evidence.workers or evidence.lives_elsewhere:
        return "copy"
    if at_place or evidence.here.is_same(evidence.recorded):
        return ours
    if "unknown" in evidence.workers or evidence.original_is_there:
        return "copy"
    return "moved"
