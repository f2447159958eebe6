"""Base classes of ACP version 1 messages as typed Structs (https://agentclientprotocol.com, schema
1.x).

Field names are Python's; on the wire they are camelCase, and `meta` is `_meta`. Unknown fields are
ignored, as the schema requires, and `_meta` is never merged into parameters.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Wire(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, kw_only=True):
    """Base of all messages."""


class Params(Wire, frozen=True, kw_only=True):
    """Base of client parameters."""

    meta: dict[str, Any] | None = msgspec.field(name="_meta", default=None)
