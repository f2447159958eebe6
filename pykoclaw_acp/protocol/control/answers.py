"""Base and limit of the answers of control methods."""

from __future__ import annotations

from typing import Final

from pykoclaw_acp.protocol.wire import Wire

MAX_ITEMS: Final = 10_000  # in one answer, which must fit into a line


class FullAnswer(Wire, frozen=True, kw_only=True, omit_defaults=False):
    """Base of answers; every field is encoded, also one with its default."""


class CutAnswer(FullAnswer, frozen=True, kw_only=True):
    """Base of items that carry texts of other programs. `cut`: the sizes (bytes) of those that are
    not whole here, by the names of their fields; nearly always empty.
    """

    cut: dict[str, int] = {}  # noqa: RUF012  msgspec copies it
