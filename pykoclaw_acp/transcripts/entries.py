"""Entries of a transcript, as the CLI writes them: one JSON object in a line. What a line has besides
is not decoded.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from pykoclaw_acp.model import prompt_text
from pykoclaw_acp.transcripts import shell_commands, tags
from pykoclaw_acp.translation.local_commands import SYNTHETIC

MAX_ID: Final = 64  # characters of an id
MAX_CALL: Final = 200  # characters of the id of a tool call
MAX_NAME: Final = 256  # characters of a tool's name
THOUGHTS: Final = frozenset({"thinking", "redacted_thinking"})
_BLANK: Final = ("", "(no content)", "[Empty text removed]")
MAX_DETAILS: Final = 512 * 1024  # bytes of the CLI's own form of a result

INTERRUPTED: Final = "[Request interrupted by user"
# What begins a text that the CLI has written into a user's entry, and that is no prompt.
_NO_PROMPT: Final = (
    "<local-command-",
    "<bash-stdout>",
    "<bash-stderr>",
    INTERRUPTED,
    "<user-memory-input>",
)
_OUTPUT: Final = ("<local-command-stdout>", "<local-command-stderr>")
# A backslash; a character outside of the basic plane; half of one; NUL.
_ESCAPE: Final = re.compile(
    rb"\\(?:\\|u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|u[dD][89a-fA-F][\da-fA-F]{2}|u0000)"
)
_HALF: Final = 6  # bytes
_NUL: Final = rb"\u0000"
_NOTES: Final = f"<{prompt_text.NOTES_TAG}>"
_LOOKED_AT: Final = 4096  # characters of a text in which tags are looked for
_NOTHING: Final = msgspec.Raw(b"null")


class Entry(msgspec.Struct, rename="camel"):
    """An entry; parts of any shape are decoded when they are needed."""

    type: str
    subtype: str | None = None
    uuid: str | None = None
    session_id: str | None = None
    timestamp: str | None = None
    parent_uuid: str | None = None
    logical_parent_uuid: str | None = None
    leaf_uuid: str | None = None
    explicit: bool | None = None
    rewound: bool | None = None
    is_sidechain: bool | None = None
    is_meta: bool | None = None
    is_compact_summary: bool | None = None
    is_api_error_message: bool | None = None
    error: msgspec.Raw = _NOTHING
    entrypoint: str | None = None
    permission_mode: str | None = None
    cwd: str | None = None
    turn_origin: str | None = None
    origin: msgspec.Raw = _NOTHING
    api_block_index: int | None = None
    message: msgspec.Raw = _NOTHING
    tool_use_result: msgspec.Raw = _NOTHING
    attachment: msgspec.Raw = _NOTHING
    compact_metadata: msgspec.Raw = _NOTHING
    custom_title: str | None = None

    @property
    def parent(self) -> str | None:
        """The entry before it in its chain, also across a compaction."""
        return self.parent_uuid or self.logical_parent_uuid


class Message(msgspec.Struct):
    """A message of the Messages API."""

    id: str | None = None
    model: str | None = None
    content: str | list[dict[str, Any]] = ""

    @property
    def blocks(self) -> list[dict[str, Any]]:
        """The content as blocks, without notes that pykoclaw-acp gave Claude with a prompt."""
        if isinstance(self.content, str):
            return _own_words([{"type": "text", "text": self.content}])
        return _own_words(self.content)

    @property
    def text(self) -> str:
        """The text of its first block that has one."""
        return next((one["text"] for one in self.blocks if _is_text(one)), "")


class _Queued(msgspec.Struct, rename={"command_mode": "commandMode"}):
    type: str = ""
    prompt: str | list[dict[str, Any]] = ""
    command_mode: str | None = None


_entry: Final = msgspec.json.Decoder(Entry)
_message: Final = msgspec.json.Decoder(Message)
_queued: Final = msgspec.json.Decoder(_Queued)


def decode(line: bytes | None) -> Entry | None:
    """The entry of a line; None if it is damaged."""
    if line is None:
        return None
    if _NUL in line:
        line = _ESCAPE.sub(_as_text, line)
    for text in (line, None):
        try:
            entry = _entry.decode(_ESCAPE.sub(_as_text, line) if text is None else text)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            continue
        longest = max(
            len(entry.uuid or ""),
            len(entry.parent_uuid or ""),
            len(entry.logical_parent_uuid or ""),
        )
        return entry if longest <= MAX_ID else None
    return None


def message(entry: Entry) -> Message | None:
    """The entry's message; None if it has none, or it is of a shape that nobody knows."""
    try:
        return _message.decode(entry.message)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def answer(entry: Entry) -> str | None:
    """The id of the message of Claude that the entry is of; None if it is of none, as what the CLI
    has put in the place of one that is missing, or of nothing that the CLI keeps when it resumes.
    """
    found = message(entry) if entry.type == "assistant" else None
    if found is None or found.model == SYNTHETIC or all(map(_is_dropped, found.blocks)):
        return None
    return found.id or entry.uuid


