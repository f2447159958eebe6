"""A session's history as a Markdown document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from pykoclaw_acp.commands import changes
from pykoclaw_acp.commands.document import (
    EDIT,
    OURS,
    RESULTS,
    TASKS,
    THINKING,
    TOOL,
    ShownCall,
    ShownMessage,
    ShownPlan,
    about,
    fields,
    headed,
    items,
)
from pykoclaw_acp.commands.embedded import embedded, words
from pykoclaw_acp.commands.show import one_line
from pykoclaw_acp.model import images
from pykoclaw_acp.model.fences import segments
from pykoclaw_acp.model.links import link
from pykoclaw_acp.model.markdown import Blocks
from pykoclaw_acp.neutral import in_fences

SHORT: Final = 100  # characters of output that stand beside the title of its tool call
# GitHub knows no box of what is in progress.
_BOXES: Final = {"completed": "[x]", "in_progress": "[ ] *In progress:*"}
_OWN: Final = tuple(f"{one}:" for one in (OURS, THINKING, TASKS, TOOL))
_INLINE: Final = ("text", "resource_link")
BASE64: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_KIND: Final = re.compile(r"[\w.+-]+/[\w.+-]+")


def markdown(details: dict[str, Any], updates: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Parts of a Markdown document: heading, then messages and tool calls, in order.

    Tool calls belong to Claude; those with little output are a list. What this program says is
    quoted, and so are lists of tasks. Nothing that was said looks like one of these.
    """
    summary = details["summary"]
    yield f"# {words(one_line(summary['title'], summary['conversation']))}\n\n"
    yield f"{words(about(summary))}.\n"
    listed = False
    for heading, item in headed(items(updates)):
        if heading is not None:
            yield f"\n## {words(heading)}\n"
        short = beside_title(item) if isinstance(item, ShownCall) else None
        if not (listed and short is not None):
            yield "\n"
        listed = short is not None
        if isinstance(item, ShownMessage):
            yield from _said(item)
        elif isinstance(item, ShownPlan):
            yield from _quoted(TASKS, "\n".join(map(_task, item.entries)))
        elif short is not None:
            yield f"- *{TOOL}:* {_title(item)}{f' — {_code(short)}' if short else ''}\n"
        else:
            yield f"### {TOOL}: {_title(item)}\n"
            if item.asked:
                yield _block(item.asked, "")
            yield from _shown(item.content)


def beside_title(tool: ShownCall) -> str | None:
    """The output of a call of which nothing else is shown in a document, as `short_output` has it."""
    return None if tool.asked else short_output(tool)


def short_output(tool: ShownCall) -> str | None:
    """The output of a tool call if it is one short line, or none; None if it is more, or what an edit
    writes.
    """
    texts = tool.blocks
    if len(tool.content) > 1 or len(texts) != len(tool.content):
        return None
    if not texts:
        return ""
    text = output(texts[0]).strip() if texts[0].get("type") == "text" else "\n"
    if tool.kind == EDIT and tool.status != "failed" and text != block_text(texts[0]).strip():
        return None  # the content of the file is in a code block, and our words about it are not
    return text if len(text) <= SHORT and "\n" not in text else None


def output(content: dict[str, Any]) -> str:
    """Text that a tool showed, without the code block that it stands in as a whole."""
    text = block_text(content)
    parts = list(segments(text))
    if len(parts) != 3 or any(parts[0][1]) or any(parts[2][1]):
        return text
    return "\n".join(parts[1][1])


def closed(text: str) -> str:
    """The text with an end for a code block that it leaves open."""
    return text + Blocks(text).ending.removesuffix("\n")


def _said(item: ShownMessage) -> Iterator[str]:
    text = _joined(item)
    if item.speaker in (OURS, THINKING):
        yield from _quoted(item.speaker, text)
    else:
        yield f"{text}\n"


def _joined(item: ShownMessage) -> str:
    """The blocks; each that does not stand in a line is a paragraph of its own."""
    made = ""
    for block in item.blocks:
        if block.get("type") not in _INLINE:
            made = f"{made.rstrip()}\n\n{_whole(block).strip()}\n\n"
            continue
        text = block_text(block)
        if block.get("type") == "text":
            text = unquoted(text) if item.speaker == OURS else text
            whole = closed(text)
            text = embedded(whole, _OWN) + ("\n\n" if whole != text else "")
        made += text
    return made.strip("\n")


def _quoted(head: str, text: str) -> Iterator[str]:
    yield f"> *{head}:*\n>\n"
    yield "".join(f"> {line}".rstrip() + "\n" for line in text.split("\n"))


def _task(entry: dict[str, Any]) -> str:
    box = _BOXES.get(str(entry.get("status")), "[ ]")
    return embedded(f"- {box} {one_line(str(entry.get('content')))}", _OWN)


def _title(tool: ShownCall) -> str:
    return f"{RESULTS.get(tool.status, '…')} {_code(tool.title)}"


def _code(text: str) -> str:
    """A code span, which its text cannot end."""
    text = one_line(text)
    marks = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{marks}{space}{text}{space}{marks}"


def _shown(parts: list[dict[str, Any]]) -> Iterator[str]:
    for part in parts:
        content = fields(part.get("content"))
        if part.get("type") == "diff":
            yield _block("\n".join(changes.patch(part)), "diff")
        elif part.get("type") == "content" and content.get("type") == "image":
            yield _whole(content)
        elif part.get("type") == "content":
            yield _block(output(content), "")


def _block(text: str, language: str) -> str:
    return f"\n{in_fences(text.rstrip(), language)}\n"


def _whole(content: dict[str, Any]) -> str:
    """A content block with all that it holds."""
    resource = fields(content.get("resource"))
    uri, kind, data = (
        str(resource.get("uri") or "a file"),
        content.get("mimeType"),
        content.get("data"),
    )
    if content.get("type") == "image":
        if kind in images.KINDS and isinstance(data, str) and BASE64.fullmatch(data):
            return f"\n![image](data:{kind};base64,{data})\n"
        return "\n(an image that cannot be shown)\n"
    if isinstance(blob := resource.get("blob"), str) and BASE64.fullmatch(blob):
        declared = str(resource.get("mimeType"))
        kind = declared if _KIND.fullmatch(declared) else "application/octet-stream"
        return f"\n{link(uri, f'data:{kind};base64,{blob}')}\n"
    if "text" in resource:
        return f"\n{_code(uri)}\n{_block(str(resource['text']), '')}"
    return words(one_line(block_text(content)))


def unquoted(text: str) -> str:
    """The text of a quote; other texts as they are."""
    lines = text.strip("\n").split("\n")
    if not all(line.startswith(">") for line in lines):
        return text
    return "\n".join(line.removeprefix(">").removeprefix(" ") for line in lines)


def block_text(content: dict[str, Any]) -> str:
    """Text of a content block."""
    match content.get("type"):
        case "text":
            return str(content.get("text", ""))
        case "resource_link":
            return link(str(content.get("name", "")), str(content.get("uri", "")))
        case "resource":
            resource = fields(content.get("resource"))
            return f"[{resource.get('uri', 'a file')}]"
        case kind:
            return f"[{kind}]"
