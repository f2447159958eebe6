"""What Mitto puts around the user's words, and the prompts that it makes for itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

# As its auxiliary prompts begin; what follows is the instruction.
TITLE: Final = "\nConsider this initial message in a conversation with an LLM:"
FOLLOW_UP: Final = "\nAnalyze this conversation turn and identify"
MCP_CHECK: Final = "\nCheck if you have access to the MCP tool"
MCP_TOOLS: Final = "List ALL MCP tools currently available to you."
SUMMARY: Final = "\nSummarize this message in 2-3 words"
REWRITE: Final = "\nRewrite the following prompt"
PATTERNS: Final = "Check if you have any MCP tools matching each of these name patterns."
# As its processors begin, in version 09f57d87; the last one when several run at once.
PROCESSORS: Final = (
    "You are a preference curator. Your job is to analyze the user's messages below\nand extract any preferences",
    "You are a metadata extractor. Your job is to analyze the conversation messages below\nand identify values",
    "You are a workspace metadata curator. Your job is to analyze the project in the\ncurrent working directory",
    "You generate Claude Code memory files for this workspace for the first time.\n\nWorking directory: /w",
    "You update Claude Code memory files for this workspace based on recent conversation insights.",
    "You generate `.augment/rules` files for this workspace for the first time.",
    "You update `.augment/rules` files for this workspace based on recent conversation insights.",
    "We would like to fulfill the following requirements:\n\n## Requirement 1: memorize-preferences\n\nYou are",
)
AUXILIARY: Final = (
    TITLE, FOLLOW_UP, MCP_CHECK, MCP_TOOLS, SUMMARY, REWRITE, PATTERNS, *PROCESSORS
)  # fmt: skip

_TURNS: Final = 5  # of the history that it repeats
_USER: Final = 500  # characters of each
_ASSISTANT: Final = 1000


def history(turns: Sequence[tuple[str, str]]) -> str:
    """The block that precedes the first prompt after a resume or load."""
    said = [
        f"--- Turn {number} ---\nUSER: {user[:_USER]}\n\nASSISTANT: {assistant[:_ASSISTANT]}\n\n"
        for number, (user, assistant) in enumerate(turns[-_TURNS:], 1)
    ]
    return (
        "[CONVERSATION HISTORY - This is a resumed session. Previous context:]\n\n"
        + "".join(said)
        + "[END OF HISTORY - Continue the conversation:]\n\n"
    )


def context(words: str, name: str, directory: str) -> str:
    """The user's words as they are sent after new and after every resume."""
    return (
        f"[Session Context]\nSession: 20261120-133502-ab12 ({name})\nAgent: pykoclaw\nWorking Directory: {directory}\n"
        "Parent: \nChildren: \nAvailable Agents: pykoclaw, gemini\n---\n"
        f"<user_request>\n{words}\n</user_request>---\n"
        "[Mitto MCP Tools Check]\nIf the tool mitto_conversation_get_current is not available to you, say so once.\n"
    )
