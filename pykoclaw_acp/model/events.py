"""Events of a session's log, independent of ACP: the vocabulary shared by worker, log and clients.

An event makes at most one update. Clients see nothing else, so that `fold(live) == fold(replay)`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

import msgspec

from pykoclaw_acp.model.blocks import readable
from pykoclaw_acp.model.choices import Selection

# Characters in one event; six bytes each at worst keeps a line below 1 MiB
MAX_TEXT: Final = 128 * 1024

BY_WORDS: Final = "words"  # a title of the first prompt's words
BY_CONTENT: Final = "content"  # what a first prompt without words has: a command, files, images
BY_CLAUDE: Final = "claude"  # one that Claude has made

PlanStatus = Literal["pending", "in_progress", "completed"]
ToolKind = Literal[
    "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other"
]

COMMANDS: Final = ("Bash", "Monitor")
"""Tools that run commands, whose output the CLI writes to files."""
EDITS: Final = ("Write", "Edit", "MultiEdit", "NotebookEdit")
"""Tools that change a file."""


class TextPart(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="text"):
    """Text output of a tool as Markdown; `command`: what a call runs, above what it puts out.
    `beside`: nothing of what it has put out, but what the call was asked, or words of ours.
    `thought`: what a subagent has thought.

    `coloured`: what the code block of a command's output holds, with its colours, if it has any.
    """

    text: str
    command: bool = False
    coloured: str = ""
    beside: bool = False
    thought: bool = False


class ImagePart(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="image"):
    """Image output of a tool; `data` is base64. In the log it is a blob, and `data` empty."""

    data: str
    mime_type: str
    sha256: str | None = None
    size: int = 0


class DiffPart(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="type", tag="diff"):
    """A change to a file; `old_text` is None for a new one.

    `line`, `old_line`: where the texts begin in the file, before and after, if they are a part of it.
    """

    path: str
    old_text: str | None
    new_text: str
    line: int | None = None
    old_line: int | None = None


ToolPart = TextPart | ImagePart | DiffPart


class Location(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that a tool works on; `line` counts from 1."""

    path: str
    line: int | None = None


class Output(msgspec.Struct, frozen=True, omit_defaults=True):
    """The newest part of what a command has written, as it wrote it; `start`: bytes before it."""

    text: str
    start: int = 0


class _Event(msgspec.Struct, frozen=True, tag_field="kind", omit_defaults=True):
    pass


class UserMessage(_Event, frozen=True, tag="user_message"):
    """A content block of the user's message; `origin`: the program that it came through, if that is
    not this one, or the scheduler.
    """

    message_id: str
    content: dict[str, Any]
    origin: str | None = None


WHY: Final = "-why"
"""How the id of the note ends that says why Claude has begun a turn by itself."""

BLOCKED: Final = "-blocked"
"""How the id of a note ends that says which hook has taken the turn's prompt away."""


MOVED: Final = "moved-"
"""How the id of a note begins that says that the session's directory is another one from there on."""


class Text(_Event, frozen=True, tag="text"):
    """A part of the agent's message; `note`: of a message of ours, not of Claude.

    `calls`: in a note that says why Claude has begun a turn, the calls of whose ends it has heard.
    """

    message_id: str
    text: str
    note: bool = False
    calls: tuple[str, ...] | None = None


def note_event(message_id: str, words: str, calls: tuple[str, ...] | None = None) -> Text:
    """A message of ours with these words, between empty lines: clients join the messages of a turn."""
    return Text(message_id, f"\n\n{words}\n\n", note=True, calls=calls)


class Thinking(_Event, frozen=True, tag="thinking"):
    """A part of the agent's reasoning."""

    message_id: str
    text: str


class ToolStarted(_Event, frozen=True, tag="tool_started"):
    """A tool call; `input` is complete. `pending`: it is still being written, and the whole call
    replaces this report of it. `continues`: the call whose subagent goes on in this one.
    """

    tool_call_id: str
    name: str
    title: str
    tool_kind: ToolKind
    input: dict[str, Any] | None = None
    content: tuple[ToolPart, ...] = ()
    locations: tuple[Location, ...] = ()
    parent_id: str | None = None
    pending: bool = False
    continues: str | None = None


class ToolProgressed(_Event, frozen=True, tag="tool_progressed"):
    """What a tool that is still running has done so far; replaces what was shown of it before.

    `output`: what of `content` a command has written, for clients that have terminals. `title`:
    another one than before. `allowed`: the user was asked about the call and has allowed it, and
    `title` and `content`, though it may be empty, replace what clients showed with the question;
    `input` is then the one that was asked about, if it is another than the call's.
    """

    tool_call_id: str
    content: tuple[ToolPart, ...] = ()
    output: Output | None = None
    title: str | None = None
    allowed: bool = False
    input: dict[str, Any] | None = None


