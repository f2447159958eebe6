"""Roots: where the transcripts of each account are."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import Final, TypeVar

from pykoclaw_acp.errors import InternalError
from pykoclaw_acp.model import session_environment
from pykoclaw_acp.system import disks
from pykoclaw_acp.system import transcript_files as files

T = TypeVar("T")

SILENT: Final = "Claude's transcripts in {} cannot be looked at: their disk does not answer."


class Roots:
    """The folders with one folder for each project: that of Claude's own configuration, `projects`,
    and one of each account in the directory `accounts`; empty: there are none.
    """

    def __init__(self, projects: str | None = None, accounts: str = "") -> None:
        self._projects = files.folder() if projects is None else projects
        self._accounts = accounts

    @property
    def own(self) -> str:
        """The folder of Claude's own configuration."""
        return self._projects

    async def call(self, function: Callable[[], T]) -> T:
        """The result of a blocking function that looks at what is below the roots; raises
        InternalError if their disk does not answer.
        """
        try:
            return await disks.call(self._projects, function)
        except TimeoutError as error:
            raise InternalError(SILENT.format(self._projects)) from error

    def every(self) -> dict[str, str]:
        """The folder of each account that there is now; the one of Claude's own comes first."""
        found = {"": self._projects}
        if self._accounts:
            with contextlib.suppress(OSError), os.scandir(self._accounts) as places:
                for place in sorted(places, key=lambda one: one.name):
                    if session_environment.is_account(place.name) and _may_be_directory(place):
                        found[place.name] = files.projects(place.path)
        return found

    def account(self, path: str) -> str:
        """The account that a transcript belongs to."""
        inside = os.path.join(self._accounts, "") if self._accounts else None
        if inside is None or not path.startswith(inside):
            return ""
        return path.removeprefix(inside).partition("/")[0]

    def find(self, claude_session_id: str) -> str | None:
        """The transcript of a Claude session, of whatever account; the newest one if there are
        several.
        """
        found = (files.find(root, claude_session_id) for root in self.every().values())
        return max((one for one in found if one is not None), key=_age, default=None)

    def unsearchable(self, claude_session_id: str) -> list[str]:
        """The folders that cannot be searched for the transcript; one that does not exist holds
        nothing.
        """
        accounts = [] if self._accounts_are_known() else [self._accounts]
        every = (files.unsearchable(root, claude_session_id) for root in self.every().values())
        return [*accounts, *(path for paths in every for path in paths)]

    def _accounts_are_known(self) -> bool:
        try:
            if self._accounts:
                os.scandir(self._accounts).close()
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def to_watch(self) -> set[str]:
        """What changes when a project, or an account, is new."""
        found = {
            root for account, root in self.every().items() if not account or os.path.isdir(root)
        }
        return found | (
            {self._accounts} if self._accounts and os.path.isdir(self._accounts) else set()
        )


def _may_be_directory(place: os.DirEntry[str]) -> bool:
    try:
        return place.is_dir()
    except OSError:  # it hides none of the others
        return True


def _age(path: str) -> int:
    seen = files.look(path)
    return 0 if seen is None else seen.mtime
