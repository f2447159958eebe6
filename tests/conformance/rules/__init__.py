"""All rules; importing this registers them, in the order in which they run."""

from tests.conformance.rules import (
    catalogue,
    choosing,
    initializing,
    own_meta,
    own_updates,
    prompting,
    servers,
    sessions,
    transport,
    updating,
)

__all__ = [
    "catalogue",
    "choosing",
    "initializing",
    "own_meta",
    "own_updates",
    "prompting",
    "servers",
    "sessions",
    "transport",
    "updating",
]
