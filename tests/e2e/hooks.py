"""Hooks of Claude's settings."""

from __future__ import annotations

import json

from tests.e2e.harness import Stack

_BLOCKING = "grep -q forbidden && { echo no >&2; exit 2; }; exit 0"


def block_prompts(stack: Stack) -> None:
    """Have a hook block each prompt that has the word "forbidden"; it says "no"."""
    hooks = {"UserPromptSubmit": [{"hooks": [{"type": "command", "command": _BLOCKING}]}]}
    (stack.home / ".claude").mkdir(exist_ok=True)
    (stack.home / ".claude/settings.json").write_text(json.dumps({"hooks": hooks}))
