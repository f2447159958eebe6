"""What decides about permission requests while no client is there."""

from __future__ import annotations

from enum import StrEnum


class AwayPolicy(StrEnum):
    """What becomes of a request that nobody is there to answer."""

    WAIT = "wait"  # it waits for a client, up to a limit
    DENY = "deny"  # it is refused
    ALLOW = "allow"  # it is allowed, this once
    PARK = "park"  # its turn ends and its worker goes; it waits on without them
