"""Whether a content block of a log is one that ACP has: a row may be damaged and still be JSON."""

from __future__ import annotations

from typing import Any, Final

from pykoclaw_acp.model import blobs

_TEXTS: Final = {
    "text": ("text",),
    "resource_link": ("uri", "name"),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
}
_OPTIONAL: Final = ("uri", "name", "title", "description", "mimeType")
_OBJECTS: Final = ("annotations", "_meta")
_HELD: Final = ("text", "blob")  # by an embedded resource


def readable(block: dict[str, Any]) -> bool:
    """Whether clients can be sent the block, once its blob is in place."""
    if block.get("type") == "text" and len(block) == 2:
        return isinstance(block.get("text"), str)
    kind, size = block.get("type"), block.get("size")
    held = None if blobs.of(block) is None else block["holds"]
    if not (size is None or (isinstance(size, int) and size >= 0)) or not _fits(block):
        return False
    if kind == "resource":
        inside = block.get("resource", block)
        return isinstance(inside, dict) and _fits(inside) and _is_resource(inside, held)
    needed = _TEXTS.get(kind) if isinstance(kind, str) else None
    return needed is not None and all(
        isinstance(block.get(name), str) or (name == held == "data") for name in needed
    )


def _fits(block: dict[str, Any]) -> bool:
    return all(isinstance(block.get(name, ""), str | None) for name in _OPTIONAL) and all(
        isinstance(block.get(name), dict | None) for name in _OBJECTS
    )


def _is_resource(inside: dict[str, Any], held: object) -> bool:
    contents = [inside[name] for name in _HELD if inside.get(name) is not None]
    return (
        isinstance(inside.get("uri"), str)
        and bool(contents or held in _HELD)
        and all(isinstance(one, str) for one in contents)
    )
