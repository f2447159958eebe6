"""system.dotenv, for a front that runs since before modules moved to layers."""

from __future__ import annotations

from pykoclaw_acp.system.dotenv import read

__all__ = ["read"]
