"""MCP servers that a client gives."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any


def program(name: str, secret: str) -> dict[str, Any]:
    """A server on stdio that whispers what its secret is made of."""
    path = str(Path(__file__).with_name("mcp_server.py"))
    environment = [{"name": "SECRET", "value": secret}]
    return {"name": name, "command": sys.executable, "args": [path], "env": environment}
