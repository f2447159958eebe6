"""Links in Markdown to whatever address and of whatever name. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from pykoclaw_acp.neutral import neutral

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


def item(page: Mapping[str, Any]) -> str:
    """A `title` and a `url` as an item of a list; a page names itself, and has its own address."""
    title, url = (one if isinstance(one, str) else "" for one in map(page.get, ("title", "url")))
    if url.lower().startswith(("https://", "http://")):
        return neutral(link(title, url, "* ["), "prose")
    return neutral(f"* {label(' '.join(one for one in (title, url) if one))}", "prose")


def label(name: str) -> str:
    """The name in one line, which neither ends a link nor begins another one."""
    return _IN_NAME.sub(r"\\\g<0>", " ".join(name.split()))
