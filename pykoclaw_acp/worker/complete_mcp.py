"""Completes the package mcp when it is imported, once for all threads: see `deferred_mcp.py`."""

from pykoclaw_acp.worker import deferred_mcp

deferred_mcp.execute(deferred_mcp.MCP)
