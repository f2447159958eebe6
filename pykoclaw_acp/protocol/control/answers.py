"""Base and limit of the answers of control methods."""

from __future__ import annotations

from typing import Final

from pykoclaw_acp.protocol.wire import Wire

MAX_ITEMS: Final = 10_000  # in one answer, which must fit into a line


class FullAnswer(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """Base of answers; every field is encoded, also one with its default."""
