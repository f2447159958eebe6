"""Lists of sessions: what is asked for, and what a row says."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Archived(StrEnum):
    """Which sessions a list has; the values are ACP's."""

    EXCLUDE = "exclude"
    INCLUDE = "include"
    ONLY = "only"


class ListPosition(NamedTuple):
    """A session's place in a list: the newest first, of the same time the greatest id first."""

    updated_at: int
    session_id: str


@dataclass(frozen=True, slots=True)
class ListQuery:
    """At most `limit` sessions after a place; None: from the beginning.

    `cwds`: in one of these directories; None: in any. `hidden`: channels that are left out.
    `transcripts`: with sessions that exist as Claude's transcripts only.
    """

    limit: int
    after: ListPosition | None = None
    cwds: tuple[str, ...] | None = None
    archived: Archived = Archived.EXCLUDE
    hidden: Collection[str] = ()
    transcripts: bool = False


@dataclass(frozen=True, slots=True)
class ListedSession:
    """A session in a list; times are milliseconds since 1970.

    `conversation`: its name; None for a session that exists as Claude's transcript only. `cwd`: None
    as long as it is not known.
    """

    session_id: str
    conversation: str | None
    cwd: str | None
    updated_at: int
    title: str | None = None
    directories: tuple[str, ...] = ()
    archived: bool = False

    @property
    def place(self) -> ListPosition:
        """Where it is in a list."""
        return ListPosition(self.updated_at, self.session_id)
