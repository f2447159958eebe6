"""Script language: a `[[script … ]]` block in a text becomes responses, each a tuple of steps. No
I/O.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from . import directives
from .directives import ScriptError
from .steps import Hang, HttpError, Limit, Step, Steps, StopStep, ToolStep

_OPENING = re.compile(r"\[\[script\b:?")
_CLOSING = re.compile(r"^[ \t]*\]\]", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A script block in a text: its position and its directives, one a line; None if it is not
    closed.
    """

    start: int
    end: int
    script: str | None


def find_blocks(text: str) -> Iterator[Block]:
    """Script blocks of `text` in order. Blocks within a directive of another are not found."""
    position = 0
    while (opening := _OPENING.search(text, position)) is not None:
        start = opening.end()
        line_end = text.find("\n", start)
        first_line = text[start:] if line_end < 0 else text[start:line_end]
        script: str | None = None
        position = len(text)
        if "]]" in first_line:
            length = first_line.rindex("]]")
            script = "\n".join(part.strip() for part in first_line[:length].split(";;"))
            position = start + length + 2
        elif (closing := _CLOSING.search(text, start)) is not None:
            script = text[start : closing.start()]
            position = closing.end()
        yield Block(opening.start(), position, script)


def find_script(text: str) -> str | None:
    """The last script in `text`; None if there is none. Raises ScriptError if it is not closed."""
    blocks = list(find_blocks(text))
    if not blocks:
        return None
    if blocks[-1].script is None:
        raise ScriptError("the block is not closed: end it with a line that is only ]]")
    return blocks[-1].script


def name_scripts(text: str) -> str:
    """Replace each block in `text` by `[script]`, so that the text can be repeated without being
    played.
    """
    parts = []
    position = 0
    for block in find_blocks(text):
        parts += [text[position : block.start], "[script]"]
        position = block.end
    return "".join((*parts, text[position:]))


def parse_script(script: str) -> tuple[Steps, ...]:
    """Parse a script into responses, between which the tool results arrive. Raises ScriptError."""
    responses: list[list[Step]] = [[]]
    for number, line in enumerate(script.strip("\n").split("\n"), start=1):
        directive = line.strip()
        if not directive or directive.startswith("#"):
            continue
        try:
            step = directives.parse(directive)
            _append(responses, step)
        except ScriptError as error:
            raise ScriptError(f"line {number}, “{directive}”: {error}") from None
    return tuple(tuple(steps) for steps in responses if steps)


def _append(responses: list[list[Step]], step: Step) -> None:
    """Add `step` to its response."""
    steps = responses[-1]
    before = steps[-1] if steps else None
    if isinstance(step, ToolStep) and step.parallel:
        if not isinstance(before, ToolStep):
            raise ScriptError(
                "& joins a tool call to the tool call on the line before, and there is none"
            )
    elif isinstance(before, ToolStep | StopStep):
        steps = []
        responses.append(steps)
    if isinstance(step, HttpError) and any(
        not isinstance(earlier, HttpError | Hang | Limit) for earlier in steps
    ):
        raise ScriptError(
            "an HTTP error comes before anything else of a response; use stream-error inside it"
        )
    steps.append(step)
