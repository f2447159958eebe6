"""`pykoclaw-acp`: without arguments the process that a client starts, otherwise a command."""

from __future__ import annotations

import os
import sys

NO_MEMORY = (
    b"pykoclaw-acp: There is not enough memory to start. Raise the limit (`ulimit -v`, `MemoryMax=` of the unit), or"
    b" end other programs. Nothing was lost.\n"
)
COMPLETION = "_PYKOCLAW_ACP_COMPLETE"  # click: a shell asks how to complete a command line


def main() -> None:
    """The console script, and `python -m pykoclaw_acp`."""
    try:
        _run()
    except Exception as error:
        if not _lacks_memory(error):
            raise
        os.write(2, NO_MEMORY)  # without an import, which would fail, too
        os._exit(1)


def _lacks_memory(error: BaseException | None) -> bool:
    """Whether it came of a shortage: without memory, what handles an error fails as well, and Python's
    compiler in any way.
    """
    while error is not None:
        if isinstance(error, (MemoryError, SystemError)) or "failed to map segment" in str(error):
            return True
        error = error.__context__
    return False


def _run() -> None:
    if len(sys.argv) == 1 and COMPLETION not in os.environ:
        from pykoclaw_acp.front.process import run

        sys.exit(run())
    from pykoclaw_acp.cli import main as command

    command()


if __name__ == "__main__":
    main()
