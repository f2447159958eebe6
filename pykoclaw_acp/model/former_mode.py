"""The mode that Claude was in before plan mode, to which the approval of a plan may lead back. Pure
functions.
"""

from __future__ import annotations

from typing import Final

from pykoclaw_acp.model.choices import BYPASS, MODES, Selection

PLAN: Final = "plan"
_OTHERWISE: Final = (PLAN, "default", "acceptEdits")  # the other options of a plan lead to these
_NAMES: Final = {one.id: one.name for one in (*MODES, BYPASS)}


def followed(former: str, before: str, now: str) -> str:
    """The mode before plan mode, after a change from `before` to `now`; `former` until then."""
    return before if now == PLAN != before else former


def offered(former: str, now: Selection) -> str:
    """The mode, if an option of its own has to lead back to it and it may be chosen; else empty."""
    allowed = now.mode == PLAN and any(one.id == former for one in now.modes)
    return former if allowed and former not in _OTHERWISE else ""


def named(former: str) -> str:
    """The name of the mode for people."""
    return _NAMES.get(former, former)
