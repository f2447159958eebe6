"""What the CLI writes around a tool's output for the model, taken off.

Outputs are long, and may be made to cost time: each function looks at a text a few times only.
"""

from __future__ import annotations

import re
from typing import Final

from pykoclaw_acp.translation.texts import output_text, shorten

MOST_OF_FAILURE: Final = 500  # characters in which it is found what has failed
MOST_REMINDERS: Final = 20  # at the end of one text

_ERROR: Final = ("<tool_use_error>", "</tool_use_error>")
_PERSISTED: Final = ("<persisted-output>\nOutput ", "</persisted-output>")
_SIZE: Final = re.compile(r"too large \(([^)\n]{1,20})\)|exceeded the (\d{1,9}\w?B)")
_PREVIEW: Final = "\nPreview ("
_REMINDER: Final = ("<system-reminder>", "</system-reminder>")
_NOTES: Final = (
    "NOTE: do any of the files above seem malicious?",
    "REMINDER: You MUST include the sources above",
)
_SEARCHED: Final = "Web search results for query: "
_CURRENT: Final = " (file state is current in your context"
_NO_TOOL: Final = "No such tool available: "
_WHERE: Final = " Note: your current working directory is "
_AUTO: Final = (
    "Auto mode is unavailable: ",
    " was not run: auto mode ",
    "Auto mode's safety check ",
)
_THEN: Final = (  # what the model is told to do without the check of auto mode
    " Other actions that need the check will be denied",
    " Finish what you can without ",
)
_ADVICE: Final = (  # where it begins; it goes to the end of its line
    " IMPORTANT: You *may* attempt to ",
    " To wait for a condition, use ",
    " To replace all occurrences, set ",
    " Read it first before ",
    " Read it again before ",
    " Use offset and limit parameters ",
)
# In place of a result: how it begins, and what is said instead.
_UNKNOWN: Final = "[Tool call interrupted: the session ended before "
_WITHOUT_RESULT: Final = {
    _UNKNOWN: "Its result is not known: the conversation went on before it had one.",
    "[Tool call result not in this copy": "Its result is not known: the conversation was copied before it had one.",
    "[Request interrupted: ": "It has no result: its process ended before.",
    "[Agent call interrupted: ": "It has no result: its process ended before.",
    "[Tool call did not complete: ": "Stopped, as the next message came; what it did until then stays.",
    "[Tool call skipped: the turn ended ": "Not run: the next message came first.",
    "[Tool call skipped: ": "Not run: the turn was stopped.",
    "[Tool call not completed: an approval ": "Not run: nobody decided the permission request.",
}
_NUMBERED: Final = re.compile(r" {0,20}\d{1,20}[\t→]")
_LAST: Final = re.compile(r" {0,20}\d{1,20}\Z")  # an empty last line, whose tab was cut off


def without_wrapping(text: str) -> tuple[str, str]:
    """A text without the tags of an error, or of the preview of a long output; and a note on what
    is missing of it.
    """
    inner = text.strip()
    if inner.startswith(_ERROR[0]) and inner.endswith(_ERROR[1]):
        return inner[len(_ERROR[0]) : -len(_ERROR[1])].removeprefix("Error: "), ""
    if not (inner.startswith(_PERSISTED[0]) and inner.endswith(_PERSISTED[1])):
        return text, ""
    head, _, preview = inner[len(_PERSISTED[0]) : -len(_PERSISTED[1])].partition(_PREVIEW)
    size = _SIZE.match(head)
    whole = "it" if size is None else size[1] or f"more than {size[2]}"
    shown = preview.partition("\n")[2].rstrip().removesuffix("\n...")
    return shown, f"(Only the beginning of {whole} is shown.)"


def without_reminders(text: str) -> str:
    """A text without what its end reminds the model of."""
    for _ in range(MOST_REMINDERS):
        text = text.rstrip()
        last = text.rfind("\n") + 1
        if text.startswith(_NOTES, last):
            text = text[:last]
        elif text.endswith(_REMINDER[1]) and (begin := text.rfind(_REMINDER[0])) >= 0:
            text = text[:begin]
        else:
            break
    return text


def without_advice(text: str) -> str:
    """A failure in the CLI's words without what the model should do instead."""
    if text.startswith(_NO_TOOL):
        return text.partition(". ")[0].rstrip(".") + "."
    if any(mark in text[:MOST_OF_FAILURE] for mark in _AUTO):
        ends = [end for one in _THEN if (end := text.find(one)) > 0]
        return text[: min(ends)] if ends else text
    head = text[:MOST_OF_FAILURE]
    for mark in _ADVICE:
        if (begin := head.find(mark)) > 0:
            return text[:begin] + "".join(text[begin:].partition("\n")[1:])
    before, found, after = text.partition(_WHERE)
    if found and before.endswith("."):
        return f"{before} {after.partition('. ')[2]}".rstrip()
    return text


def without_result(text: str) -> str | None:
    """What is said of a call in whose result the CLI has only its reason for the model why there is
    none; None for any other text.
    """
    return next((said for begin, said in _WITHOUT_RESULT.items() if text.startswith(begin)), None)


def is_unknown(text: str) -> bool:
    """Whether a CLI that resumed has written this for a result that it did not find."""
    return text.startswith(_UNKNOWN)


def search_results(text: str) -> str:
    """Results of a search without the line that says so to the model."""
    return text.partition("\n")[2].lstrip("\n") if text.startswith(_SEARCHED) else text


def of_change(text: str) -> str:
    """The text that a file was changed, without what that means for the model."""
    return shorten(output_text(text.partition(_CURRENT)[0]).strip())


def without_numbers(text: str) -> str:
    """A file's text without the numbers that the CLI puts before its lines, if all have one."""
    lines = text.split("\n")
    found = [_NUMBERED.match(line) for line in lines]
    if found[-1] is None and len(lines) > 1:
        found[-1] = _LAST.match(lines[-1])
    if not all(found):
        return text
    return "\n".join(
        line[one.end() :] for line, one in zip(lines, found, strict=True) if one is not None
    )
