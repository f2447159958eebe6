"""What follows from the decision on a permission request."""

from __future__ import annotations

from typing import NamedTuple

from pykoclaw_acp.channel.frames import Answer
from pykoclaw_acp.model.permissions import Decision
from pykoclaw_acp.model.turns import Turn


class Settled(NamedTuple):
    """`decision`: the one that counts. `recorded`: it is in the database. `answer`: for the worker that waits for it.
    `claims`: who has decided stands behind the prompt that waits. `turn`: is to tell Claude the
    decision on a parked request.
    """

    decision: Decision
    recorded: bool
    answer: Answer | None = None
    claims: bool = False
    turn: Turn | None = None
