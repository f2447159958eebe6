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
    begin, with their places if they are known. Unchanged lines far from a change are left out.
    """
    known = _places(part) is not None
    for header, shown, is_first_line in _hunks(part):
        if known or not is_first_line:
            yield header if known else "@@"
        yield from shown


def patch(part: dict[str, Any]) -> Iterator[str]:
    """ACP's `diff` as a unified diff, which tools can apply. Where the place in the file is not
    known, lines are counted from the beginning of the text.
    """
    path = part.get("path", "")
    yield "--- /dev/null" if part.get("oldText") is None else f"--- {path}"
    yield f"+++ {path}"
    for header, shown, _ in _hunks(part):
        yield header
        yield from shown


def _places(part: dict[str, Any]) -> tuple[int, int] | None:
    """The lines at which the old and the new text begin; None if they are not known."""
    meta = fields(part.get("_meta"))
    first, old_first = meta.get(LINE), meta.get(OLD_LINE)
    return (old_first, first) if isinstance(first, int) and isinstance(old_first, int) else None


def _hunks(part: dict[str, Any]) -> Iterator[tuple[str, Iterator[str], bool]]:
    """Each with its header, and whether it begins where the texts do."""
    before, after = (str(part.get(name) or "") for name in ("oldText", "newText"))
    ends_differ = bool(before and after) and before.endswith("\n") != after.endswith("\n")
    old, new = _split(before, whole=not ends_differ), _split(after, whole=not ends_differ)
    old_first, first = _places(part) or (1, 1)
    if len(old) + len(new) > MOST:
        header = f"@@ -{_range(old_first, len(old))} +{_range(first, len(new))} @@"
        yield header, iter((*_signed("-", old), *_signed("+", new))), True
        return
    for group in SequenceMatcher(None, old, new, autojunk=False).get_grouped_opcodes(CONTEXT):
        (_, old_begin, _, begin, _), (_, _, old_end, _, end) = group[0], group[-1]
        old_range = _range(old_first + old_begin, old_end - old_begin)
        header = f"@@ -{old_range} +{_range(first + begin, end - begin)} @@"
        yield header, _shown(group, old, new), not (begin or old_begin)


def _shown(
    group: list[tuple[str, int, int, int, int]], old: list[str], new: list[str]
) -> Iterator[str]:
    for kind, at, upto, new_at, new_upto in group:
        if kind == "equal":
            yield from _signed(" ", old[at:upto])
        else:
            yield from _signed("-", old[at:upto])
            yield from _signed("+", new[new_at:new_upto])


def _range(first: int, count: int) -> str:
    """Lines of one side; of none, the one before them."""
    return f"{first if count else first - 1},{count}"


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
