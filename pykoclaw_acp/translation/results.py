"""Results of tool calls, for people: what a tool has put out, without what the CLI writes around it
for the model.

`details` is the CLI's own form of a result; a failure's is its text. Without it, as in transcripts
of earlier CLIs, the text for the model is cleaned.
"""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgspec

from pykoclaw_acp.model import links, refused
from pykoclaw_acp.model.blobs import amount
from pykoclaw_acp.model.events import (
    COMMANDS,
    EDITS,
    DiffPart,
    ImagePart,
    Location,
    TextPart,
    ToolPart,
)
from pykoclaw_acp.translation import cleaning, diffs, service_errors, undone
from pykoclaw_acp.translation.texts import (
    MAX_SHOWN,
    coloured,
    fenced,
    first_text,
    output_text,
    settled,
    shorten,
)

STOPPED: Final = "Stopped; what it did until then stays."
CUT: Final = "(Only the beginning is shown.)"
LAST_MISSING: Final = "(What it put out last may be missing.)"
MOST_OF_FAILED: Final = 10_000  # characters of a failed command's output that the CLI hands on
MAX_IMAGE: Final = 5 * 1024 * 1024  # characters of one result, images as base64

Details = dict[str, Any]


class Result(NamedTuple):
    """What clients are shown; empty `parts` keep what was shown before. `cut`: the CLI has left out
    the end, without a word. `failed`: the CLI has called it a success. `told`: to the model, of a
    change.
    """

    parts: tuple[ToolPart, ...] = ()
    exit_code: int | None = None
    locations: tuple[Location, ...] = ()
    cut: bool = False
    failed: bool = False
    told: str = ""


# Once they have succeeded
_SILENT: Final = (*EDITS, "SendMessage", "Skill", "EnterPlanMode", "ExitPlanMode")
_MARKDOWN: Final = ("Agent", "Task", "WebSearch", "WebFetch", "ExitPlanMode", "Skill")
# Where the CLI keeps an image of an MCP tool, said to the model beside the image.
_IMAGE_PLACE: Final = re.compile(r"\[Image: source: [^\]\n]{1,4096}\]")
_JSON: Final = (("{", "}"), ("[", "]"))  # how a text begins and ends
_NOTHING: Final = ("(Bash completed with no output)", "(no content)")
_UNCHANGED_FILE: Final = "(unchanged since it was last read)"
_EMPTY_FILE: Final = "(the file is empty)"
_NO_SUCH_LINES: Final = "(the file has fewer lines)"

_EXIT: Final = re.compile(r"(?:Error: )?Exit code (\d{1,5})(?:\n|\Z)")
_SCHEMA: Final = "\n\nThis tool's input schema was not in your prompt"
_REFUSED: Final = "The user doesn't want to proceed with this tool use."
_NOT_RUN: Final = "Not run: the turn was stopped."
_WHILE_RUNNING: Final = "this call was stopped while running"
_REFUSED_BECAUSE: Final = "the user said:\n"
_INTERRUPTED: Final = (
    "[Request interrupted by user",
    "The user doesn't want to take this action right now.",
)


def result(
    name: str, blocks: object, *, failed: bool, details: object = None, cwd: str = "/"
) -> Result:
    """The result of a call of this tool; `blocks` are for the model, paths may be below `cwd`."""
    if failed:
        return _failure(name, blocks, details)
    if (why := undone.why(name, blocks, details)) is not None:
        return Result(_general(name, service_errors.of_agent(why) or why), failed=True)
    told = cleaning.of_change(first_text(blocks)) if name in EDITS else ""
    if isinstance(details, dict) and (read := _READERS.get(name)) is not None:
        found = read(details)
        if found is not None:
            return _absolute(found, cwd)._replace(told=told)
    return Result(told=told) if name in _SILENT else Result(_general(name, blocks))


def _absolute(found: Result, cwd: str) -> Result:
    """With absolute paths, as ACP wants them; Claude may have given others."""
    parts = tuple(
        msgspec.structs.replace(one, path=os.path.normpath(os.path.join(cwd, one.path)))
        if isinstance(one, DiffPart)
        else one
        for one in found.parts
    )
    locations = tuple(
        Location(os.path.normpath(os.path.join(cwd, one.path)), one.line) for one in found.locations
    )
    return found._replace(parts=parts, locations=locations)


# --- what every tool has


