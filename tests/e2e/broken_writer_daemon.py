"""The daemon as a program, whose writer of the database runs out of memory, or hangs, from the moment
that a file is there: the first argument, `dies` or `hangs`, and its path.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import Any
from unittest import mock

from pykoclaw_acp.config import loading
from pykoclaw_acp.server import daemon
from pykoclaw_acp.store.batch import BatchWriter

how, path = sys.argv[1:3]
write = BatchWriter.write


def broken(self: BatchWriter, *arguments: Any, **named: Any) -> Any:
    """The fault."""
    if os.path.exists(path):
        if how == "dies":
            raise MemoryError
        threading.Event().wait()
    return write(self, *arguments, **named)


if __name__ == "__main__":
    with mock.patch.object(BatchWriter, "write", broken):
        sys.exit(daemon.main(loading.load))
