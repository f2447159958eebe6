"""What transcripts hold of a session, and what was imported of it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pykoclaw_acp.model.events import Event, UserMessage
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.prompt_text import Note
from pykoclaw_acp.model.scheduled import ORIGIN


class RowStanding(StrEnum):
    """How the Claude session that a conversation's row names relates to what its session's log
    holds.
    """

    SAME = "same"
    """The Claude session that the session follows; its newest turn is one of ours."""
    MOVED_ON = "moved_on"
    """Another program has continued it, under its id or under another one that holds its history: its
    newest turn is not ours, or a command follows that; or our worker continues another Claude session."""
    SIDE = "side"
    """Another Claude session, which does not hold the session's history."""
    MISSING = "missing"
    """No transcript is found for it."""


class Side(StrEnum):
    """Whose turns Claude lacks, if two programs have run turns at once."""

    HERE = "here"
    """Turns of this session: Claude goes on from those of another program."""
    THERE = "there"
    """Turns of other programs: Claude goes on from this session's."""
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Imported:
    """What a look at a session's transcripts has found.

    `logged`: events that are in the log from now on, in order; subscribers have not got them yet. If
    they are many, only the newest ones are here.
    `digest`: what another branch or Claude session holds and the followed one lacks, as bounded
    text for Claude; None if there is nothing new of that kind. `digest_id`: the same one for the
    same turns, so that a note which is added twice is one note. `lacks`: whose turns these are;
    `undecided`: if a CLI of ours still lives, its end decides anew which these are.
    `followed`: the Claude session that holds the conversation's history, to be resumed from; None if
    there is none yet. `complete`: False if a transcript could not be read to its end for now.
    `title`: that a person has given the session there, if it has changed; `title_is_new`: since the
    look before, and not before the first one. `replaced`: a transcript is gone, another file, or
    shorter than at the look before. `resumable`: False if `followed` has no transcript.
    """

    standing: RowStanding
    logged: list[Logged] = field(default_factory=list)
    digest: str | None = None
    digest_id: str | None = None
    followed: str | None = None
    complete: bool = True
    title: str | None = None
    title_is_new: bool = False
    replaced: bool = False
    resumable: bool = True
    lacks: Side = Side.THERE
    undecided: bool = False

    @property
    def notes(self) -> list[Note]:
        """What Claude lacks. Until the next look, an unchanged digest has the id that it had."""
        if self.digest is None or self.digest_id is None:
            return []
        return [Note(self.digest_id, self.digest)]


@dataclass(frozen=True, slots=True)
class TranscriptRow:
    """A transcript of a session, and up to where it was imported."""

    claude_session_id: str
    path: str
    size: int
    mtime: int
    inode: int
    read_upto: int
    state: str
    head: str | None
    related: bool


@dataclass(frozen=True, slots=True)
class TranscriptTurn:
    """A turn in a transcript; `last_uuid`: of the newest entry that was imported of it; `parent`: the
    newest turn before it that its branch has with the answer.

    `told`: Claude need not be told of it. `told_in`: the turn whose prompt told Claude of it, None if
    that is not known or yet to come.
    """

    uuid: str
    claude_session_id: str
    parent: str | None = None
    own: bool = False
    last_uuid: str | None = None
    told: bool = False
    told_in: str | None = None


@dataclass(frozen=True, slots=True)
class ImportedPiece:
    """A piece of a transcript, committed whole: its events, each with its source, its turns, and the
    row of the transcript after it.

    `last`: the newest entry of turns, also of earlier ones. Claude has to be told of these, unless
    `told`. `parents`: new ones of turns, also of earlier ones. `rewound`: turns that the user has rewound
    in another program; Claude is told again what it was told with their prompts. `written_at`: when the
    transcript was last written, in ms since 1970.
    """

    row: TranscriptRow
    events: Sequence[tuple[str, Event]] = ()
    turns: Sequence[TranscriptTurn] = ()
    last: dict[str, str] = field(default_factory=dict)
    parents: dict[str, str | None] = field(default_factory=dict)
    told: bool = False
    rewound: Collection[str] = ()
    written_at: int = 0

    @property
    def has_persons_prompt(self) -> bool:
        """Whether a person has prompted through another program; a scheduled task is none."""
        return any(isinstance(one, UserMessage) and one.origin != ORIGIN for _, one in self.events)


@dataclass(frozen=True, slots=True)
class KnownTranscripts:
    """What is known of a session's transcripts; `has_turns`: it has run turns of its own."""

    followed: str | None
    rows: dict[str, TranscriptRow]
    has_turns: bool


def rewound(
    parents: Mapping[str, str | None], rewinds: Collection[tuple[str, str | None]]
) -> set[str]:
    """The turns that Claude has forgotten by rewinds, each from the newest turn to the one that stays."""
    gone: set[str] = set()
    for newest, kept in rewinds:
        before = chain(parents, newest)
        if kept is None or kept in before:
            gone |= before - chain(parents, kept)
    return gone


def chain(parents: Mapping[str, str | None], head: str | None) -> set[str]:
    """The turns that lead to `head`, with it; `parents`: of each turn."""
    found: set[str] = set()
    while head is not None and head in parents and head not in found:
        found.add(head)
        head = parents[head]
    return found
