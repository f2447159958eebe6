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
    Inside, only the home's file says what is allowed: the variable, which a tool can set for what
    it runs, is removed from the environment of this process, and so of a daemon that it starts.
    """
    if (session := _session(at)) is None:
        return None
    for name in [name for name in os.environ if name.lower() == SETTING]:
        del os.environ[name]
    if (places.setting(SETTING, given=False) or "none") != "none":
        return None
    return (
        f"This program runs inside of session {session}: Claude, or one of its tools, has started"
        f" it. From there, pykoclaw-acp cannot be started for {at.data}. Start it from a terminal of"
        " your own, or allow clients inside of sessions by PYKOCLAW_NESTED_ACCESS=clients in"
        " ~/.local/share/pykoclaw/.env."
    )


def _session(at: places.Places) -> str | None:
    """The session of the data directory that this process runs inside of."""
    for process in lineage.ancestry(os.getpid()):
        instance, _, rest = (process.cookie or "").partition(":")
        if instance and (
            instance == at.hash or _data_of(at.state, instance) == os.path.realpath(at.data)
        ):
            return rest.rpartition(":")[0]
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
