"""Frames to a worker about the turn that runs."""

from __future__ import annotations

from typing import Any

import msgspec

from pykoclaw_acp.model.events import Event


class Steer(
    msgspec.Struct, frozen=True, kw_only=True, tag_field="frame", tag="steer", omit_defaults=True
):
    """Give the prompt to the turn that runs, between its tool calls; it is a turn of its own if that
    ends before. `said`: what is logged of it where it is taken up.
    """

    epoch: int
    turn_id: str
    content: list[dict[str, Any]]
    said: list[Event]
