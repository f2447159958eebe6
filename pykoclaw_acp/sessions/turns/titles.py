"""A session's title: the user's own words of its first prompt. A pure function."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import unquote

from pykoclaw_acp.model import client_traits, prompt_text
from pykoclaw_acp.sessions.turns import plain_words

MAX_TITLE: Final = 80  # characters
LOOKED_AT: Final = 64 * 1024  # characters of a prompt in which its title is looked for
MOST_BLOCKS: Final = 100  # that are looked at
MOST_NAMES: Final = 50  # of tags whose ends are looked for

_NAME: Final = re.compile(r"([a-z]++(?:[-_][a-z]++)++)\b")
_QUERY: Final = re.compile(r"[?#]")
_LONGEST_NAME: Final = 100  # characters
_BEGIN: Final = 4096  # characters, in which there is more than a title
_FILE: Final = client_traits.DEFAULT.wrapping.file


def title(content: Sequence[dict[str, Any]]) -> str | None:
    """One line of at most 80 characters, without Markdown; None for a slash command, and for a
    prompt without words.
    """
    said = words(content)
    return None if said is None else shorten(plain_words.without_markdown(said))


def words(content: Sequence[dict[str, Any]]) -> str | None:
    """The user's words, of which at most 64 Ki characters are looked at; None for a slash command,
    and for a prompt without any.
    """
    said = _said(content)
    return None if prompt_text.is_command(said) else said or None


def of_content(content: Sequence[dict[str, Any]]) -> str | None:
    """One line of at most 80 characters for a prompt of which `title` knows none: its slash command,
    or what is attached to it.
    """
    said = _said(content)
    if prompt_text.is_command(said):
        return shorten(said)
    attached = dict.fromkeys(filter(None, map(_attached, content[:MOST_BLOCKS])))
    return shorten(", ".join(attached))


def shorten(words: str, mark: str = "") -> str | None:
    """The words, and the whole `mark`, in one line of at most 80 characters; None if there are no
    words at the beginning.
    """
    begin = words[:LOOKED_AT].lstrip()[:_BEGIN]
    line, room = plain_words.visible(begin), MAX_TITLE - len(mark)
    short = line if len(line) <= room else line[: room - 1] + "…"
    return short + mark if short else None


def without_noise(text: str) -> str:
    """The text without what programs put around words: <system-reminder>…</system-reminder>, not a
    <div>.
    """
    return " ".join(_kept(text))


def _attached(block: dict[str, Any]) -> str:
    kind = block.get("type")
    if kind in ("image", "audio"):
        return str(kind).capitalize()
    if kind == "resource_link":
        return str(block.get("name") or "")
    if kind == "resource":
        resource = block.get("resource", block)  # flat, where it is stored
        uri = str(resource.get("uri") or "") if isinstance(resource, dict) else ""
        return unquote(_QUERY.split(uri, maxsplit=1)[0].rstrip("/").rpartition("/")[2])
    return ""


def _said(content: Sequence[dict[str, Any]]) -> str:
    """The words, with the name of each file that is mentioned among them."""
    texts = [_text(block) for block in content[:MOST_BLOCKS]]
    said, room, mentioned = "", LOOKED_AT, False
    for at, block in enumerate(content[:MOST_BLOCKS]):
        if mention := _mention(block, texts, at):
            said += mention if said.endswith((" ", "(")) else f" {mention}"
            mentioned = True
        elif (text := texts[at][:room]) and not text.startswith(_FILE):
            room -= len(text)
            glue = "" if mentioned and not text[0].isalnum() else " " if mentioned else "\n"
            said += glue + without_noise(text)
            mentioned = False
    return said.strip()


def _text(block: dict[str, Any]) -> str:
    return prompt_text.unwrap(block["text"])[:LOOKED_AT] if block.get("type") == "text" else ""


def _mention(block: dict[str, Any], texts: Sequence[str], at: int) -> str:
    """The file's name as Claude gets it; empty if it is attached to the words rather than said
    among them, or is in them, too.
    """
    if block.get("type") not in ("resource_link", "resource"):
        return ""
    before = next(filter(None, reversed(texts[:at])), "")[-_BEGIN:]
    after = next(filter(None, texts[at + 1 :]), "")[:_BEGIN]
    among = before.strip() and (after.strip() or before.endswith(" "))
    name = _attached(block)
    if not name or f"@{name}" in before or not (among or after.startswith(" ")):
        return ""
    return f"@{name}"


def _kept(text: str) -> Iterator[str]:
    """What stands between the noise. `closed` and `ends` hold places that were found, so that none
    is sought twice.
    """
    begin = at = 0
    closed = -1  # the first `>` at or after the last tag; beyond the text if there is none
    ends: dict[str, int] = {}
    while (at := text.find("<", at)) >= 0:
        at += 1
        name = _NAME.match(text[at : at + _LONGEST_NAME])
        if name is None:
            continue
        if closed < at:
            closed = text.find(">", at)
            if closed < 0:
                break
        end = _end(text, f"</{name[1]}>", closed + 1, ends)
        if end >= 0:
            yield text[begin : at - 1]
            begin = at = end + len(name[1]) + 3
    yield text[begin:]


def _end(text: str, mark: str, at: int, ends: dict[str, int]) -> int:
    if mark not in ends and len(ends) == MOST_NAMES:
        return -1
    known = ends.get(mark, 0)
    if 0 <= known < at:
        known = ends[mark] = text.find(mark, at)
    return known
