"""What a turn has used."""

from __future__ import annotations

import msgspec


class TurnUsage(msgspec.Struct, frozen=True):
    """Tokens used by one turn."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_read_tokens: int = 0
    cached_write_tokens: int = 0
