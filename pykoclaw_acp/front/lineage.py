"""system.lineage, for a front that runs since before modules moved to layers."""

from __future__ import annotations

from pykoclaw_acp.system.lineage import is_inside

__all__ = ["is_inside"]
