"""Whether a target has accepted a notice."""

from __future__ import annotations


class NotAccepted(Exception):
    """A command or webhook did not accept a notice; the message says why."""
