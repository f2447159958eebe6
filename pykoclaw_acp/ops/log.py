"""logging.setup, for a fork server that runs since before modules moved to layers."""

from __future__ import annotations

from pykoclaw_acp.logging.setup import configure

__all__ = ["configure"]
