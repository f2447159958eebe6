"""What clients wrap around the user's words in a prompt, as Mitto does: pure functions of the prompt.

The log shows the user's own words, which is what he sees on his screen. Claude gets the rest as well where it says
something new: the client's context block, but not a history that Claude remembers anyway.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from typing import Any, Final

# Up to the last end: the history's turns may quote one.
_HISTORY: Final = re.compile(
    r"\A\s*\[CONVERSATION HISTORY - [^\]\n]*\]\n.*^\[END OF HISTORY - Continue[^\]\n]*\]\n{0,2}",
    re.DOTALL | re.MULTILINE,
)
# Mitto's own head and tail, and nothing that only looks like them: a text that quotes a request is the user's.
_REQUEST: Final = re.compile(
    r"\A\s*\[Session Context\]\n.*?^---\n<user_request>\n(.*)^</user_request>(?=\s*(?:---\s*)?\Z|---\n\[)",
    re.DOTALL | re.MULTILINE,
)
_COMMAND: Final = re.compile(r"/[A-Za-z][\w:.-]*(?:\s|\Z)")
# Beginnings of the prompts that Mitto sends for itself: titles, follow-up questions, checks of its tools.
_AUXILIARY: Final = (
    "\nConsider this initial message in a conversation with an LLM:",
    "\nAnalyze this conversation turn and identify",
    "\nCheck if you have access to the MCP tool",
    "List ALL MCP tools currently available to you.",
    "\nSummarize this message in 2-3 words",
    "\nRewrite the following prompt",
)
_MAY_BE_MITTO: Final = ("mitto", "unknown")


def unwrap(text: str) -> str:
    """The user's own words."""
    rest = without_history(text)
    found = _REQUEST.match(rest)
    return rest if found is None else found[1].removesuffix("\n")


def without_history(text: str) -> str:
    """The text without the summary of earlier turns that Mitto puts before the first prompt after a resume."""
    return _HISTORY.sub("", text, count=1)


def shown(blocks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The content as the log has it."""
    return [_with_text(block, unwrap) for block in blocks]


def for_claude(blocks: Sequence[dict[str, Any]], *, remembers: bool) -> list[dict[str, Any]]:
    """The content as Claude gets it; a slash command stands alone, since only the prompt's beginning counts as one.

    `remembers`: Claude's session holds the earlier turns.
    """

    def words(text: str) -> str:
        own = unwrap(text)
        if own != text and is_command(own):
            return own
        return without_history(text) if remembers else text

    return [_with_text(block, words) for block in blocks]


def is_command(words: str) -> bool:
    """Whether these words are a slash command."""
    return _COMMAND.match(words) is not None


def fingerprint(blocks: Sequence[dict[str, Any]]) -> str:
    """SHA-256 (hex) of the user's own words and the other blocks: equal for a prompt that is wrapped anew."""
    own = [_with_text(block, lambda text: unwrap(text).strip()) for block in blocks]
    return hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()


def auxiliary(text: str) -> bool:
    """Whether this is a prompt of Mitto's own, which no user wrote."""
    return text.startswith(_AUXILIARY)


def by_client_itself(blocks: Sequence[dict[str, Any]], client: str | None) -> bool:
    """The same for a prompt's content and the name of the client that sent it, which Mitto does not always give."""
    if client is not None and client.lower() not in _MAY_BE_MITTO:
        return False
    return any(auxiliary(block["text"]) for block in blocks[:1] if block.get("type") == "text")


def _with_text(block: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    return {**block, "text": change(block["text"])} if block.get("type") == "text" else block
