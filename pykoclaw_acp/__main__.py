"""`python -m pykoclaw_acp` is `pykoclaw-acp`."""

from __future__ import annotations

from pykoclaw_acp.front import main

if __name__ == "__main__":
    main()
