"""worker.forkserver, for a daemon that runs since before modules moved to layers."""

from __future__ import annotations

from pykoclaw_acp.worker.forkserver import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
