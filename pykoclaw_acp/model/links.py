"""Links in Markdown to whatever address and of whatever name. Pure functions."""

from __future__ import annotations

import re
from typing import Final

_PLAIN: Final = re.compile(r"[^\s<>()\\\x00-\x1f\x7f]+")
_IN_NAME: Final = re.compile(r"[\\\[\]`*<]")
_NOT_IN_ADDRESS: Final = str.maketrans(
    {one: f"%{ord(one):02X}" for one in ("<", ">", "\\", "\x7f", *map(chr, range(0x20)))}
)


def link(name: str, uri: str, begin: str = "[") -> str:
    """A link, which begins so; its address is as it is, in angle brackets if it has spaces or others
    that would end it.
    """
    address = uri if _PLAIN.fullmatch(uri) else f"<{uri.translate(_NOT_IN_ADDRESS)}>"
    return f"{begin}{label(name) or label(uri)}]({address})"


def label(name: str) -> str:
    """The name in one line, which neither ends a link nor begins another one."""
    return _IN_NAME.sub(r"\\\g<0>", " ".join(name.split()))
