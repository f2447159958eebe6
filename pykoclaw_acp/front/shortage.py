"""system.shortage, for a front that runs since before modules moved to layers."""

from __future__ import annotations

from pykoclaw_acp.system.shortage import of

__all__ = ["of"]
