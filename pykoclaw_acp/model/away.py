"""What decides about permission requests while no client is there."""

from __future__ import annotations

from typing import Literal

AwayPolicy = Literal["wait", "deny", "allow", "park"]
