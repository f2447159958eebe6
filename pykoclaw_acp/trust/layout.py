"""Where the CLI looks for what acts, seen from a session's directories."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from pykoclaw_acp.system.paths import upwards
from pykoclaw_acp.trust.looking import Looking

_HEAD: Final = re.compile(rb"ref:\s*refs/|[0-9a-f]{40}", re.IGNORECASE)


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
    checkout, and where that is a worktree, in the main checkout. Git reads its configuration
    whatever `sources` are.
    """
    project, local = "project" in sources, "local" in sources
    found = [] if cwd is None else [_of_session(looking, cwd, project=project, local=local)]
    added = dict.fromkeys(directories)
    for one in found:
        added.pop(one.path, None)
    more = [
        DirectoryLayout(
            path,
            (path,) if project else (),
            (path,) if project and local else (),
            (),
            (path,) if project else (),
            _repositories(looking, upwards(path)),
            added=True,
            below=project,
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
        repositories=_repositories(looking, upwards(here)),
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
    """Git directories in which git may look for its configuration, and their common ones: up to the
    first that git takes for one whatever its version.
    """
    found: dict[str, None] = {}
    for directory in above:
        git = os.path.join(directory, ".git")
        kind = looking.kind(git)
        folder = git if kind == stat.S_IFDIR and not _is_closed(git) else None
        if kind and kind != stat.S_IFDIR:
            folder = _named(looking, git, b"gitdir: ", directory)
        for one in (folder, directory):  # in git's order
            if one is None:
                continue
            pointer = os.path.join(one, "commondir")
            common = _named(looking, pointer, b"", one) or one
            parts = [os.path.join(common, name) for name in ("objects", "refs")]
            # What cannot be looked at may be anything, so each part is looked at.
            head = os.path.join(one, "HEAD")
            kinds = [looking.kind(path) for path in (head, *parts)]
            # Git takes a link for a HEAD wherever it leads.
            is_headed = kinds[0] or os.path.islink(head)
            if one == folder or (is_headed and (looking.kind(pointer) or all(kinds[1:]))):
                found |= dict.fromkeys((one, common))
            if kinds[1:] == [stat.S_IFDIR] * 2 and _has_head(looking, one):
                return tuple(found)
    return tuple(found)


def _is_closed(folder: str) -> bool:
    """Whether git passes over the directory, as another user has closed it to ours."""
    try:
        return os.stat(folder).st_uid != os.geteuid() and not os.access(folder, os.X_OK)
    except OSError:
        return False


def _has_head(looking: Looking, folder: str) -> bool:
    """Whether git is content with the repository's HEAD; it has rules of its own for links."""
    path = os.path.join(folder, "HEAD")
    head = None if os.path.islink(path) else looking.read(path)
    return head is not None and head.data is not None and _HEAD.match(head.data) is not None


def _named(looking: Looking, path: str, before: bytes, base: str) -> str | None:
    """The directory that a file of git's names after these words, as git reads it."""
    file = looking.read(path)
    if file is None or file.data is None or not file.data.startswith(before):
        return None
    name = file.data.removeprefix(before).rstrip(b"\r\n").partition(b"\0")[0]
    return os.path.realpath(os.path.join(base, os.fsdecode(name))) if name else None


def _main_checkout(looking: Looking, directory: str, git: str) -> str | None:
    """The main checkout of a worktree, as the CLI reads its files."""
    pointer = looking.read(git)
    if pointer is None or pointer.data is None or not pointer.data.startswith(b"gitdir:"):
        return None
    folder = os.path.join(directory, os.fsdecode(pointer.data.removeprefix(b"gitdir:").strip()))
    common = looking.read(os.path.join(folder, "commondir")) if "\0" not in folder else None
    if common is None or common.data is None or b"\0" in common.data:
        return None
    shared = os.path.realpath(os.path.join(folder, os.fsdecode(common.data.strip())))
    return os.path.dirname(shared) if os.path.basename(shared) == ".git" else None
