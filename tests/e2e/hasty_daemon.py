"""The daemon as a program, whose workers take Claude for one that hangs after seconds.

With `workers` as first argument it is the fork server of those.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Any, Final
from unittest import mock

MODULE: Final = "pykoclaw_acp.worker.forkserver"


def begin(command: list[str], **how: Any) -> subprocess.Popen[bytes]:
    """Start the fork server of such workers."""
    place = command.index("-m")
    assert command[place + 1] == MODULE
    ours = [*command[:place], "-P", __file__, "workers", *command[place + 1 :]]
    return subprocess.Popen(ours, **how)


def serve() -> int:
    from pykoclaw_acp.config import loading
    from pykoclaw_acp.pool import forkserver_process
    from pykoclaw_acp.server import daemon

    ours = mock.Mock(wraps=subprocess, Popen=begin, DEVNULL=subprocess.DEVNULL)
    with mock.patch.object(forkserver_process, "subprocess", ours):
        return daemon.main(loading.load)


def fork() -> None:
    from pykoclaw_acp.system import processes
    from pykoclaw_acp.worker import forkserver

    def set_name(name: str) -> None:
        """Become one of the workers, which has imported what it needs."""
        from pykoclaw_acp.worker import hanging, main, silence

        silence.PAUSE = silence.QUIET = main.HEARTBEAT = 0.2  # type: ignore[misc]
        hanging.ANSWER_WAIT, silence.PATIENCE = 1.0, 2.0  # type: ignore[misc]
        processes.set_name(name)

    with mock.patch.object(forkserver, "set_name", set_name):
        forkserver.main()


if __name__ == "__main__":
    if sys.argv[1] == "workers":
        del sys.argv[1:3]  # the module's name is there for whoever looks for fork servers
        fork()
    else:
        sys.exit(serve())
