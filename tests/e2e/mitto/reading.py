"""How Mitto reads errors and the agent's standard error: by the words that are in them."""

from __future__ import annotations

import json
from typing import Final

from tests.e2e.harness import RpcError

# Each of these on standard error, at any time, marks the process dead for good.
ALARMS: Final = (
    "broken pipe",
    "connection reset by peer",
    "stream ended unexpectedly",
    "EOF received from CLI stdout",
    "background reader: stream ended",
    "received message with neither id nor method",
    "failed to queue notification; closing connection",
)
# These, in any case, make a start that failed permanent.
HOPELESS: Final = (
    "no such file or directory",
    "command not found",
    "permission denied",
    "eacces",
    "enoent",
    "syntaxerror",
    "parse error",
    "cannot find module",
    "file already closed",
)
TOO_LARGE: Final = "The conversation context is too large. Please start a new conversation."
RATE_LIMIT: Final = "Rate limit reached. Please wait a moment."
LOST: Final = "Lost connection to the AI agent."
CANCELLED: Final = "The request was cancelled."
INTERNAL: Final = "The AI agent encountered an internal error."


def alarms(stderr: str) -> list[str]:
    """The alarm words in what an agent wrote on standard error."""
    return [word for word in ALARMS if word in stderr]


def read(error: RpcError) -> str:
    """What the user reads of a prompt's error; matched on the whole error, as JSON."""
    shown: dict[str, object] = {"code": error.code, "message": error.message}
    if error.data is not None:
        shown["data"] = error.data
    text = json.dumps(shown)
    lowered = text.lower()
    if "413" in text or "prompt is too long" in lowered or "context window is full" in lowered:
        return TOO_LARGE
    if "rate limit" in lowered or "too many requests" in lowered:
        return RATE_LIMIT
    if any(words in lowered for words in ("peer disconnected", "connection reset", "broken pipe")):
        return LOST
    if "context canceled" in lowered:
        return CANCELLED
    if error.code == -32603 and "Internal error" in error.message:
        return INTERNAL
    return f"Prompt failed: {text}"
