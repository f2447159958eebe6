"""In which permission mode a transcript was left, found from its end backwards.

Every prompt names the mode that it was given in. A terminal also notes the mode when it changes; an
SDK only repeats such a note, which may be old then. Leaving plan mode is an entry that does not say
what follows.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from pykoclaw_acp.transcripts import entries

STEP: Final = 128 * 1024  # bytes of the first read; each further one is twice as long
MOST: Final = 4 * 1024 * 1024  # bytes that are searched, about
_TERMINAL: Final = "cli"
_PLAN: Final = "plan"
_MARKS: Final = (b'"permissionMode"', b'"plan_mode_exit"')


def left_mode(descriptor: int, size: int) -> str | None:
    """The mode in which the conversation was left; None if the transcript does not say."""
    noted: str | None = None
    left_plan = False
    for line in _backwards(descriptor, size):
        if not any(mark in line for mark in _MARKS):
            continue
        entry = entries.decode(line)
        if entry is None or entry.is_sidechain:
            continue
        mode = entry.permission_mode
        if entries.leaves_plan(entry):
            left_plan = True
        elif entry.type == "permission-mode" and noted is None:
            noted = "" if left_plan and mode == _PLAN else mode
        elif entry.type == "user" and mode:
            if noted is not None and entry.entrypoint == _TERMINAL:
                return noted or None
            return None if left_plan and mode == _PLAN else mode
    return None


def _backwards(descriptor: int, size: int) -> Iterator[bytes]:
    """Lines, the last one first."""
    step, end, rest = STEP, size, b""
    while end > 0 and size - end < MOST:
        begin = max(0, end - step)
        rest, *lines = (os.pread(descriptor, end - begin, begin) + rest).split(b"\n")
        yield from reversed(lines)
        step, end = 2 * step, begin
    if end == 0:
        yield rest