def _failure(name: str, blocks: object, details: object) -> Result:
    if isinstance(blocks, str) and (known := _stopped(blocks)) is not None:
        return Result((TextPart(shorten(output_text(known))),))
    text = details if isinstance(details, str) and details.strip() else blocks
    if not isinstance(text, str):
        return Result(_general(name, blocks))
    code: int | None = None
    if name == "Bash" and (found := _EXIT.match(text)) is not None:
        code, text = int(found[1]), text[found.end() :]
    if text is details:
        text = text.removeprefix("Error: ")
    if code is None:  # the CLI's words, or an error of the tool
        text = cleaning.without_wrapping(text)[0] if text.startswith("<tool_use_error>") else text
        text = service_errors.of_agent(text) or cleaning.without_advice(text)
    if code is not None and len(text) >= MOST_OF_FAILED:
        return Result((*_general(name, text), *_notes(CUT)), code, cut=True)
    return Result(_general(name, text.partition(_SCHEMA)[0]), code)


def _stopped(text: str) -> str | None:
    """In words for people, that the call was refused, or that the user has stopped it; None for
    any other failure.
    """
    if text.startswith(_REFUSED):
        if _WHILE_RUNNING in text:
            return STOPPED
        because = text.partition(_REFUSED_BECAUSE)[2].strip()
        return f"Refused: {because}" if because else _NOT_RUN
    if text.startswith(_INTERRUPTED):
        return STOPPED
    return cleaning.without_result(text) or refused.shown(text)


def _general(name: str, blocks: object) -> tuple[ToolPart, ...]:
    if isinstance(blocks, str):
        return tuple(_text(name, blocks))
    parts: list[ToolPart] = []
    room = MAX_IMAGE
    for block in blocks if isinstance(blocks, list) else ():
        if not isinstance(block, dict):
            continue
        if block.get("type") == "text" and isinstance(block.get("text"), str):
            shown = list(_text(name, shorten(block["text"], min(room, MAX_SHOWN))))
            room -= sum(len(part.text) for part in shown)
            parts.extend(shown)
        elif block.get("type") == "image":
            source = block.get("source")
            image = source if isinstance(source, dict) and source.get("type") == "base64" else {}
            part = _image(image.get("data"), image.get("media_type"), room)
            room -= len(part.data) if isinstance(part, ImagePart) else 0
            parts.append(part)
        if room <= 0:
            parts += _notes("(more was left out)")
            break
    return tuple(parts)


def _text(name: str, text: str) -> Iterable[TextPart]:
    """A text for the model, cleaned; as a code block, if it is no Markdown."""
    if text.strip() in _NOTHING:
        return
    text, note = cleaning.without_wrapping(text)
    text = cleaning.without_reminders(text)
    if name == "WebSearch":
        text = cleaning.search_results(text)
    if name in ("Read", "NotebookRead"):
        text = cleaning.without_numbers(text)
    if name in COMMANDS:
        text = settled(text)
    if shown := _as_markdown(name, text):
        yield TextPart(shown, coloured=coloured(text) if name in COMMANDS else "")
    if note:
        yield from _notes(note)


def _as_markdown(name: str, text: str) -> str:
    mcp = name.startswith("mcp__")
    if mcp and _IMAGE_PLACE.fullmatch(text.strip()):
        return ""
    if mcp and (text.strip()[:1], text.strip()[-1:]) in _JSON:
        return fenced(text.strip(), "json")
    return shorten(output_text(text).rstrip()) if mcp or name in _MARKDOWN else fenced(text)


def _image(data: object, mime: object, room: int) -> ToolPart:
    if isinstance(data, str) and isinstance(mime, str) and len(data) <= room:
        return ImagePart(data=data, mime_type=mime)
    return TextPart("(an image that is too large to show)", beside=True)


def _parts(*texts: str) -> tuple[TextPart, ...]:
    return tuple(TextPart(one) for one in texts if one)


def _notes(*texts: str) -> tuple[TextPart, ...]:
    """Words of ours."""
    return tuple(TextPart(one, beside=True) for one in texts)


# --- what single tools tell; None if they tell it otherwise


