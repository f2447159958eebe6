"""Whether Claude's service is reached through a gateway, which may not pass on all that it offers."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit


def is_between(environment: Mapping[str, str]) -> bool:
    """Whether `ANTHROPIC_BASE_URL` names another service than Claude's own."""
    try:
        host = urlsplit(environment.get("ANTHROPIC_BASE_URL", "")).hostname or ""
    except ValueError:
        return False
    return bool(host) and host != "anthropic.com" and not host.endswith(".anthropic.com")
