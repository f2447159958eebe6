"""A Claude process that hangs over a prompt, as one does whose MCP server writes without end: it reads
nothing any more.

One that waits, for servers that connect or for hooks, has limits of its own, and answers meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from pykoclaw_acp.channel.options import WorkerOptions, suspects
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.failures import TurnFailure

PATIENCE: Final = 120.0  # s without an answer
ANSWER_WAIT: Final = 30.0  # s; for one answer, which usually takes 10 ms
PAUSE: Final = 10.0  # s between two questions

log: Final = structlog.get_logger()


async def wait(
    waits: Callable[[], bool], ask: Callable[[], Awaitable[object]], options: WorkerOptions
) -> TurnFailure:
    """Return, with what to tell the user, when Claude has answered no question of `ask` for
    PATIENCE while a prompt waits to be taken up.

    What counts is the time of this process: a machine that sleeps does not end the patience.
    """
    silent = 0.0
    while silent < PATIENCE:
        await asyncio.sleep(PAUSE)
        silent = silent + PAUSE + ANSWER_WAIT if waits() and not await answers(ask) else 0.0
    words = f"Claude's process hung: it did not answer for {PATIENCE:g} s, and was ended."
    return TurnFailure(ErrorKind.WORKER_LOST, words + suspects(options))


async def answers(ask: Callable[[], Awaitable[object]]) -> bool:
    """Whether Claude answers this question within ANSWER_WAIT, be it with a refusal."""
    try:
        async with asyncio.timeout(ANSWER_WAIT):
            await ask()
    except TimeoutError:
        return False
    except Exception as error:  # noqa: BLE001  a refusal is an answer; the end is noticed elsewhere
        log.info("Claude refused a question", action="question_refused", why=repr(error))
    return True