def _bash(details: Details) -> Result | None:
    out, err, told = (details.get(key) for key in ("stdout", "stderr", "returnCodeInterpretation"))
    if not isinstance(out, str) or details.get("isImage") is True:
        return None
    if isinstance(err, str) and err.strip():
        out = f"{out.rstrip()}\n{err}" if out.strip() else err
    size = details.get("persistedOutputSize")
    notes = []
    if isinstance(size, int):
        notes.append(f"(Only the beginning of {amount(size)} is shown.)")
    if isinstance(told, str) and told:
        notes.append(f"({told})")  # such as "No matches found", with a code that is not told
    interrupted = details.get("interrupted") is True
    if interrupted:
        notes.append("(interrupted)")
    code = None if interrupted or told else 0
    out = settled(out)
    shown = fenced(out)
    put_out = (TextPart(shown, coloured=coloured(out)),) if shown else ()
    return Result((*put_out, *_notes(*notes)), code)


def _file_read(details: Details) -> Result | None:
    file = details.get("file")
    if details.get("type") == "file_unchanged":
        return Result(_notes(_UNCHANGED_FILE))
    if not isinstance(file, dict):
        return None
    if file.get("content") == "":
        return Result(_notes(_EMPTY_FILE if file.get("startLine", 1) == 1 else _NO_SUCH_LINES))
    if isinstance(content := file.get("content"), str):
        return Result(_parts(fenced(content)))
    if isinstance(cells := file.get("cells"), list):
        return Result(_cells(cells))
    return None


def _cells(cells: list[Any]) -> tuple[ToolPart, ...]:
    """Cells of a notebook, with the texts and images that they have put out."""
    parts: list[ToolPart] = []
    said: list[str] = []
    room = MAX_IMAGE
    for cell in cells:
        if not isinstance(cell, dict) or not isinstance(source := cell.get("source"), str):
            continue
        code = cell.get("cellType") == "code"
        said.append(fenced(source, str(cell.get("language") or "")) if code else source)
        outputs = cell.get("outputs")
        for one in outputs if isinstance(outputs, list) else ():
            if isinstance(one, dict) and isinstance(text := one.get("text"), str):
                said.append(fenced(text))
            if isinstance(one, dict) and isinstance(image := one.get("image"), dict):
                parts += _parts(_joined(said))
                said.clear()
                part = _image(image.get("image_data"), image.get("media_type"), room)
                room -= len(part.data) if isinstance(part, ImagePart) else 0
                parts.append(part)
    return (*parts, *_parts(_joined(said)))


def _joined(texts: Iterable[str]) -> str:
    return shorten("\n\n".join(one for one in texts if one))


def _file_changed(details: Details) -> Result | None:
    path = details.get("filePath")
    change = diffs.made(details, path) if isinstance(path, str) else None
    return None if change is None else Result(change.parts, locations=change.locations)


def _notebook_changed(details: Details) -> Result | None:
    if isinstance(error := details.get("error"), str) and error:
        return Result(_parts(fenced(error)))
    change = diffs.in_notebook(details)
    return None if change is None else Result(change.parts, locations=change.locations)


def _searched(details: Details) -> Result | None:
    found = details.get("results")
    if not isinstance(found, list):
        return None
    said: list[str] = []
    for one in found:
        if isinstance(one, str):
            said.append(output_text(one).strip())
        elif isinstance(one, dict) and isinstance(pages := one.get("content"), list):
            said.append("\n".join(links.item(page) for page in pages if isinstance(page, dict)))
    return Result(_parts(_joined(said)))


def _resource(details: Details) -> Result | None:
    """What a resource of an MCP server holds, if it is text."""
    found = details.get("contents")
    listed = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    parts = _general("", [{**one, "type": "text"} for one in listed])
    return Result(parts) if parts else None


def _tools_found(details: Details) -> Result | None:
    matches = details.get("matches")
    if not isinstance(matches, list):
        return None
    found = _parts(", ".join(str(one) for one in matches))
    return Result(found or _notes("(no tool was found)"))


def _told(key: str) -> Callable[[Details], Result | None]:
    """The tool's words for people are in this field."""

    def read(details: Details) -> Result | None:
        words = details.get(key)
        return Result(_parts(shorten(output_text(words)))) if isinstance(words, str) else None

    return read


_READERS: Final[dict[str, Callable[[Details], Result | None]]] = {
    "Bash": _bash,
    "Read": _file_read,
    "Write": _file_changed,
    "Edit": _file_changed,
    "MultiEdit": _file_changed,
    "NotebookEdit": _notebook_changed,
    "WebSearch": _searched,
    "WebFetch": _told("result"),
    "ToolSearch": _tools_found,
    "ReadMcpResourceTool": _resource,
    "TaskStop": _told("message"),
    "Skill": _told("result"),  # of one that runs as a subagent
}
