"""What "always" would allow: the CLI's suggestions for this session, in words, and those that may
last.
"""

from __future__ import annotations

import json
import os.path
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final

from claude_agent_sdk import PermissionUpdate
from claude_agent_sdk.types import PermissionRuleValue

from pykoclaw_acp.model.events import EDITS
from pykoclaw_acp.neutral import neutral
from pykoclaw_acp.system.secrets import may_hold_secret
from pykoclaw_acp.translation.mcp_names import McpNames

MAX_LASTING: Final = 300  # characters of a rule that may last
# Characters of rules for a CLI: an argument of its has 128 KiB at most
MAX_GIVEN: Final = 64 * 1024
_RESERVED: Final = frozenset("()\\")  # have a meaning of their own in a rule
_PATTERNS: Final = frozenset("*?[]{}!\\")  # may stand for more than themselves
_ACCEPTED: Final = (
    "edits and simple commands that make, move or delete files (turns on the mode Accept edits{})"
)
# The CLI takes a rule for a command also after a `cd` to such a directory (measured with 2.1.330).
_BELOW: Final = " (also in directories below)"
_READS: Final = ("Read", "Glob", "Grep", "LS")


def for_session(suggestions: Sequence[PermissionUpdate], cwd: str) -> list[PermissionUpdate]:
    """The suggestions, for this session only: the CLI would write others into the user's project.

    A mode is left out beside a rule, since the rule is what was asked about; and so is the session's
    own directory, to which it has access. Nothing is offered if a rule would allow more than what
    can be said of it: the CLI takes a `*` of the command or path itself as a pattern.
    """
    if not all(_means_itself(rule) for update in suggestions for rule in update.rules or ()):
        return []
    kept = [
        replace(update, destination="session")
        for update in suggestions
        if update.directories is None or set(update.directories) - {cwd, os.path.realpath(cwd)}
    ]
    ruled = any(update.rules for update in kept)
    return [update for update in kept if not (ruled and update.mode)]


def describe(updates: Sequence[PermissionUpdate], mcp: McpNames | None = None) -> str | None:
    """What the updates allow, in words that complete "Always allow …"; None: nothing."""
    mcp = mcp or McpNames()
    words: list[str] = []
    stays = "" if only_mode(updates) else ", which stays on"
    for update in updates:
        words.extend(_words(rule, mcp) for rule in update.rules or ())
        if update.mode == "acceptEdits":
            words.append(_ACCEPTED.format(stays))
        elif update.mode:
            words.append(f"what the mode {update.mode} allows (turns it on{stays})")
        words.extend(f"access to `{directory}`" for directory in update.directories or ())
    if not updates:
        return None
    commands = any(rule.tool_name == "Bash" for update in updates for rule in update.rules or ())
    return (" and ".join(words) or "this") + (_BELOW if commands else "")


def lasting(updates: Sequence[PermissionUpdate]) -> tuple[str, ...]:
    """The rules, if nothing else is suggested, and all of them may be kept for later sessions."""
    if not all(update.rules and update.behavior in (None, "allow") for update in updates):
        return ()
    rules = [rule for update in updates for rule in update.rules or ()]
    kept = tuple(_rule(rule) for rule in rules if _may_last(rule))
    return kept if len(kept) == len(rules) else ()


def given(kept: Sequence[str]) -> list[str]:
    """The rules that fit into the CLI's command line, as JSON; what others allow is asked about."""
    sizes = accumulate(len(json.dumps(rule)) + 2 for rule in kept)
    return [rule for rule, size in zip(kept, sizes, strict=True) if size <= MAX_GIVEN]


def only_mode(updates: Sequence[PermissionUpdate]) -> bool:
    """Whether nothing but a mode is suggested, which the session keeps."""
    return bool(updates) and all(one.mode and not one.directories for one in updates)


def _may_last(rule: PermissionRuleValue) -> bool:
    content = rule.rule_content or ""
    plain = neutral(content) == content and not _RESERVED & set(content)
    return plain and len(content) <= MAX_LASTING and not may_hold_secret(content)


def _means_itself(rule: PermissionRuleValue) -> bool:
    """Whether the only pattern in the rule is the one that the CLI has put at its end."""
    content = rule.rule_content or ""
    if rule.tool_name == "Bash":
        return "*" not in content.removesuffix(":*").removesuffix(" *")
    return not _PATTERNS & set(content.removesuffix("/**"))


def _rule(rule: PermissionRuleValue) -> str:
    return f"{rule.tool_name}({rule.rule_content})" if rule.rule_content else rule.tool_name


def _words(rule: PermissionRuleValue, mcp: McpNames) -> str:
    name, content = rule.tool_name, rule.rule_content
    if name.startswith("mcp__"):
        server, tool, _ = mcp.split(name)
        return f"the tool `{tool}` of {server}" if tool else f"all tools of {server}"
    if not content:
        return f"every use of {name}"
    if name == "Bash":
        begin = content.removesuffix(":*").removesuffix(" *")
        return f"`{content}`" if begin == content else f"commands that begin with `{begin}`"
    if name == "WebFetch" and content.startswith("domain:"):
        return f"fetching from {content.removeprefix('domain:')}"
    path = content[1:] if content.startswith("//") else content
    if name in _READS:
        return f"reading `{path}`"
    if name in EDITS:
        return f"editing `{path}`"
    return f"{name} with `{content}`"
