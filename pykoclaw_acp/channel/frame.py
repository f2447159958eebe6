"""What all frames of the channel have in common."""

from __future__ import annotations

import msgspec


class Frame(msgspec.Struct, frozen=True, kw_only=True, tag_field="frame", omit_defaults=True):
    """A frame; `epoch` is the worker's."""

    epoch: int
