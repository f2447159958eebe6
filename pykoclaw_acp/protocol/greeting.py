"""link.greeting, for a front that runs since before modules moved to layers."""

from __future__ import annotations

from pykoclaw_acp.link.greeting import greeting

__all__ = ["greeting"]
