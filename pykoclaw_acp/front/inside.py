"""Whether this process runs inside of a session of a data directory, so that it starts no daemon
there.
"""

from __future__ import annotations

import json
import os

from pykoclaw_acp.link import places
from pykoclaw_acp.system import lineage

TYPE_CHECKING = False  # `typing` would cost the front half of its start-up time
if TYPE_CHECKING:
    from typing import Final

SETTING: Final = "pykoclaw_nested_access"
_RECORD: Final = "instance.json"  # as in `link.records`


def refusal(at: places.Places) -> str | None:
    """Why a client or command inside of a session gets no daemon; None if it may start one.

    That the daemon would refuse it, once it was started, is no reason to start it from there.
    """
    if (places.setting(SETTING) or "none") != "none":
        return None
    for process in lineage.ancestry(os.getpid()):
        instance, _, rest = (process.cookie or "").partition(":")
        if instance and (
            instance == at.hash or _data_of(at.state, instance) == os.path.realpath(at.data)
        ):
            return (
                f"This program runs inside of session {rest.rpartition(':')[0]}: Claude, or one of its tools, has "
                f"started it. From there, pykoclaw-acp cannot be started for {at.data}. Start it from a terminal "
                "of your own, or set PYKOCLAW_NESTED_ACCESS=clients to allow clients inside of sessions."
            )
    return None


def _data_of(state: str, instance: str) -> str | None:
    """Where the data directory of this instance was last."""
    try:
        with open(
            os.path.join(state, os.path.basename(instance), _RECORD), encoding="utf-8"
        ) as file:
            data = json.load(file)["data"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return data if isinstance(data, str) else None
