"""What a prompt does whose conversation Claude does not remember."""

from __future__ import annotations

from enum import StrEnum


class LostContext(StrEnum):
    """What happens with a prompt whose conversation Claude does not remember."""

    AUTO = "auto"
    """The user is told, and Claude is given a digest of the history."""
    REQUIRED = "required"
    """The prompt ends with an error."""
    OFF = "off"
    """The user is told, and Claude begins with nothing."""
