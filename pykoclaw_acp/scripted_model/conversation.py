"""Messages API requests of the Claude CLI: the user's prompts, and how far the newest was answered.
No I/O.

The rules were observed on CLI 2.1.327; each constant names what it recognises.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_OPENING_TAG = r"<(system-reminder|task-notification|local-command-[a-z]+|command-[a-z]+)>"
# Blocks that the CLI writes into user messages.
_CLI_BLOCK = re.compile(_OPENING_TAG + r".*?</\1>", re.DOTALL)
_INTERRUPTED = "[Request interrupted by user"
_COMPACTION = "CRITICAL: Respond with TEXT ONLY"
# User messages that the CLI writes by itself.
_NOT_A_PROMPT = (
    _COMPACTION,
    "This session is being continued from a previous conversation",
    "Output token limit hit.",
    "Your response above was stopped by a safety classifier",
    "Continue from where you left off.",
    "[Your previous response had no visible output.",
    "[Image: source: ",
    "[Image: original ",
)
# Prompts sent while a turn runs are handed to the model in a message of role `system`, or (CLI 2.1.332)
# in blocks beside the tool's result, each between a head and advice.
_FOLDED_HEAD = "The user sent a new message while you were working:\n"
_FOLDED = re.compile(
    rf"(?:^|\n\n){_FOLDED_HEAD}(.*?)"
    rf"(?=\n\nThis is how Claude Code|\n\nIMPORTANT:|\n\n{_FOLDED_HEAD}|$)",
    re.DOTALL,
)
_USER_REQUEST = ("<user_request>", "</user_request>")


@dataclass(frozen=True)
class ToolUse:
    """A tool call."""

    id: str
    name: str


@dataclass(frozen=True)
class RequestToolResult:
    """Result of a tool call; `id` is the call's."""

    id: str
    text: str


@dataclass(frozen=True)
class Attachment:
    """An image or a document: `type` is the block's, `size` (bytes) and `sha256` those of its data."""

    type: str
    media_type: str
    size: int
    sha256: str


@dataclass(frozen=True)
class RequestMessage:
    """A message of a request, with the lines of its text blocks."""

    role: str
    text: str
    tool_uses: tuple[ToolUse, ...] = ()
    tool_results: tuple[RequestToolResult, ...] = ()
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True)
class RequestPrompt:
    """A prompt of the user. `responses_before`: number of model responses before it.

    `folded`: it reached a turn that was already running.
    """

    text: str
    responses_before: int
    folded: bool = False


@dataclass(frozen=True)
class RequestConversation:
    """Messages of a request without the CLI's additions, the user's prompts, and the number of
    responses.
    """

    messages: tuple[RequestMessage, ...]
    prompts: tuple[RequestPrompt, ...]
    responses: int


def read_conversation(body: dict[str, Any]) -> RequestConversation:
    """Read the conversation from a request body; unknown parts are left out."""
    messages: list[RequestMessage] = []
    prompts: list[RequestPrompt] = []
    responses = 0
    previous_role = ""
    for raw in body["messages"]:
        role, blocks = raw.get("role", ""), _blocks(raw.get("content"))
        texts = [block["text"] for block in blocks if block.get("type") == "text"]
        notes = [text for text in texts if _has_folded(role, text)]
        folded = [found for text in notes for found in _FOLDED.findall(text.strip())]
        if role != "system":
            texts = [text for text in texts if not _has_folded(role, text)]
            if role == "assistant" and previous_role != "assistant":
                responses += 1
            if role == "user":
                prompts.extend(RequestPrompt(text, responses) for text in _prompt_texts(texts))
            previous_role = role
            messages.append(_message(role, texts, blocks))
        messages.extend(RequestMessage("user", text) for text in folded)
        prompts.extend(RequestPrompt(text, responses, folded=True) for text in folded)
    return RequestConversation(tuple(messages), tuple(prompts), responses)


def is_compaction(body: dict[str, Any]) -> bool:
    """Whether the CLI asks for a summary of the conversation."""
    last = body["messages"][-1]
    texts = [block["text"] for block in _blocks(last.get("content")) if block.get("type") == "text"]
    return last.get("role") == "user" and bool(texts) and texts[-1].startswith(_COMPACTION)


def first_line(prompt: str) -> str:
    """First line of the user's words, without a client's wrapping."""
    begin, end = _USER_REQUEST
    parts = (part.partition(begin) for part in prompt.split(end)[:-1])
    requests = [request for _, mark, request in parts if mark]
    lines = (requests[-1] if requests else prompt).strip().splitlines()
    return lines[0].strip() if lines else ""


def _has_folded(role: str, text: str) -> bool:
    """Whether the block hands over prompts that were sent while a turn ran."""
    return role == "system" or (role == "user" and text.startswith(_FOLDED_HEAD))


def _message(role: str, texts: list[str], blocks: list[dict[str, Any]]) -> RequestMessage:
    cleaned = [_CLI_BLOCK.sub("", text).strip() for text in texts]
    return RequestMessage(
        role,
        "\n".join(text for text in cleaned if text),
        tuple(
            ToolUse(block["id"], block["name"])
            for block in blocks
            if block.get("type") == "tool_use"
        ),
        tuple(
            RequestToolResult(block["tool_use_id"], _flatten(block.get("content")))
            for block in blocks
            if block.get("type") == "tool_result"
        ),
        tuple(_attachments(blocks)),
    )


def _prompt_texts(texts: list[str]) -> list[str]:
    """Prompts in one user message: the CLI merges adjacent ones, with a line break after all but
    the last.
    """
    groups: list[list[str]] = [[]]
    for text in texts:
        own = _CLI_BLOCK.sub("", text)
        if text.startswith(_INTERRUPTED):
            groups.append([])
        elif own.strip() and not own.startswith(_NOT_A_PROMPT):
            groups[-1].append(own.strip())
            if own.endswith("\n"):
                groups.append([])
    return ["\n".join(group) for group in groups if group]


def _blocks(content: object) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return (
        [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    )


def _attachments(blocks: list[dict[str, Any]]) -> Iterator[Attachment]:
    """Images and documents, those in tool results included."""
    for block in blocks:
        source = block.get("source")
        if block.get("type") == "tool_result":
            yield from _attachments(_blocks(block.get("content")))
        elif block.get("type") in ("image", "document") and isinstance(source, dict):
            try:
                data = base64.b64decode(str(source.get("data", "")), validate=True)
            except binascii.Error:
                data = b""
            digest = hashlib.sha256(data).hexdigest()
            yield Attachment(block["type"], str(source.get("media_type")), len(data), digest)


def _flatten(content: object) -> str:
    return "\n".join(block["text"] for block in _blocks(content) if block.get("type") == "text")
