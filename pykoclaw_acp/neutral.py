"""Escaping of untrusted text for terminals and readers. The standard library only.

C0 and C1 controls, and with them all escape sequences, bidi controls and zero-width characters are
escaped: `\\x1b`, `\\u202e`.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False  # the front imports this, where every import counts
if TYPE_CHECKING:
    from typing import Final, Literal

    Kind = Literal["name", "command", "prose", "json"]

# Controls, bidi controls, separators of lines, and halves of surrogate pairs, which no stream can
# encode.
_OBEYED: Final = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff"
)
_UNSEEN: Final = (
    "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200d\u2060-\u2065\u3164\ufe00-\ufe0f\ufeff\uffa0"
    "\ufff9-\ufffb\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_PATTERNS: Final = {
    "name": re.compile(f"[\t\n{_OBEYED}{_UNSEEN}]"),
    "command": re.compile(f"[{_OBEYED}{_UNSEEN}]"),
    "prose": re.compile(f"[{_OBEYED}]"),
    "json": re.compile(f"[{_OBEYED}{_UNSEEN}]"),
}
_FENCES: Final = re.compile("`{3,}")
_SHORT: Final = {"\t": "\\t", "\n": "\\n", "\r": "\\r"}


def neutral(text: str, kind: Kind = "name") -> str:
    """Escape what is dangerous in text of this kind.

    `name`: one line, so line ends and tabs are escaped too. `command`: a command, in lines.
    `prose`: text of people and models, in lines; zero-width characters stay, as emoji and many
    scripts need them. `json`: encoded JSON, whose value does not change.
    """
    if kind == "prose":
        text = text.replace("\r\n", "\n")
    return _PATTERNS[kind].sub(_for_json if kind == "json" else _escaped, text)


def fenced(text: str, language: str = "") -> str:
    """A fenced code block of Markdown that the text cannot close, escaped as a `command`."""
    return in_fences(neutral(text, "command"), language)


def in_fences(text: str, language: str = "") -> str:
    """A code block of Markdown with this text as it is, which cannot close it."""
    fence = "`" * max((len(found) + 1 for found in _FENCES.findall(text)), default=3)
    return f"{fence}{language}\n{text}\n{fence}"


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    if code < 0x100:
        return _SHORT.get(character) or f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _for_json(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
