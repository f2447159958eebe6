"""End of the CLI.

At the end of its input alone, a CLI with background tasks goes on for 5 s, and begins turns about
the tasks that end meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from typing import Final

import structlog
from claude_agent_sdk import ClaudeSDKClient

from pykoclaw_acp.worker import sdk_private

INTERRUPT_WAIT: Final = 1.0  # s; the partial answer is written down meanwhile
IDLE_END: Final = 0.5  # s in which an idle CLI ends at the end of its input
DISCONNECT_WAIT: Final = 10.0  # s; the SDK itself kills a CLI that does not end

log: Final = structlog.get_logger()


async def end(client: ClaudeSDKClient, running: bool, *, busy: bool, abrupt: bool) -> None:
    """End the CLI. `running`: a turn is to be interrupted; `busy`: a turn or background tasks run.
    `abrupt`: the CLI does nothing more at its end. It runs no hooks, and does not note its own last
    entry, behind which another program may have gone on with the conversation.
    """
    if running:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(INTERRUPT_WAIT):
                await client.interrupt()
    if abrupt:
        log.info("Claude is ended at once, without its hooks", action="cli_killed")
        _send(sdk_private.cli_pid(client), signal.SIGKILL)
    terminating = asyncio.create_task(
        _terminate(client, 0.0 if busy else IDLE_END), name="terminate-cli"
    )
    with sdk_private.end_expected(), contextlib.suppress(Exception):
        async with asyncio.timeout(DISCONNECT_WAIT):
            await client.disconnect()
    terminating.cancel()


async def _terminate(client: ClaudeSDKClient, grace: float) -> None:
    """SIGTERM, upon which the CLI ends its tools and itself, if it has not ended in time."""
    pid = sdk_private.cli_pid(client)
    await asyncio.sleep(grace)
    _send(pid, signal.SIGTERM)


def _send(pid: int | None, number: signal.Signals) -> None:
    if pid is not None and not sdk_private.is_ending(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
