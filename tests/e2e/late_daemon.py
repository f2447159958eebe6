"""The daemon as a program, whose event loop is held up each time that it is asked for
its sessions.
"""

from __future__ import annotations

import sys
import time
from typing import Any, Final
from unittest import mock

from pykoclaw_acp.config import loading
from pykoclaw_acp.server import daemon
from pykoclaw_acp.store import summaries

SECONDS: Final = 0.6

listing = summaries.listing


async def late(*arguments: Any, **named: Any) -> Any:
    """The fault."""
    time.sleep(SECONDS)  # noqa: ASYNC251
    return await listing(*arguments, **named)


if __name__ == "__main__":
    with mock.patch.object(summaries, "listing", late):
        sys.exit(daemon.main(loading.load))
