"""Prompts as clients wrap them."""

from __future__ import annotations

CONTEXT = (
    "[Session Context]\nSession: 20261120-1 (name)\nAgent: pykoclaw\nWorking Directory: /w\nParent: \n---\n"
    "<user_request>\n{}\n</user_request>---\n[Mitto MCP Tools Check]\nUse `mitto_x`.\n"
)
