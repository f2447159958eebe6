"""What of a skill, an agent or a slash command acts: a head that does more than describe, or text that runs a shell."""

from __future__ import annotations

import re
from typing import Final

from pykoclaw_acp.trust.settings import shown

# What these say is words for the model, or takes something away.
_HARMLESS: Final = frozenset(
    {
        "argument-hint", "arguments", "author", "color", "description", "disable-model-invocation", "disallowedtools",
        "keep-coding-instructions", "license", "metadata", "model", "name", "tags", "title", "tools", "user-invocable",
        "version", "when_to_use",
    }
)  # fmt: skip
_BREAKS: Final = re.compile(r"\r\n|[\r\v\f\x85\u2028\u2029]")  # one reader or the other takes each for a line's end
_KEY: Final = re.compile(r"([A-Za-z_][\w-]*)\s*:(?:\s|$)")
_SHELL: Final = re.compile(r"!`([^`]*)`|^[ \t]*(?:```+|~~~+)[ \t]*!(.*)$", re.MULTILINE)


def acting(data: bytes) -> list[str]:
    """What it does, in words; a head that cannot be understood acts."""
    text = _BREAKS.sub("\n", data.decode("utf-8", "replace").removeprefix("\ufeff"))
    head, body = _split(text)
    found = [f"has {shown(line)} in its head" for line in head if not _harmless(line)]
    commands = [shown(match[1] or match[2] or "…") for match in _SHELL.finditer(body)]
    return found + [f"runs when it is used: {command}" for command in commands]


def _split(text: str) -> tuple[list[str], str]:
    """The lines of the head that begin something, and the rest."""
    lines = text.lstrip("\n \t").split("\n")
    if not lines or not lines[0].startswith("---"):
        return [], text
    end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() in ("---", "...")), len(lines))
    said = [line.rstrip() for line in lines[1:end] if line.strip() and not line.lstrip().startswith("#")]
    indent = _indent(said[0]) if said else 0  # YAML lets all of it be indented
    return [line.strip() for line in said if _indent(line) <= indent], "\n".join(lines[1:])


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _harmless(line: str) -> bool:
    if line.startswith("- ") or line == "-":  # an item of the key before
        return True
    key = _KEY.match(line)
    return key is not None and key[1].lower() in _HARMLESS
