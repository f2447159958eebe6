"""link.line_id, for a front that runs since before modules moved to layers."""

from __future__ import annotations

from pykoclaw_acp.link.line_id import find

__all__ = ["find"]
