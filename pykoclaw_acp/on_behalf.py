"""For which client, or for which session's turns, a task works: what it reads counts as that share,
and what it logs as that of the client.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from pykoclaw_acp.logging import share
from pykoclaw_acp.logging.share import LogShare

client: Final[ContextVar[object]] = ContextVar("client", default=None)
"""Equal for all tasks that share: a client's process, or a session; None: for neither."""


def of(process: object) -> LogShare:
    """Let this task, and those that it starts, work for a connection of a process."""
    client.set(process)
    share.current.set(made := LogShare())
    return made


def of_session(session_id: str) -> None:
    """Let this task work for the turns of a session, whichever client has started it."""
    client.set(session_id)
    share.current.set(None)
