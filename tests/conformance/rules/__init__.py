"""All rules; importing this registers them, in the order in which they run."""

from tests.conformance.rules import (
    catalogue,
    choosing,
    directories,
    initializing,
    own_meta,
    own_updates,
    plans,
    prompting,
    servers,
    sessions,
    transport,
    updating,
)

__all__ = [
    "catalogue",
    "choosing",
    "directories",
    "initializing",
    "own_meta",
    "own_updates",
    "plans",
    "prompting",
    "servers",
    "sessions",
    "transport",
    "updating",
]
