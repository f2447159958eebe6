"""Text that clients wrap around the user's words in a prompt, as Mitto does: pure functions of the
prompt.

The log shows the user's words. Claude also gets the client's context block, but not a history that
it remembers.

Prompts may have megabytes: every search passes over a text once, and marks that do not end a
wrapping are skipped at most `MOST_MARKS` times.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pykoclaw_acp import long_texts
from pykoclaw_acp.model import client_traits
from pykoclaw_acp.model.events import UserMessage

# Tried on every prompt: clients do not always give their name
_MARKS: Final = client_traits.DEFAULT.wrapping
MOST_MARKS: Final = 1000  # false ends of a wrapping before the text is taken as it is
_LOOK: Final = 4096  # characters scanned for white space at once
_COMMAND: Final = re.compile(r"/[A-Za-z][\w:.-]{0,254}+(?:\s|\Z)")

NOTES_TAG: Final = "conversation-notes"
TERMINAL: Final = "terminal"  # origin of what was typed in one
SHELL: Final = "!"  # what the user of a terminal types before a command for a shell
LINK: Final = "[@"  # beginning of a link to a resource, as Claude gets it
MOST_NOTES: Final = 64 * 1024  # characters
_NOTES_HEAD: Final = (
    "What happened in this conversation outside of what you remember. The user did not write this,"
    " and it asks for nothing; the user's message follows."
)
_NOTES_BEGIN: Final = f"<{NOTES_TAG}>\n{_NOTES_HEAD}"
_NOTES_END: Final = f"</{NOTES_TAG}>"


@dataclass(frozen=True, slots=True)
class Note:
    """What Claude is to learn with the next prompt; the id is unique among all notes."""

    note_id: str
    text: str


def unwrap(text: str) -> str:
    """Extract the user's words."""
    begin = _after_history(text)
    words = _request(text, begin)
    return text[begin:] if words is None else text[slice(*words)]


def without_history(text: str) -> str:
    """Remove the summary of earlier turns that Mitto prepends after a resume."""
    return text[_after_history(text) :]


def for_claude(blocks: Sequence[dict[str, Any]], *, remembers: bool) -> list[dict[str, Any]]:
    """Content for Claude; a slash command is sent alone, as Claude recognises it at the beginning
    only.

    `remembers`: Claude's session holds the earlier turns.
    """

    def words(text: str) -> str:
        own = unwrap(text)
        if len(own) != len(text) and is_command(own):
            return own
        return without_history(text) if remembers else text

    return [_with_text(block, words) for block in blocks]


def with_notes(
    blocks: list[dict[str, Any]], notes: Sequence[Note]
) -> tuple[list[dict[str, Any]], Sequence[Note]]:
    """Put notes before a prompt for Claude, in one marked block; also returns those that it carries.

    A slash command carries none, as the CLI may answer it without asking Claude. What would make the
    block longer than `MOST_NOTES` waits for the next prompt; the first note is always carried.
    """
    if not notes or command_at(blocks) is not None:
        return blocks, ()
    size, count = 0, 0
    for note in notes:
        size += len(note.text)
        if count and size > MOST_NOTES:
            break
        count += 1
    texts = "\n\n".join(without_tag(note.text, NOTES_TAG) for note in notes[:count])
    said = f"{_NOTES_BEGIN}\n\n{texts}\n{_NOTES_END}"
    return [{"type": "text", "text": said}, *blocks], notes[:count]


def without_notes(text: str) -> str:
    """A text of a prompt without the block of notes that it may begin with; empty if it is one. A
    block that an earlier version let end early still ends where its text does.
    """
    if not text.startswith(_NOTES_BEGIN):
        return text
    if text.rstrip().endswith(_NOTES_END):
        return ""
    _, end, rest = text.partition(_NOTES_END)
    return rest.lstrip("\n") if end else text


def without_tag(text: str, tag: str) -> str:
    """Text from outside for the inside of this tag, which it can neither end nor begin again."""
    return re.sub(rf"<(?=\s*+/?+\s*+{re.escape(tag)})", "&lt;", text, flags=re.IGNORECASE)


def is_for_shell(asked: UserMessage) -> bool:
    """Whether an imported message is what a user of a terminal has given to a shell."""
    return asked.origin == TERMINAL and str(asked.content.get("text")).startswith(SHELL)


