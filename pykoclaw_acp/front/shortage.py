"""system.shortage, for a front that runs since before modules moved to layers, and imports this when it needs it."""

from __future__ import annotations

from pykoclaw_acp.system.shortage import of

__all__ = ["of"]
