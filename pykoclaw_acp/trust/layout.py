"""Where the CLI looks for what acts, seen from a session's directories."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pykoclaw_acp.system.paths import upwards
from pykoclaw_acp.trust.looking import Looking

_BARE: Final = ("HEAD", "objects", "refs")  # by which git takes a directory for a repository


@dataclass(frozen=True, slots=True)
class DirectoryLayout:
    """A directory that is trusted or not, and the directories in which the CLI looks because of it.

    `shared`: where it reads `.claude/settings.json`; `own`: `.claude/settings.local.json`;
    `servers`: `.mcp.json`; `folders`: `.claude` with agents, skills and commands; `below`: these
    count in all directories below as well; `repositories`: git directories. `added`: a further
    directory of the session, of whose settings only plugins count.
    """

    path: str
    shared: tuple[str, ...]
    own: tuple[str, ...]
    servers: tuple[str, ...]
    folders: tuple[str, ...]
    repositories: tuple[str, ...] = ()
    added: bool = False
    below: bool = False

    @property
    def roots(self) -> tuple[str, ...]:
        """Directories in which the programs that it names are its own."""
        return tuple(dict.fromkeys((self.path, *self.shared, *self.own)))


def places(
    looking: Looking, cwd: str | None, directories: Sequence[str], sources: Sequence[str]
) -> list[DirectoryLayout]:
    """The session's directory, if one is given, then its further ones; all paths, also those given,
    are without symbolic links.

    Measured with CLI 2.1.327: `.mcp.json`, agents, skills and commands count in each directory
    above as well, skills also in each directory below as soon as a file there is read,
    `settings.json` in the directory itself, `settings.local.json` also in the root of the git
    checkout, and where that is a worktree, in the main checkout.
    """
    if not {"project", "local"} & set(sources):
        return []
    project, local = "project" in sources, "local" in sources
    found = [] if cwd is None else [_of_session(looking, cwd, project=project, local=local)]
    added = dict.fromkeys(directories if project else ())
    for one in found:
        added.pop(one.path, None)
    more = [
        DirectoryLayout(
            path,
            (path,),
            (path,) if local else (),
            (),
            (path,),
            _repositories(looking, upwards(path)),
            added=True,
            below=True,
        )
        for path in added
    ]
    return [*found, *more]


def config_home() -> str:
    """The user's own `.claude`, which needs no trust."""
    return os.path.realpath(os.environ.get("CLAUDE_CONFIG_DIR") or os.path.expanduser("~/.claude"))


def _of_session(looking: Looking, here: str, *, project: bool, local: bool) -> DirectoryLayout:
    above = [path for path in upwards(here) if path != "/"]
    checkouts = _checkouts(looking, above)
    return DirectoryLayout(
        path=here,
        shared=(here,) if project else (),
        own=tuple(dict.fromkeys((here, *checkouts))) if local else (),
        servers=tuple(above) if project else (),
        folders=tuple(dict.fromkeys((*above, *checkouts))) if project else (),
        repositories=_repositories(looking, above),
        below=project,
    )


def _checkouts(looking: Looking, above: Sequence[str]) -> list[str]:
    """The root of the git checkout, and that of the main one if it is a worktree."""
    for directory in above:
        git = os.path.join(directory, ".git")
        kind = looking.kind(git)
        if kind == stat.S_IFDIR:
            return [directory]
        if kind:
            main = _main_checkout(looking, directory, git)
            return [directory] if main is None else [directory, main]
    return []


def _repositories(looking: Looking, above: Sequence[str]) -> tuple[str, ...]:
    """The git directory, and the common one of a worktree."""
    for directory in above:
        if all(looking.kind(os.path.join(directory, one)) for one in _BARE):
            return (directory,)
        git = os.path.join(directory, ".git")
        kind = looking.kind(git)
        if kind == stat.S_IFDIR:
            return (git,)
        if kind:
            folder = _pointed(looking, directory, git)
            common = None if folder is None else _common(looking, folder)
            return tuple(one for one in (folder, common) if one is not None)
    return ()


def _main_checkout(looking: Looking, directory: str, git: str) -> str | None:
    folder = _pointed(looking, directory, git)
    shared = None if folder is None else _common(looking, folder)
    if shared is None or os.path.basename(shared) != ".git":
        return None
    return os.path.dirname(shared)


def _pointed(looking: Looking, directory: str, git: str) -> str | None:
    """Where a `.git` that is a file leads to."""
    pointer = looking.read(git)
    if pointer is None or pointer.data is None or not pointer.data.startswith(b"gitdir:"):
        return None
    folder = os.path.join(directory, os.fsdecode(pointer.data.removeprefix(b"gitdir:").strip()))
    return None if "\0" in folder else folder


def _common(looking: Looking, folder: str) -> str | None:
    """The common directory that a git directory of a worktree names."""
    common = looking.read(os.path.join(folder, "commondir"))
    if common is None or common.data is None or b"\0" in common.data:
        return None
    return os.path.realpath(os.path.join(folder, os.fsdecode(common.data.strip())))
