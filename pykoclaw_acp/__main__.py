"""`pykoclaw-acp`: without arguments the process that a client starts, otherwise a command."""

from __future__ import annotations

import os
import sys

COMPLETION = "_PYKOCLAW_ACP_COMPLETE"  # click: a shell asks how to complete a command line


def main() -> None:
    """The console script, and `python -m pykoclaw_acp`."""
    if len(sys.argv) == 1 and COMPLETION not in os.environ:
        from pykoclaw_acp.front.process import run

        sys.exit(run())
    from pykoclaw_acp.cli import main as command

    command()


if __name__ == "__main__":
    main()
