"""system.trusted_path, for a front that runs since before modules moved to layers: it imports this
late.
"""

from __future__ import annotations

from pykoclaw_acp.system.trusted_path import make, require

__all__ = ["make", "require"]
