"""What `PYKOCLAW_PROFILE` changes for Claude: `editor` is Claude Code, `pykoclaw` an agent as the
earlier plugin of pykoclaw ran it.

The permission mode and the setting sources of a profile are defaults of those settings (`config`).
"""

from __future__ import annotations

import os
from typing import Final

from claude_agent_sdk.types import SystemPromptPreset

from pykoclaw_acp.channel.spec import LaunchSpec

# The CLI then reads CLAUDE.md of additional directories; nothing else of them acts.
READ_ADDED_DIRECTORIES: Final = "CLAUDE_CODE_ADDITIONAL_DIRECTORIES_CLAUDE_MD"
INSTRUCTIONS: Final = "CLAUDE.md"
SHELL: Final = "/bin/bash"
PROMPT: Final = (
    "If a tool call fails, try it at least once more, and with other parameters where that may help, before you say"
    " that the tool is not available."
)
ALLOWED: Final = ("Bash", "Read", "Write", "Edit", "Glob", "Grep", "WebSearch", "WebFetch")
_CLAUDE_CODE: Final = SystemPromptPreset(type="preset", preset="claude_code")


def system_prompt(spec: LaunchSpec) -> str | SystemPromptPreset:
    """The system prompt. The CLI keeps that of a Claude session when it resumes it."""
    return PROMPT if _is_pykoclaw(spec) else _CLAUDE_CODE


def asked_system_prompt(spec: LaunchSpec) -> str | None:
    """The text that the client asks for; the profile's own goes before one that is added."""
    asked = spec.options.asked.system_prompt
    if asked is None:
        return None
    own = _is_pykoclaw(spec) and not asked.replaces
    return f"{PROMPT}\n\n{asked.text}" if own else asked.text


def replaces_system_prompt(spec: LaunchSpec) -> bool:
    """Whether `asked_system_prompt` stands in the place of Claude Code's."""
    asked = spec.options.asked.system_prompt
    return asked is not None and (asked.replaces or _is_pykoclaw(spec))


def allowed_tools(spec: LaunchSpec, server: str) -> list[str]:
    """Tools that Claude may use unasked; others are not forbidden by this. `server`: the name of
    pykoclaw's own.
    """
    return [*ALLOWED, f"mcp__{server}__*"] if _is_pykoclaw(spec) else []


def environment(spec: LaunchSpec) -> dict[str, str]:
    """Variables for the CLI and its tools."""
    if not _is_pykoclaw(spec):
        return {}
    shell = {"SHELL": SHELL} if os.access(SHELL, os.X_OK) else {}
    return {READ_ADDED_DIRECTORIES: "1", **shell}


def directories(spec: LaunchSpec) -> list[str]:
    """Directories besides the client's own whose CLAUDE.md reaches the model: the folder that other
    programs run the conversation in, and the data directory if it has one.
    """
    name = spec.options.conversation
    if not _is_pykoclaw(spec) or not spec.data:
        return []
    found = []
    if name not in ("", ".", "..") and "/" not in name and "\0" not in name:
        found = [os.path.join(spec.data, "conversations", name)]
    found = [path for path in found if os.path.isdir(path)]
    if os.path.isfile(os.path.join(spec.data, INSTRUCTIONS)):
        found.append(spec.data)
    return found


def _is_pykoclaw(spec: LaunchSpec) -> bool:
    return spec.options.profile == "pykoclaw"