def _is_dropped(block: dict[str, Any]) -> bool:
    """Whether the CLI leaves the block out when it resumes a conversation that ends with it."""
    if _is_text(block):
        return block["text"].strip() in _BLANK
    return str(block.get("type")) in THOUGHTS


def queued(entry: Entry) -> tuple[str, Message] | None:
    """What came while a turn was running, with its kind; None if the entry is no such thing."""
    try:
        found = _queued.decode(entry.attachment)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    if found.type != "queued_command":
        return None
    return found.command_mode or "prompt", Message(content=found.prompt)


def details(entry: Entry) -> object:
    """The CLI's own form of a tool's result; None if there is none, or it is long."""
    if len(entry.tool_use_result) > MAX_DETAILS:
        return None
    return _any(entry.tool_use_result)


def error(entry: Entry) -> str:
    """Kind of the API's error."""
    found = _any(entry.error)
    return found[:MAX_ID] if isinstance(found, str) else "unknown"


def compaction(entry: Entry) -> dict[str, Any] | None:
    """What the CLI says of a compaction, if the entry is the boundary that it has left."""
    if entry.type != "system" or entry.subtype != "compact_boundary":
        return None
    found = _any(entry.compact_metadata)
    return found if isinstance(found, dict) else {}


def by_claude_itself(entry: Entry) -> bool:
    """Whether Claude began the turn of this prompt by itself, as when a background task ended."""
    origin = _any(entry.origin)
    kind = origin.get("kind") if isinstance(origin, dict) else None
    return entry.turn_origin == "task_notification" or kind == "task-notification"


def leaves_plan(entry: Entry) -> bool:
    """Whether plan mode was left here."""
    attached = _any(entry.attachment)
    return isinstance(attached, dict) and attached.get("type") == "plan_mode_exit"


def command(text: str) -> str | None:
    """The slash command that a text is the record of, with its arguments; or what a user has given
    to a shell, after the sign for that.
    """
    if (shell := shell_commands.command(text)) is not None:
        return f"{prompt_text.SHELL}{shell}"
    if not text.lstrip().startswith(("<command-name>", "<command-message>")):
        return None
    name = tags.word(text[:_LOOKED_AT], "command-name")
    if name is None:
        return None
    arguments = tags.between(text, "command-args")
    return f"{name} {arguments[0] if arguments else ''}".strip()


def users_words(found: Message) -> list[str]:
    """The user's words in each text of a prompt; of the record of a command, what was typed."""
    if (typed := command(found.text)) is not None:
        return [typed]
    texts = [one["text"] for one in found.blocks if _is_text(one)]
    return [prompt_text.unwrap(text) or text for text in texts]


def is_prompt(entry: Entry) -> bool:
    """Whether a user's entry begins a turn, as far as the entry alone says; a command may, too."""
    if entry.type != "user" or entry.is_meta or entry.is_compact_summary or entry.is_sidechain:
        return False
    found = message(entry)
    if found is None or any(one.get("type") == "tool_result" for one in found.blocks):
        return False
    return not found.text.lstrip().startswith(_NO_PROMPT)


def is_output(entry: Entry) -> bool:
    """Whether an entry is what a command has put out that the CLI ran without Claude."""
    if entry.type == "system":
        return entry.subtype == "local_command"
    found = message(entry) if entry.type == "user" else None
    return found is not None and found.text.lstrip().startswith(_OUTPUT)


def is_call(block: dict[str, Any]) -> bool:
    """Whether a block is a tool call, with an id that can be kept."""
    call = block.get("id")
    return block.get("type") == "tool_use" and isinstance(call, str) and len(call) <= MAX_CALL


def called(block: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The tool that a call is of, and its input."""
    given = block.get("input")
    return str(block.get("name"))[:MAX_NAME], given if isinstance(given, dict) else {}


def _as_text(found: re.Match[bytes]) -> bytes:
    """An escape, without what is no text."""
    if found[0] == _NUL:
        return b""
    return b"?" if len(found[0]) == _HALF else found[0]


def _own_words(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if not any(_is_text(one) and one["text"].startswith(_NOTES) for one in blocks):
        return blocks
    left = [
        {**one, "text": prompt_text.without_notes(one["text"])} if _is_text(one) else one
        for one in blocks
    ]
    return [one for one in left if not _is_text(one) or one["text"]]


def _is_text(block: dict[str, Any]) -> bool:
    return block.get("type") == "text" and isinstance(block.get("text"), str)


def _any(raw: msgspec.Raw) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
