"""Text of a session's history: for a terminal, and as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from pykoclaw_acp.commands import changes
from pykoclaw_acp.commands.show import one_line
from pykoclaw_acp.link.meta_keys import ORIGIN
from pykoclaw_acp.terminal import Shown, joined, shown

_SAID: Final = {
    "user_message_chunk": "You",
    "agent_message_chunk": "Claude",
    "agent_thought_chunk": "Claude, thinking",
}
_ORIGINS: Final = {
    "scheduler": "Scheduled task",
    "terminal": "Terminal",
    "whatsapp": "WhatsApp",
    "telegram": "Telegram",
}
_RESULT: Final = {"completed": "✓", "failed": "✗"}
_FENCE: Final = "```"


class Terminal:
    """Prints updates as they arrive; pieces of a message continue on its line."""

    def __init__(self, write: Callable[[Shown], None]) -> None:
        self._write = write
        self._message: tuple[str, str] | None = None  # kind and id of the current message
        self._fresh = True  # the cursor is at the beginning of a line
        self._tools: dict[str, str] = {}

    def show(self, update: dict[str, Any]) -> None:
        """Print an update."""
        kind = update["sessionUpdate"]
        if kind in _SAID:
            self._say(
                kind, _speaker(update), str(update.get("messageId")), _text(update["content"])
            )
        elif kind == "tool_call":
            title = self._tools[update["toolCallId"]] = one_line(update["title"])
            self.note(f"• {title}", fg="cyan")
        elif kind == "tool_call_update" and (mark := _RESULT.get(update.get("status", ""))):
            title = self._tools.pop(update["toolCallId"], "a tool")
            self.note(f"{mark} {title}", fg="green" if mark == "✓" else "red")

    def note(self, text: str, **style: Any) -> None:
        """Print a line of our own."""
        self._end_line()
        self._message = None
        self._write(joined([shown(text, **style), shown("\n", "prose")]))

    def block(self, text: Shown) -> None:
        """Print lines of our own."""
        self._end_line()
        self._message = None
        self._write(text)

    def end(self) -> None:
        """End the output at the beginning of a line."""
        self._end_line()

    def _say(self, kind: str, speaker: str, message: str, text: str) -> None:
        if self._message != (kind, message):
            self._end_line()
            self._message = (kind, message)
            self._write(joined([shown(f"{speaker}:", bold=True), shown("\n", "prose")]))
        if text:
            self._write(
                shown(text, "prose", **({"dim": True} if kind == "agent_thought_chunk" else {}))
            )
            self._fresh = text.endswith("\n")

    def _end_line(self) -> None:
        if not self._fresh:
            self._write(shown("\n", "prose"))
            self._fresh = True


def markdown(details: dict[str, Any], updates: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Parts of a Markdown document: heading, then messages and tool calls, in order."""
    summary = details["summary"]
    yield f"# {one_line(summary['title'], summary['conversation'])}\n\n"
    yield f"Session {summary['id']}, in {one_line(summary['cwd'], 'an unknown directory')}.\n"
    message: tuple[str, str] | None = None
    for update in updates:
        kind = update["sessionUpdate"]
        if kind in _SAID:
            now = (kind, str(update.get("messageId")))
            if now != message:
                yield f"\n\n## {_speaker(update)}\n\n"
            message = now
            yield _whole(update["content"])
        elif kind == "tool_call":
            message = None
            yield f"\n\n### Tool: {one_line(update['title'])}\n"
            yield from _shown(update.get("content") or [])
        elif kind == "tool_call_update" and update.get("status") in _RESULT:
            message = None
            yield from _shown(update.get("content") or [])
            yield f"\n*{update['status']}*\n"
    yield "\n"


def _speaker(update: dict[str, Any]) -> str:
    """Who speaks: a user's message may have come through another program."""
    origin = (update.get("_meta") or {}).get(ORIGIN)
    if not isinstance(origin, str) or not origin:
        return _SAID[update["sessionUpdate"]]
    return _ORIGINS.get(origin, one_line(origin))


def _shown(parts: list[dict[str, Any]]) -> Iterator[str]:
    for part in parts:
        if part["type"] == "diff":
            yield _block("\n".join([f"--- {part['path']}", *changes.lines(part)]), "diff")
        elif part["content"].get("type") == "image":
            yield _whole(part["content"])
        else:
            yield _block(_text(part["content"]), "")


def _block(text: str, language: str) -> str:
    fence = _FENCE
    while fence in text:
        fence += "`"
    return f"\n{fence}{language}\n{text.rstrip()}\n{fence}\n"


def _whole(content: dict[str, Any]) -> str:
    """A content block with all that it holds."""
    resource = content.get("resource") or {}
    if content.get("type") == "image":
        return f"\n![image](data:{content.get('mimeType', '')};base64,{content.get('data', '')})\n"
    if "blob" in resource:
        kind = resource.get("mimeType") or "application/octet-stream"
        return f"\n[{resource.get('uri', '')}](data:{kind};base64,{resource['blob']})\n"
    if "text" in resource:
        return f"\n{resource.get('uri', '')}\n{_block(str(resource['text']), '')}"
    return _text(content)


def _text(content: dict[str, Any]) -> str:
    """Text of a content block."""
    match content.get("type"):
        case "text":
            return str(content["text"])
        case "resource_link":
            return f"[{content.get('name', '')}]({content.get('uri', '')})"
        case "resource":
            resource = content.get("resource") or {}
            return f"[{resource.get('uri', 'a file')}]"
        case kind:
            return f"[{kind}]"
