"""Lines of a change to a file, as a unified diff has them."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Any, Final

from pykoclaw_acp.commands.document import fields
from pykoclaw_acp.link.meta_keys import LINE, OLD_LINE

CONTEXT: Final = 3  # unchanged lines that are shown around a change
END: Final = "\n"
NO_END: Final = "\\ No newline at end of file"
MOST: Final = 4000  # lines of both sides that are compared; the cost grows with their product


def lines(part: dict[str, Any]) -> Iterator[str]:
    """The lines of ACP's `diff`, each with a sign: ` `, `-` or `+`, and `@@` where the next ones
    begin. Unchanged lines far from a change are left out.
    """
    before, after = (str(part.get(name) or "") for name in ("oldText", "newText"))
    ends_differ = bool(before and after) and before.endswith("\n") != after.endswith("\n")
    old, new = _split(before, whole=not ends_differ), _split(after, whole=not ends_differ)
    meta = fields(part.get("_meta"))
    first, old_first = meta.get(LINE), meta.get(OLD_LINE)
    if len(old) + len(new) > MOST:
        yield from (*_signed("-", old), *_signed("+", new))
        return
    for group in SequenceMatcher(None, old, new).get_grouped_opcodes(CONTEXT):
        begin, old_begin = group[0][3], group[0][1]
        if isinstance(first, int) and isinstance(old_first, int):
            yield f"@@ -{old_first + old_begin} +{first + begin} @@"
        elif begin or old_begin:
            yield "@@"
        for kind, at, upto, new_at, new_upto in group:
            if kind == "equal":
                yield from _signed(" ", old[at:upto])
            else:
                yield from _signed("-", old[at:upto])
                yield from _signed("+", new[new_at:new_upto])


def _split(text: str, *, whole: bool) -> list[str]:
    """Lines with their ends; `whole`: also the last one, which may lack it."""
    found = [f"{line}\n" for line in text.split("\n")]
    last = found.pop()[:-1]
    return [*found, f"{last}\n" if whole else last] if last else found


def _signed(sign: str, found: list[str]) -> Iterator[str]:
    for line in found:
        yield f"{sign}{line.removesuffix(END)}"
        if not line.endswith(END):
            yield NO_END