def is_command(words: str) -> bool:
    """Whether the text is a slash command; names have at most 256 characters."""
    return _COMMAND.match(words) is not None


def command_at(blocks: Sequence[dict[str, Any]]) -> int | None:
    """Position of the slash command in a prompt for Claude; None if it has none, or words after it.
    Links and attachments may stand on both sides.
    """
    texts = [at for at, one in enumerate(blocks) if one.get("type") == "text"]
    at = next((at for at in texts if is_command(blocks[at]["text"])), None)
    after = [] if at is None else [blocks[one]["text"] for one in texts if one > at]
    return at if all(text.startswith(LINK) for text in after) else None


def fingerprint(blocks: Sequence[dict[str, Any]]) -> Generator[None, None, str]:
    """SHA-256 (hex) of the user's words and other blocks, independent of the wrapping and of
    annotations, which may have the time of sending; in steps.
    """
    digest = hashlib.sha256()
    own: list[dict[str, Any]] = []
    for block in blocks:
        words = _with_text(block, lambda text: unwrap(text).strip())
        own.append({key: value for key, value in words.items() if key != "annotations"})
        yield
    for piece in long_texts.encode(own, sort_keys=True):
        digest.update(piece.encode())
        yield
    return digest.hexdigest()


def by_client_itself(
    blocks: Sequence[dict[str, Any]], client: str | None, more: tuple[str, ...] = ()
) -> bool:
    """Whether the prompt is a helper prompt, not written by a user: one of the client's own, or of
    any client with one of `more` beginnings after white space.
    """
    text = blocks[0]["text"] if blocks and blocks[0].get("type") == "text" else ""
    begins = text.startswith(client_traits.find(client).helper_prompts)
    return begins or text[:_LOOK].lstrip().startswith(more)


def _with_text(block: dict[str, Any], change: Callable[[str], str]) -> dict[str, Any]:
    return {**block, "text": change(block["text"])} if block.get("type") == "text" else block


def _after_history(text: str) -> int:
    """Position after a history: after its last end mark, as turns in it may quote one."""
    head = _skip_space(text, 0)
    if not text.startswith(_MARKS.history, head):
        return 0
    line_end = text.find("\n", head)
    if line_end < 0 or text.find("]", head, line_end) != line_end - 1:
        return 0
    limit = len(text)
    for _ in range(MOST_MARKS):
        mark = text.rfind(_MARKS.history_end, line_end, limit)
        if mark < 0:
            return 0
        after = mark + len(_MARKS.history_end)
        end_of_line = text.find("\n", after, limit)
        closed = text.find("]", after, limit if end_of_line < 0 else end_of_line)
        if closed >= 0:
            rest = closed + 1
            return rest + (
                2 if text.startswith("\n\n", rest) else 1 if text.startswith("\n", rest) else 0
            )
        limit = mark + 1  # exclude the newline before this mark
    return 0


def _request(text: str, begin: int) -> tuple[int, int] | None:
    """Position of the user's words between Mitto's head and tail; look-alikes are ignored."""
    head = _skip_space(text, begin)
    if not text.startswith(_MARKS.context, head):
        return None
    mark = text.find(_MARKS.request, head + len(_MARKS.context) - 1)
    if mark < 0:
        return None
    first = mark + len(_MARKS.request)
    ends = _ends(text)
    limit = len(text)
    for _ in range(MOST_MARKS):
        last = text.rfind(_MARKS.request_end, first - 1, limit)
        if last < 0:
            return None
        after = last + len(_MARKS.request_end)
        if after in ends or text.startswith(_MARKS.tail, after):
            return first, max(first, last)
        limit = last + 1
    return None


def _ends(text: str) -> tuple[int, int]:
    """End of a text without trailing white space, and without a trailing rule."""
    end = _before_space(text, len(text))
    if text.endswith(_MARKS.rule, 0, end):
        return end, _before_space(text, end - len(_MARKS.rule))
    return end, end


def _skip_space(text: str, at: int) -> int:
    while piece := text[at : at + _LOOK]:
        rest = piece.lstrip()
        if rest:
            return at + len(piece) - len(rest)
        at += len(piece)
    return at


def _before_space(text: str, end: int) -> int:
    while end > 0:
        begin = max(0, end - _LOOK)
        kept = text[begin:end].rstrip()
        if kept:
            return begin + len(kept)
        end = begin
    return 0
