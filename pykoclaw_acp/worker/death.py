"""Death of Claude's process, and what it is put down to."""

from __future__ import annotations

import asyncio
from typing import Final

from claude_agent_sdk import ClaudeSDKError, ProcessError

from pykoclaw_acp.channel.options import WorkerOptions
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.system import memory
from pykoclaw_acp.worker import hanging
from pykoclaw_acp.worker.claude import ClaudeSession
from pykoclaw_acp.worker.failures import in_one_line, lacks

RENEW: Final = 10.0  # s; what the kernel ended long before has nothing to do with the death
LONGEST: Final = 300  # characters of the CLI's words


def _last_words(claude: ClaudeSession) -> str:
    """Last line of the CLI's stderr, which alone says why it died."""
    return in_one_line(claude.stderr[-1]) if claude.stderr else ""


async def wait(claude: ClaudeSession, options: WorkerOptions) -> TurnFailure:
    """Process Claude's messages until its process ends, or is to be ended as it hangs; returns why."""
    hung = hanging.wait(lambda: claude.turns.untaken is not None, claude.ask, options)
    kills = memory.KillWatch()
    tasks = [
        asyncio.create_task(_died(claude, kills), name="read-claude"),
        asyncio.create_task(hung, name="watch-claude"),
    ]
    beside = [
        asyncio.create_task(claude.silence.watch(claude.ask), name="watch-turn"),
        asyncio.create_task(_renew(kills), name="renew-kills"),
    ]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return done.pop().result()
    finally:
        for task in (*tasks, *beside):
            task.cancel()


async def _renew(kills: memory.KillWatch) -> None:
    while True:
        await asyncio.sleep(RENEW)
        kills.renew()


async def _died(claude: ClaudeSession, kills: memory.KillWatch) -> TurnFailure:
    reason, lacking = "it ended", None
    try:
        await claude.run()
    except ProcessError as error:
        reason = _last_words(claude) or f"exit status {error.exit_code}"
        lacking = lacks(error, reason)
    except (ClaudeSDKError, OSError, ValueError) as error:
        reason = _last_words(claude) or str(error).splitlines()[0]
    if kills.lately:
        return TurnFailure(ErrorKind.OUT_OF_MEMORY, memory.KILLED)
    words = f"Claude's process died: {reason[:LONGEST]}."
    if lacking is not None:
        return TurnFailure(lacking[0], f"{words} That is, {lacking[1]}")
    return TurnFailure(ErrorKind.WORKER_LOST, words)
