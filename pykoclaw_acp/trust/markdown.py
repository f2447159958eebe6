"""What of a skill, an agent or a slash command acts: a head that does more than describe, or text
that runs a shell.

The head is YAML, which the CLI reads leniently and differently from one release to the next. So it
is not parsed here: it is harmless only if each line has a shape that every reader takes alike.
Whatever else it is, it acts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
_NOT_PLAIN: Final = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff]")
_FENCE: Final = re.compile(r"---[ ]*")
_KEY: Final = re.compile(r"([A-Za-z_][\w-]*):(?: +(.*))?", re.ASCII)
_ITEM: Final = re.compile(r"-(?: +(.*))?")
_BLOCK: Final = re.compile(r"[|>][+-]?")
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"|\'(?:[^\']|\'\')*\'')
_LIST: Final = re.compile(r"""\[(?:[^{}"'&*!]|"[^"\\]*"|'[^']*')*\]|\{\}""")
_SPECIAL: Final = "&*!%@`?{}[]|>\"'"  # with one of these a value begins that is no plain text
# What may become nothing when it is used; what opens and does not end is matched, too (group 1), lest
# each opening in it be tried.
_NAMED: Final = re.compile(r"\$\w+(?:\[\w*\])?")
_SUBSTITUTED: Final = re.compile(rf"\$\{{[^}}`]*+(?:\}}|())|{_NAMED.pattern}")
_OPENED: Final = re.compile(r"\$\{[^}`]*+(?:\}`|())")
# A substitution may end with the exclamation mark that makes a shell command of what is between
# backticks. Each alternative begins with a character, so that the search passes over all others fast.
_SHELL: Final = re.compile(
    r"!`([^`]*)|```[ \t]*+!\s*([^`~]*)|~~~[ \t]*+!\s*([^`~]*)|\$(\{[^}`]*+\}`[^`]*)"
)


def acting(data: bytes) -> list[str]:
    """What it does, in words; a head that cannot be understood acts."""
    try:
        text = data.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError:
        return ["is not text in UTF-8"]
    if "\0" in text:
        return ["is not text"]
    head = _head(text)
    found = ["has front matter that cannot be understood"] if head is None else []
    found += [f"has {shown(line)} in its front matter" for line in _odd(head or [])]
    commands = list(_commands(text)) or list(_commands(_substituted(text)))
    return found + [f"runs when it is used: {command}" for command in commands]


def head(text: str) -> str:
    """The head, without its ends; all of the text if readers disagree about these."""
    lines = _head(text)
    return text if lines is None else "\n".join(lines)


def _commands(text: str) -> Iterator[str]:
    """The commands in a text without NUL, which stands for dollar signs that begin no command."""

    def marked(found: re.Match[str]) -> str:
        return found[0] if found[1] is None else found[0].replace("$", "\0")

    for match in _SHELL.finditer(_OPENED.sub(marked, text)):
        command = match[0] if match[4] else match[1] or match[2] or match[3] or "…"
        yield shown(command.replace("\0", "$"))


def _substituted(text: str) -> str:
    def left(found: re.Match[str]) -> str:
        return "" if found[1] is None else _NAMED.sub("", found[0])

    return _SUBSTITUTED.sub(left, text)


def _head(text: str) -> list[str] | None:
    """The lines of the head without the ends, or all of the file if it does not end; None if
    readers disagree about its ends.
    """
    stripped = text.lstrip().lstrip("\ufeff").lstrip()  # more than any reader skips
    if not stripped.startswith("---"):
        return []
    lines = [line.removesuffix("\r") for line in stripped.split("\n")]
    end = next((at for at, line in enumerate(lines[1:], 1) if _FENCE.fullmatch(line)), len(lines))
    if end == 1 or not _FENCE.fullmatch(lines[0]):
        return None
    return lines[1:end]


def _odd(lines: list[str]) -> Iterator[str]:
    """The lines that may do more than describe."""
    begun = items = False  # a key came before; items of a list may follow
    for line in lines:
        bare = line.strip(" ")
        if not _plain(line) or bare.startswith("..."):
            yield "".join(char if _plain(char) else ascii(char)[1:-1] for char in line)
        elif not bare or bare.startswith("#"):
            continue
        # Belongs to the key before, but is the key itself if there is none
        elif line.startswith(" "):
            if not begun:
                yield bare
        elif items and (item := _ITEM.fullmatch(line)):
            if not _harmless_value(item[1] or ""):
                yield line
        else:
            key = _KEY.fullmatch(line)
            begun, value = True, (key[2] or "").strip(" ") if key else ""
            items = key is not None and (not value or value.startswith("#"))
            if key is None or key[1].lower() not in _HARMLESS or not _harmless_value(value):
                yield line


def _plain(line: str) -> bool:
    """Whether no reader takes a character of it for the end of a line, or for indentation."""
    return _NOT_PLAIN.search(line) is None


def _harmless_value(value: str) -> bool:
    value = value.strip(" ")
    if not value or value[0] not in _SPECIAL:
        return True
    return any(shape.fullmatch(value) for shape in (_BLOCK, _QUOTED, _LIST))
