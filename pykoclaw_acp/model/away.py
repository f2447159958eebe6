"""Policies for permission requests while no client is connected."""

from __future__ import annotations

from enum import StrEnum


class AwayPolicy(StrEnum):
    """What happens to a pending request while no client is connected."""

    WAIT = "wait"  # wait for a client, up to a limit
    DENY = "deny"  # refuse
    ALLOW = "allow"  # allow, once
    PARK = "park"  # end the turn and free the worker; the request stays pending
