"""For which client a task works: what it logs and reads counts as that client's share."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from pykoclaw_acp.logging import share
from pykoclaw_acp.logging.share import LogShare

client: Final[ContextVar[object]] = ContextVar("client", default=None)
"""Equal for all tasks that share; None: for no client."""


def of(process: object) -> LogShare:
    """Let this task, and those that it starts, work for a connection of a process."""
    client.set(process)
    share.current.set(made := LogShare())
    return made


def of_nobody() -> None:
    """Let this task work for no client, whoever has started it."""
    client.set(None)
    share.current.set(None)
