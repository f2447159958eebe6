"""The daemon as a program, with workers in memory: `MemoryChannel` says what their prompts can be.

With `--stdio` it is the server for one client.
"""

from __future__ import annotations

import sys
from unittest import mock

from pykoclaw_acp.channel.requests import MakeTitle, RewindFiles, StopSubagents, StopTask
from pykoclaw_acp.channel.spec import LaunchSpec
from pykoclaw_acp.config import loading
from pykoclaw_acp.server import app, daemon, stdio
from tests.integration.memory_launcher import MemoryChannel, MemoryLauncher


class ForgettingLauncher(MemoryLauncher):
    """Forgets workers that have ended: tests look at the memory of this daemon."""

    async def launch(self, spec: LaunchSpec) -> MemoryChannel:
        self.launched = self.live
        self.cleaned.clear()
        channel = await super().launch(spec)
        channel.replies = (MakeTitle, RewindFiles, StopSubagents, StopTask)
        return channel


if __name__ == "__main__":
    memory = mock.patch.object(
        app, "LocalLauncher", side_effect=lambda _, state, **__: ForgettingLauncher(state)
    )
    with memory:
        sys.exit(stdio.main(loading.load()) if "--stdio" in sys.argv else daemon.main(loading.load))
