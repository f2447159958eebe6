"""The daemon as a program, with workers in memory: `MemoryChannel` says what their prompts can be.

With `--stdio` it is the server for one client.
"""

from __future__ import annotations

import sys
from unittest import mock

from pykoclaw_acp.config import loading
from pykoclaw_acp.server import app, daemon, stdio
from tests.integration.memory_launcher import MemoryLauncher

if __name__ == "__main__":
    memory = mock.patch.object(
        app, "LocalLauncher", side_effect=lambda _, state, **__: MemoryLauncher(state)
    )
    with memory:
        sys.exit(stdio.main(loading.load()) if "--stdio" in sys.argv else daemon.main(loading.load))
