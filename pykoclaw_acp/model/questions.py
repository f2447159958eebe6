"""Questions that Claude asks its user with the tool AskUserQuestion, and their answers: plain data.

An answer is text: the label of a choice, several labels joined by commas, or the user's own words.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import indent
from typing import Any, Final

import msgspec

from pykoclaw_acp.model.markdown import Blocks
from pykoclaw_acp.neutral import fenced, neutral

ASKS: Final = "AskUserQuestion"
"""The tool's name."""

ANSWERS: Final = "answers"
"""Key of the answers, by question, in the content of a decision and in the tool's input."""

MOST_OF_PREVIEW: Final = 4000
"""Characters of a preview that are shown."""


class QuestionOption(msgspec.Struct, frozen=True, omit_defaults=True):
    """A choice that a question offers; `preview`: what it would look like, for a comparison."""

    label: str
    description: str = ""
    preview: str = ""


class Question(msgspec.Struct, frozen=True, omit_defaults=True):
    """A question; `header` is a word or two that name it. `multiple`: several choices may be made."""

    question: str
    header: str = ""
    options: tuple[QuestionOption, ...] = ()
    multiple: bool = False


def read(arguments: dict[str, Any]) -> tuple[Question, ...]:
    """The questions in the tool's input; what has no text is left out."""
    listed = arguments.get("questions")
    return tuple(
        Question(
            question=one["question"],
            header=_text(one, "header"),
            options=_options(one.get("options")),
            multiple=one.get("multiSelect") is True,
        )
        for one in (listed if isinstance(listed, list) else ())
        if isinstance(one, dict) and _text(one, "question")
    )


def answers(asked: Sequence[Question], given: Sequence[str]) -> dict[str, str]:
    """The answers by question; one that is empty was not given."""
    pairs = zip(asked, given, strict=False)
    return {one.question: text.strip() for one, text in pairs if text.strip()}


def by_number(one: Question, text: str) -> str:
    """An answer that gives choices by their numbers, as `described` shows them, with their labels
    instead; any other answer as it is. Where a label is a number, so is the answer.
    """
    if any(one.label.strip().isdecimal() for one in one.options):
        return text
    labels = {str(number): it.label for number, it in enumerate(one.options, 1)}
    given = dict.fromkeys(part.strip() for part in text.split(","))
    if given.keys() <= labels.keys() and (one.multiple or len(given) == 1):
        return joined([labels[number] for number in given])
    return text


def joined(labels: Sequence[str]) -> str:
    """Several choices as one answer, as Claude expects it."""
    return ", ".join(labels)


def described(asked: Sequence[Question]) -> str:
    """The questions with their choices, as Markdown without control characters."""
    return "\n\n".join(_described(one) for one in asked)


def _described(one: Question) -> str:
    several = " (several are possible)" if one.multiple else ""
    choices = "".join(_choice(f"{at}. ", it) for at, it in enumerate(one.options, 1)).rstrip()
    first = f"**{neutral(one.question, 'prose')}**{several}"
    return f"{first}\n\n{choices}" if choices else first


def _choice(mark: str, one: QuestionOption) -> str:
    words = mark + neutral(one.label) + (f": {neutral(one.description)}" if one.description else "")
    if not one.preview:
        return f"{words}\n"
    return f"{words}\n\n{indent(_preview(one.preview), ' ' * len(mark))}\n\n"


def _preview(text: str) -> str:
    """Markdown, if it has code blocks of its own; else a drawing, or code."""
    if "```" not in text:
        return fenced(text)
    text = neutral(text, "prose")
    return text + Blocks(text).ending.rstrip()


def _options(listed: object) -> tuple[QuestionOption, ...]:
    return tuple(
        QuestionOption(one["label"], _text(one, "description"), _bounded(_text(one, "preview")))
        for one in (listed if isinstance(listed, list) else ())
        if isinstance(one, dict) and _text(one, "label")
    )


def _bounded(preview: str) -> str:
    left = len(preview) - MOST_OF_PREVIEW
    if left > 0:
        preview = f"{preview[:MOST_OF_PREVIEW]}\n… {left} characters left out …"
    return preview.strip("\n") if preview.strip() else ""


def _text(fields: dict[str, Any], key: str) -> str:
    value = fields.get(key)
    return value if isinstance(value, str) else ""
