"""What the server and its reading process say to each other: JSON lines on a socket."""

from __future__ import annotations

from typing import Final

import msgspec

from pykoclaw_acp.model.events import Event

MAX_LINE: Final = 64 * 1024 * 1024  # bytes; the parent is not made to keep more


class Scan(msgspec.Struct, tag="scan", omit_defaults=True):
    """Read a transcript on from `offset`, with the `state` that came with it.

    Turns whose prompts are in `own`, and those that Claude began by itself in which one of
    `own_messages` (ids of messages, tool calls and entries) occurs, are left out. Of a turn in `known`, what
    follows the entry named there is read. `hold`: one that Claude began by itself may be ours if
    none of these occurs.
    """

    path: str
    cwd: str
    offset: int = 0
    state: str = ""
    own: list[str] = []
    own_messages: list[str] = []
    known: dict[str, str] = {}
    hold: bool = False
    upto: int | None = None
    """Size of the file when it was looked at; None: now."""
    anew: bool = False
    """The look began at the beginning of the file, maybe in a process that has died."""
    careful: bool = False
    """A piece for each line, so that one which ends the process is known by its place."""
    skip_first: bool = False
    """The first line has ended the process."""
    rewinds: bool = True
    """Rewinds that are noted here count: the session continues this Claude session."""
    only: str | None = None
    """Entries that name another Claude session are left out; None: they are not."""
    plans: str = ""
    """The directory of Claude's plans, which are not shown as files."""


class Digest(msgspec.Struct, tag="digest", omit_defaults=True):
    """Sum up these turns, by transcript."""

    turns: list[tuple[str, list[str]]]


class SeenTurn(msgspec.Struct, omit_defaults=True):
    """A turn whose prompt was read; `parent`: the turn that it follows."""

    uuid: str
    parent: str | None = None
    own: bool = False
    background: bool = False
    cwd: str | None = None


class Piece(msgspec.Struct, tag="piece", omit_defaults=True):
    """What lies before `offset`, since the piece before this one.

    `events`: each with its source, unique in the transcript; the origin of a user's message is the
    program, as its entry names it. `last`: newest entry of each turn of others. `parents`: turns that
    do not have all of the turn that they continue, and after which turn they have everything.
    `rewinds`: of each rewind that another program did, the newest turn before it, and the newest one
    that stays. `head`: the turn that Claude goes on from. `done`: nothing follows for now.
    """

    offset: int
    state: str = ""
    events: list[tuple[str, str, Event]] = []
    """Turn, source, event."""
    turns: list[SeenTurn] = []
    last: dict[str, str] = {}
    parents: dict[str, str | None] = {}
    rewinds: list[tuple[str, str | None]] = []
    head: str | None = None
    done: bool = False
    title: str | None = None
    """Title that a person gave the session. Claude repeats it; only a new one counts."""


class DigestText(msgspec.Struct, tag="text"):
    """The answer to `Digest`."""

    text: str


class Survey(msgspec.Struct, tag="survey"):
    """Which of the folders of `projects` are not as their digests say."""

    projects: str
    folders: dict[str, str]


class Folders(msgspec.Struct, tag="folders"):
    """The answer to `Survey`; `gone`: those that were named and are not there."""

    every: list[str]
    changed: list[str]
    gone: list[str]


class Compare(msgspec.Struct, tag="compare"):
    """What of a folder's transcripts is new; `known`: size and time by name. `helpers`: how prompts
    begin that are a client's own.
    """

    folder: str
    known: dict[str, str]
    helpers: tuple[str, ...] = ()


class Examine(msgspec.Struct, tag="examine"):
    """What this transcript says of itself; `helpers` as in Compare."""

    path: str
    helpers: tuple[str, ...] = ()


class Examined(msgspec.Struct, omit_defaults=True):
    """A transcript, as in `model.found_transcripts.FoundTranscript`; `words`: texts of its first prompt.
    `mode`: only in the answer to `Examine`.
    """

    path: str
    claude_session_id: str
    size: int
    mtime: int
    cwd: str | None = None
    title: str | None = None
    words: list[str] = []
    updated_at: int = 0
    prompted: bool = False
    mode: str | None = None


class FolderChanges(msgspec.Struct, tag="found", omit_defaults=True):
    """Transcripts that are new or have changed, and names that are gone; `digest`: of the folder;
    `unread`: a transcript that cannot be read, and why.
    """

    transcripts: list[Examined]
    gone: list[str] = []
    digest: str = ""
    done: bool = False
    unread: str = ""


class UnreadableTranscript(msgspec.Struct, tag="failed"):
    """The file or the folder cannot be read."""

    error: str


ReaderRequest = Scan | Digest | Survey | Compare | Examine
ReaderAnswer = Piece | DigestText | Folders | FolderChanges | UnreadableTranscript
requests: Final = msgspec.json.Decoder[ReaderRequest](ReaderRequest)
answers: Final = msgspec.json.Decoder[ReaderAnswer](ReaderAnswer)
