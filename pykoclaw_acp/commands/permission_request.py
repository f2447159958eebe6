"""A permission request as text: everything that runs if it is allowed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pykoclaw_acp.commands import changes
from pykoclaw_acp.model.trust import TOOL
from pykoclaw_acp.terminal import Shown, joined, shown
from pykoclaw_acp.translation.deciding import PLANS

GUTTER = "  │ "
"""Before each line that the request shows, so that none of them passes for one of ours."""

_FENCE: Final = re.compile("(`{3,})(?:sh|json)?")
_COLOURS: Final = {"-": "red", "+": "green"}
_USUAL: Final = {"allow_once": "allow", "deny": "deny"}
_FLAGS: Final = {
    "allow_once": "--allow",
    "allow_always": "--always",
    "allow_lasting": "--lasting",
    "allow_former": "--former",
    "deny": "--deny",
}


def rendered(question: dict[str, Any]) -> Shown:
    """The complete request, in lines; omissions by a daemon of another version are marked."""
    return joined(line for parts in _lines(question) for line in (*parts, shown("\n", "command")))


def _lines(question: dict[str, Any]) -> Iterator[tuple[Shown, ...]]:
    yield (shown(question["title"], bold=True),)
    if question.get("form") is not None:
        yield from quoted(question["form"])
        yield (
            shown(
                "  A form: only a client that shows forms can fill it in. Here it can be denied."
            ),
        )
        return
    content, arguments = question.get("content") or [], question.get("input")
    if not content and arguments is None:
        yield (
            shown(
                "  (What runs is not shown: the daemon is of another version. Run `pykoclaw-acp restart`.)",
                fg="red",
            ),
        )
        return
    for part in content:
        if part["type"] == "diff":
            yield from _change(part)
        elif part["content"].get("type") == "text":
            text = part["content"]["text"]
            yield from quoted(text if is_plan(question) else _unfenced(text))
    asked = question.get("questions") or []
    if asked:
        several = ", several with commas" if any(one.get("multiple") for one in asked) else ""
        each = f", for each of the {len(asked)} questions" if len(asked) > 1 else ""
        yield (shown(f"  To answer: a label or its number{several}, or text{each}."),)
        return
    if arguments is not None and (not content or not question.get("tool")):  # an older worker
        yield from quoted(json.dumps(arguments, indent=2, ensure_ascii=False))


def _unfenced(text: str) -> str:
    """Blocks of arguments indented instead of between fences, with each of their lines: none of them
    can pass for the name of another argument.
    """
    lines = text.split("\n")
    last = {line: at for at, line in enumerate(lines) if line.startswith("```")}
    shown: list[str] = []
    at = 0
    while at < len(lines):
        begun = _FENCE.fullmatch(lines[at]) if at and lines[at - 1].endswith(":") else None
        if begun is None or last.get(begun[1], 0) <= at:
            shown.append(lines[at])
        else:
            end = lines.index(begun[1], at + 1)
            shown += [f"  {line}" for line in lines[at + 1 : end]]
            at = end
        at += 1
    return "\n".join(shown)


def is_plan(question: dict[str, Any]) -> bool:
    """Whether the request is for a plan, whose text is Claude's own Markdown."""
    return question.get("tool") == PLANS


def tells_why(question: dict[str, Any]) -> bool:
    """Whether the reason of a denial reaches Claude: it has asked for a tool, not we for trust."""
    tool = question.get("tool")
    return bool(tool) and tool != TOOL and question.get("form") is None


def choices(question: dict[str, Any], names: Mapping[Any, str]) -> list[str]:
    """Meaning of each decision, by the `names` used to make it; empty from an older daemon."""
    meanings = question.get("choices") or {
        **_USUAL,
        **({"allow_always": "always"} if question["always"] else {}),
    }
    return [
        f"{name}: {meanings[decision]}" for decision, name in names.items() if decision in meanings
    ]


def options(question: dict[str, Any]) -> Shown:
    """Lines with the options of `pykoclaw-acp approve` by which the request can be answered."""
    found = choices(question, _FLAGS)
    if asked := question.get("questions"):
        found.insert(0, f"{' '.join(['--answer TEXT'] * len(asked))}: answer")
    return joined(part for one in found for part in (shown(f"  {one}"), shown("\n", "command")))


def _change(part: dict[str, Any]) -> Iterator[tuple[Shown, ...]]:
    yield (shown(f"  {part['path']}", bold=True),)
    if part.get("oldText") is None:
        yield (shown("  the whole file will be:"),)
    for line in changes.lines(part):
        yield coloured(line)


def quoted(text: str) -> Iterator[tuple[Shown, ...]]:
    """Lines of a text that is not ours, each behind the gutter."""
    yield from map(quoted_line, text.split("\n"))


def quoted_line(line: str) -> tuple[Shown, ...]:
    """A line of a text that is not ours, behind the gutter."""
    return (shown(GUTTER), shown(line, "command"))


def coloured(line: str) -> tuple[Shown, ...]:
    """A line of a diff, behind the gutter."""
    return (shown(GUTTER), shown(line, "command", fg=_COLOURS.get(line[:1])))