class ToolEnded(_Event, frozen=True, tag="tool_ended"):
    """End of a tool call; empty `content` and `locations` keep what was shown before, unless there is
    an `exit_code`, of a command, that is not 0, or a `reason`: why it has failed, for the user.
    `title`, `input`: another one than before. `background`: the call had gone on in the background,
    and Claude is told of its end. `told`: what Claude is told, where the content is a change.
    """

    tool_call_id: str
    status: Literal["completed", "failed"]
    content: tuple[ToolPart, ...] = ()
    exit_code: int | None = None
    locations: tuple[Location, ...] = ()
    reason: str | None = None
    title: str | None = None
    input: dict[str, Any] | None = None
    background: bool = False
    told: str = ""


class Usage(_Event, frozen=True, tag="usage"):
    """The context window: tokens used, its size, and the conversation's cost so far in
    US dollars.
    """

    used: int
    size: int
    cost: float | None = None


class PlanEntry(msgspec.Struct, frozen=True):
    """An entry of the agent's plan; `id`: Claude's own of the task, by which it changes it later."""

    content: str
    status: PlanStatus = "pending"
    id: str = ""


class Plan(_Event, frozen=True, tag="plan"):
    """The agent's plan; replaces an earlier one."""

    entries: tuple[PlanEntry, ...]


class ModeChanged(_Event, frozen=True, tag="mode_changed"):
    """The permission mode has changed, by whomever."""

    mode: str


class ConfigChanged(_Event, frozen=True, tag="config_changed"):
    """Mode or model has changed; with all choices."""

    selection: Selection


class TitleChanged(_Event, frozen=True, tag="title_changed"):
    """The title was set or changed.

    `by`: who made it, one of BY_WORDS, BY_CONTENT and BY_CLAUDE; empty: a person, or an earlier
    version, and then no other one replaces it. `at`: when the session was used last (ms since 1970), if that
    has changed with it; 0: it has not.
    """

    title: str
    by: str = ""
    at: int = 0


class Failure(_Event, frozen=True, tag="failure"):
    """A turn failed; text for the user."""

    message_id: str
    text: str
    error_kind: str


Event = (
    UserMessage
    | Text
    | Thinking
    | ToolStarted
    | ToolProgressed
    | ToolEnded
    | Usage
    | Plan
    | ModeChanged
    | ConfigChanged
    | TitleChanged
    | Failure
)

_decoder: Final[msgspec.json.Decoder[Event]] = msgspec.json.Decoder(Event)


def encode(event: Event) -> str:
    """Encode an event for its row."""
    return msgspec.json.encode(event).decode()


def size(event: Event) -> int:
    """Approximate size of the event's row in characters; a user's long text is not
    encoded for it.
    """
    if isinstance(event, UserMessage):
        return 100 + sum(len(value) for value in event.content.values() if isinstance(value, str))
    return len(encode(event))


def decode(payload: str | bytes) -> Event | None:
    """Decode the event of a row; None if the row is unreadable, or has what no client can be sent."""
    try:
        event = _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None
    return None if isinstance(event, UserMessage) and not readable(event.content) else event


def split_text(text: str, limit: int = MAX_TEXT) -> Iterator[str]:
    """Split text into parts of at most `limit` characters; an empty one is a part."""
    return (text[at : at + limit] for at in range(0, len(text) or 1, limit))


class _Open(NamedTuple):
    """A running call, as the log shows it; `asked`: clients show a request's title."""

    title: str
    content: tuple[ToolPart, ...]
    input: dict[str, Any] | None = None  # another one than it began with
    asked: bool = False


class OpenTools:
    """Running tool calls, in order, with what they show, as a fold over events."""

    def __init__(self) -> None:
        self._shown: dict[str, _Open] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._shown))

    @property
    def titles(self) -> dict[str, str]:
        """Their titles by their ids, the oldest first."""
        return {tool: call.title for tool, call in self._shown.items()}

    def follow(self, event: Event | None) -> None:
        """Apply the next event."""
        if isinstance(event, ToolStarted):
            self._shown[event.tool_call_id] = _Open(event.title, event.content)
        elif isinstance(event, ToolProgressed):
            if (call := self._shown.get(event.tool_call_id)) is not None:
                self._shown[event.tool_call_id] = _Open(
                    call.title if event.title is None else event.title,
                    event.content or call.content,
                    event.input or call.input,
                    call.asked and not event.allowed,
                )
        elif isinstance(event, ToolEnded):
            self._shown.pop(event.tool_call_id, None)

    def ask(self, tool_call_id: str, arguments: dict[str, Any] | None) -> None:
        """The user is asked about a call: clients show this input, and another title."""
        if (call := self._shown.get(tool_call_id)) is not None:
            self._shown[tool_call_id] = call._replace(input=arguments, asked=True)

    def failed(self, reason: str) -> list[Event]:
        """Ends for all of them, which keep what they show, but for what a request has put there."""
        return [
            ToolEnded(
                tool, "failed", call.content, reason=reason,
                title=call.title if call.asked else None, input=call.input,
            )
            for tool, call in self._shown.items()
        ]  # fmt: skip
