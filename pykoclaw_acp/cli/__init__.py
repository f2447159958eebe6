"""The `pykoclaw-acp` command. Each command imports what it needs when it runs, so that every start
is fast.
"""

from pykoclaw_acp.cli.program import cli, main

__all__ = ["cli", "main"]
