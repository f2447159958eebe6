"""A session's history as a Markdown document."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final

from pykoclaw_acp.commands import changes
from pykoclaw_acp.commands.document import (
    OURS,
    RESULTS,
    THINKING,
    ShownCall,
    ShownMessage,
    ShownPlan,
    fields,
    headed,
    items,
)
from pykoclaw_acp.commands.show import one_line
from pykoclaw_acp.model.fences import segments

SHORT: Final = 100  # characters of output that stand beside the title of its tool call
_STATES: Final = {"completed": "x"}


def markdown(details: dict[str, Any], updates: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Parts of a Markdown document: heading, then messages and tool calls, in order.

    Tool calls belong to Claude; those with little output are a list. What this program says is
    quoted.
    """
    summary = details["summary"]
    yield f"# {one_line(summary['title'], summary['conversation'])}\n\n"
    yield f"Session {summary['id']}, in {one_line(summary['cwd'], 'an unknown directory')}.\n"
    listed = False
    for heading, item in headed(items(updates)):
        if heading is not None:
            yield f"\n## {heading}\n"
        short = short_output(item) if isinstance(item, ShownCall) else None
        if not (listed and short is not None):
            yield "\n"
        listed = short is not None
        if isinstance(item, ShownMessage):
            yield from _said(item)
        elif isinstance(item, ShownPlan):
            yield from (
                f"- [{_STATES.get(str(one.get('status')), ' ')}] {one_line(str(one.get('content')))}\n"
                for one in item.entries
            )
        elif short is not None:
            yield f"- {_title(item)}{f' — {_code(short)}' if short else ''}\n"
        else:
            yield f"### Tool: {_title(item)}\n"
            yield from _shown(item.content)


def short_output(tool: ShownCall) -> str | None:
    """The output of a tool call if it is one short line, or none; None if it is more."""
    texts = tool.blocks
    if len(tool.content) > 1 or len(texts) != len(tool.content):
        return None
    if not texts:
        return ""
    text = output(texts[0]).strip() if texts[0].get("type") == "text" else "\n"
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
    *_, (fence, _) = segments(text)
    return f"{text}\n{fence}" if fence else text


def _said(item: ShownMessage) -> Iterator[str]:
    text = closed("".join(_whole(block) for block in item.blocks)).strip("\n")
    if item.speaker == OURS:
        text = unquoted(text)
    if item.speaker in (OURS, THINKING):
        yield f"> *{item.speaker}:*\n>\n"
        yield "".join(f"> {line}".rstrip() + "\n" for line in text.split("\n"))
    else:
        yield f"{text}\n"


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
    fence = "```"
    while fence in text:
        fence += "`"
    return f"\n{fence}{language}\n{text.rstrip()}\n{fence}\n"


def _whole(content: dict[str, Any]) -> str:
    """A content block with all that it holds."""
    resource = fields(content.get("resource"))
    if content.get("type") == "image":
        return f"\n![image](data:{content.get('mimeType', '')};base64,{content.get('data', '')})\n"
    if "blob" in resource:
        kind = resource.get("mimeType") or "application/octet-stream"
        return f"\n[{resource.get('uri', '')}](data:{kind};base64,{resource['blob']})\n"
    if "text" in resource:
        return f"\n{resource.get('uri', '')}\n{_block(str(resource['text']), '')}"
    return block_text(content)


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
            return f"[{content.get('name', '')}]({content.get('uri', '')})"
        case "resource":
            resource = fields(content.get("resource"))
            return f"[{resource.get('uri', 'a file')}]"
        case kind:
            return f"[{kind}]"
