"""Connecting to a CLI that may end while it starts."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from claude_agent_sdk import ClaudeSDKClient, CLIConnectionError, CLINotFoundError, ProcessError

from pykoclaw_acp.worker import deferred_mcp, sdk_private

LOOK: Final = 0.05  # s between two looks whether a CLI that starts has ended
NOTICE_WAIT: Final = 1.0  # s; for the SDK to notice it, and to say why


class CliEnded(Exception):
    """The CLI has ended before it was connected; the SDK does not notice if its status is 0."""

    def __init__(self, status: int) -> None:
        super().__init__(f"exit status {status}")
        self.status = status


async def connect(client: ClaudeSDKClient) -> None:
    """Connect the SDK's client; raises CliEnded at once if the CLI ends, for which the SDK would wait
    60 s.
    """
    status: int | None = None
    process: object = None  # the SDK forgets it when it fails

    async def watch(limit: asyncio.Timeout) -> None:
        nonlocal status, process
        loop = asyncio.get_running_loop()
        while (status := sdk_private.exit_status(process)) is None:  # the SDK tells nobody
            if process is None and (process := sdk_private.cli_process(client)) is not None:
                deferred_mcp.prepare_server()  # that this CLI will ask for
            await asyncio.sleep(LOOK if process else 0)
        limit.reschedule(loop.time() + NOTICE_WAIT)

    try:
        async with asyncio.timeout(None) as limit:
            watching = asyncio.create_task(watch(limit), name="watch-start")
            try:
                await client.connect()
            finally:
                watching.cancel()
    except TimeoutError:
        if not limit.expired() or status is None:
            raise
        raise CliEnded(status) from None
    except CLINotFoundError:
        raise
    except CLIConnectionError as error:  # it took no request, as it was ending
        match await _status(sdk_private.cli_process(client) or process):
            case None:
                raise
            case 0:
                raise CliEnded(0) from error
            case failed:  # as the SDK has it if it notices the end before it writes
                raise ProcessError("Claude ended while it started", exit_code=failed) from error


async def _status(process: object) -> int | None:
    """The exit status of a CLI that is ending; None if it goes on."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(NOTICE_WAIT):
            while (status := sdk_private.exit_status(process)) is None:  # noqa: ASYNC110
                await asyncio.sleep(LOOK)
            return status
    return None
