"""Where the CLI looks for what acts, seen from a session's directories."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass

from pykoclaw_acp.system.paths import upwards
from pykoclaw_acp.trust.looking import Looking


@dataclass(frozen=True, slots=True)
class DirectoryLayout:
    """A directory that is trusted or not, and the directories in which the CLI looks because of it.

    `shared`: where it reads `.claude/settings.json`; `own`: `.claude/settings.local.json`;
    `servers`: `.mcp.json`; `folders`: `.claude` with agents, skills and commands; `below`: these
    count in all directories below as well. `added`: a further directory of the session, of whose
    settings only plugins count.
    """

    path: str
    shared: tuple[str, ...]
    own: tuple[str, ...]
    servers: tuple[str, ...]
    folders: tuple[str, ...]
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
            path, (path,), (path,) if local else (), (), (path,), added=True, below=True
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


def _main_checkout(looking: Looking, directory: str, git: str) -> str | None:
    pointer = looking.read(git)
    if pointer is None or pointer.data is None or not pointer.data.startswith(b"gitdir:"):
        return None
    folder = os.path.join(directory, os.fsdecode(pointer.data.removeprefix(b"gitdir:").strip()))
    common = looking.read(os.path.join(folder, "commondir")) if "\0" not in folder else None
    if common is None or common.data is None or b"\0" in common.data:
        return None
    shared = os.path.realpath(os.path.join(folder, os.fsdecode(common.data.strip())))
    return os.path.dirname(shared) if os.path.basename(shared) == ".git" else None
