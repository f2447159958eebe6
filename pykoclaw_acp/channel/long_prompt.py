"""The frame of a prompt, which is encoded in steps if it is long."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, Final

from pykoclaw_acp import long_texts
from pykoclaw_acp.channel.frames import Prompt, encode

LONG_PROMPT: Final = 256 * 1024  # characters
_NO_CONTENT: Final = b"[]}\n"  # how a Prompt of nothing ends: `content` is its last field


class LongPrompt(Prompt, frozen=True, kw_only=True, tag="prompt"):
    """A Prompt with long texts, encoded; `pieces` are its line, and are sent one after
    the other.
    """

    pieces: list[bytes]


def prompt(
    epoch: int,
    turn_id: str,
    blocks: list[dict[str, Any]],
    *,
    helper: bool = False,
    links: bool = False,
) -> Generator[None, None, Prompt]:
    """Make the frame of a prompt, in steps."""
    if sum(_length(block) for block in blocks) <= LONG_PROMPT:
        return Prompt(epoch=epoch, turn_id=turn_id, helper=helper, links=links, content=blocks)
    empty = Prompt(epoch=epoch, turn_id=turn_id, helper=helper, links=links, content=[])
    pieces = [encode(empty).removesuffix(_NO_CONTENT)]
    for piece in long_texts.encode(blocks, ascii_only=False):
        pieces.append(piece.encode(errors="replace"))
        yield
    return LongPrompt(
        epoch=epoch,
        turn_id=turn_id,
        helper=helper,
        links=links,
        content=blocks,
        pieces=[*pieces, b"}\n"],
    )


def _length(block: dict[str, Any]) -> int:
    return sum(len(block.get(name, "")) for name in ("text", "data", "blob"))
