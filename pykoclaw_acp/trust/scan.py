"""Everything in a session's directories that acts or redirects in what the CLI reads of them, and
its fingerprint.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from pykoclaw_acp.model.permissions import Workspace
from pykoclaw_acp.model.trust import MAX_FILES
from pykoclaw_acp.neutral import neutral
from pykoclaw_acp.trust import below, gitconfig, markdown, programs, settings
from pykoclaw_acp.trust.content import Content
from pykoclaw_acp.trust.layout import DirectoryLayout, config_home, places
from pykoclaw_acp.trust.listed import MAX_FOUND, shown, text
from pykoclaw_acp.trust.looking import MAX_TIME, Looking, ReadFile, same

MAX_TEXT: Final = 256 * 1024  # characters of commands, in one file
MAX_WORDS: Final = 5000  # different words of commands that are looked at as paths, in one file
DIGEST: Final = 16  # characters of a file's digest that are kept, to say what has changed
MAX_ENTERED: Final = (
    20  # directories that the commands of a file enter, in which programs are looked for
)
# Of what is in `.claude`: the files of these say what the CLI runs, or when.
_ALWAYS: Final = ("workflows", "routines", "scheduled_tasks.json", "launch.json", "plugins")
_ASK_GIT: Final = "Bash(git:*)"  # without trust: git cannot run without its configuration
# A skill with one of these is a plugin.
_PLUGIN: Final = frozenset(
    {
        ".claude-plugin", ".mcp.json", ".lsp.json", "hooks", "monitors", "agents", "commands", "workflows",
    }
)  # fmt: skip


def scan(cwd: str | None, directories: Sequence[str], sources: Sequence[str]) -> Content:
    """Look at the directories, without `cwd` at the further ones alone; `sources`: setting sources
    that count.
    """
    own = config_home()
    resolved = {path: os.path.realpath(path) for path in (cwd, *directories) if path is not None}
    here = None if cwd is None else resolved[cwd]
    looking = Looking(next(iter(resolved.values()), "/"))
    session = places(looking, here, [resolved[path] for path in directories], sources)
    deep = {
        place.path: below.find(place.path, own, below.MAX_DIRECTORIES, looking.until)
        for place in session
        if place.below
    }
    restrictions: dict[str, list[str]] = {}
    found = [_look(looking, place, own, deep.get(place.path), restrictions) for place in session]
    return Content(
        tuple(one for one in found if one.found),
        looking.stamps,
        deep,
        resolved,
        {kind: tuple(dict.fromkeys(rules)) for kind, rules in restrictions.items()},
    )


def unchanged(content: Content) -> bool:
    """Whether the directories are as they were; where there are many below, only what was found in
    them is compared.
    """
    if any(os.path.realpath(path) != real for path, real in content.resolved.items()):
        return False
    if not same(content.stamps):
        return False
    own, until = config_home(), time.monotonic() + MAX_TIME
    return all(
        before.limit or before.many or below.find(path, own, below.QUICK, until) == before
        for path, before in content.below.items()
    )


def _look(
    looking: Looking,
    place: DirectoryLayout,
    own: str,
    deep: below.Below | None,
    restrictions: dict[str, list[str]],
) -> Workspace:
    """What acts in the place; its restrictions are added to those."""
    one = _Scan(looking, place, own, deep, restrictions)
    one.run()
    found = [neutral(text(line)) for line in one.found]
    if looking.limit:
        found.append(neutral(text(f"not everything was examined: {looking.limit}")))
    listed = shown(found, one.more)
    # What nobody was shown whole is not remembered as trusted.
    seen = not (one.unread or looking.limit) and not (deep is not None and deep.limit)
    whole = listed == found and seen
    content = one.fingerprint if whole else ""
    files = one.digests if content else {}
    return Workspace(text(place.path), content, tuple(listed), files)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class _Scan:
    """One place."""

    def __init__(
        self,
        looking: Looking,
        place: DirectoryLayout,
        own: str,
        deep: below.Below | None,
        restrictions: dict[str, list[str]],
    ) -> None:
        self.found: list[str] = []  # one line more than is listed, at most
        self.more = 0  # further lines
        self.unread: list[ReadFile] = []  # files that may say anything
        self._restrictions = restrictions
        self._looking = looking
        self._place = place
        self._own = own
        self._below = deep or below.Below(())
        self._files: dict[str, str] = {}  # digests by path, of what acts

    @property
    def fingerprint(self) -> str:
        said = "".join(f"{path}\0{digest}\0" for path, digest in sorted(self._files.items()))
        return _digest(said.encode("utf-8", "surrogateescape"))

    @property
    def digests(self) -> dict[str, str]:
        """The files by their names for people; empty if there are too many to keep."""
        if len(self._files) > MAX_FILES:
            return {}
        here = self._place.path
        return {
            text(os.path.relpath(path, here)): digest[:DIGEST]
            for path, digest in sorted(self._files.items())
        }

    def run(self) -> None:
        place = self._place
        for name, directories in (
            ("settings.json", place.shared),
            ("settings.local.json", place.own),
        ):
            for directory in self._with_folder(directories):
                path = os.path.join(directory, ".claude", name)
                self._take(path, directory, partial(self._of_settings, directory=directory))
        for directory in place.servers:
            self._take(os.path.join(directory, ".mcp.json"), directory, settings.of_mcp)
        for folder in place.repositories:
            self._repository(folder)
        deep = self._below
        if deep.limit:  # how far one came depends on the disk
            self._say(
                place.path,
                [
                    f"may have skills in directories below, which act and are not shown: {deep.limit}"
                ],
                "",
            )
        holders = () if deep.limit else deep.holders
        for directory in self._with_folder(dict.fromkeys((*place.folders, *holders))):
            self._folder(os.path.join(directory, ".claude"), directory)
        for file in self.unread:  # last, where a command that refuses to trust finds the reason
            self._say(file.path, [file.trouble], file.digest)

    def _repository(self, folder: str) -> None:
        """What git runs by itself; of the configuration, which git changes often, only that counts."""
        hooks = [os.path.join(folder, "hooks")]
        for name in ("commondir", "config", "config.worktree"):
            path = os.path.join(folder, name)
            if (file := self._looking.read(path)) is None:
                continue
            if file.data is None:
                self.unread.append(file)
                self._restrictions.setdefault("ask", []).append(_ASK_GIT)
                continue
            if name == "commondir":  # the layout has where it leads
                continue
            try:
                acting = gitconfig.acting(file.data)
                found = texts = [gitconfig.words(*one) for one in acting]
                digest = _digest(repr(acting).encode())  # of what is run, not of how it is shown
            except ValueError:
                found, digest = [settings.UNCLEAR], file.digest
                texts = [file.data.decode("utf-8", "replace")]
            if found:
                self._say(path, found, digest)
                self._programs(iter(texts), folder)
                self._restrictions.setdefault("ask", []).append(_ASK_GIT)
            for one in gitconfig.hooks(file.data):
                roots = (os.path.dirname(folder), *self._place.roots)
                hooks += [os.path.join(root, os.path.expanduser(one)) for root in roots]
        for one in dict.fromkeys(hooks):
            hook = os.path.join(one, "post-index-change")  # run by `git status`
            if "\0" not in hook and (file := self._looking.read(hook)) is not None:
                self._say(hook, ["is run by git"], file.digest)
                self._restrictions.setdefault("ask", []).append(_ASK_GIT)

    def _with_folder(self, directories: Iterable[str]) -> Iterator[str]:
        """Yield the directories whose `.claude` is not the user's own."""
        for directory in directories:
            folder = os.path.join(directory, ".claude")
            if self._looking.kind(folder) and os.path.realpath(folder) != self._own:
                yield directory

    # --- files of settings

    def _take(self, path: str, directory: str, words: Any) -> None:
        file = self._looking.read(path)
        if file is None:
            return
        if file.data is None:
            self.unread.append(file)
            return
        try:
            value = settings.parse(file.data)
            found = words(value)
            acting = {name: one for name, one in value.items() if name != "permissions"}
            texts = settings.strings(acting)
        except (settings.Unreadable, RecursionError):  # the CLI may understand it
            found = [settings.UNCLEAR]
            said = file.data.decode("utf-8", "replace")
            texts = iter((said, programs.in_one_line(said)))
        if found:
            self._say(path, found, file.digest)
            self._programs(texts, directory)
            self._programs_in(os.path.join(directory, ".claude", "hooks"))

    def _of_settings(self, value: dict[str, Any], directory: str) -> list[str]:
        """What a settings file does; its rules that allow nothing are noted."""
        if self._place.added:
            return settings.of_settings(value, settings.PLUGINS)
        for kind, rules in settings.restrictions(value, directory).items():
            self._restrictions.setdefault(kind, []).extend(rules)
        return settings.of_settings(value)

    def _say(self, path: str, found: Sequence[str], digest: str) -> None:
        self._files[path] = digest
        shown = os.path.relpath(path, self._place.path)
        kept = found[: MAX_FOUND + 1 - len(self.found)]
        self.found.extend(f"{shown}: {one}" for one in kept)
        self.more += len(found) - len(kept)

    def _programs(self, texts: Iterator[str], *directories: str) -> None:
        """Files of the workspace that are named in commands belong to what acts."""
        words: dict[str, None] = {}
        left = MAX_TEXT
        for one in texts:
            words |= programs.words(one[:left])
            left -= len(one)
            if left < 0 or len(words) > MAX_WORDS:
                self._looking.limit = "a file too long to find all programs that it names"
                break
        roots = (*directories, *self._place.roots)
        entered: dict[str, None] = {}  # by `cd`, or given to a program that runs what is there
        bases, looked = list(roots), 0
        while bases:
            for word in list(words)[:MAX_WORDS]:
                if self._looking.note_if_late():
                    return
                for path in programs.paths(word, bases, roots):
                    if stat.S_ISDIR(self._looking.kind(path)):
                        entered[path] = None
                    else:
                        self._program(path)
            bases = list(entered)[looked:MAX_ENTERED]
            looked += len(bases)
        for path in entered:
            if f"{path}/".startswith(tuple(f"{root.rstrip('/')}/.claude/" for root in roots)):
                self._programs_in(path)

    def _programs_in(self, folder: str) -> None:
        for path in self._looking.files(folder):
            if programs.is_program(path):
                self._program(path)

    def _program(self, path: str) -> None:
        if not stat.S_ISREG(self._looking.kind(path)) or path in self._files:
            return
        if (file := self._looking.read(path)) is not None:
            self._files[path] = file.digest

    # --- agents, skills, commands

    def _folder(self, folder: str, directory: str) -> None:
        for name in ("agents", "commands"):
            for path in self._looking.files(os.path.join(folder, name)):
                if path.lower().endswith(".md"):
                    self._markdown(path, directory)
        self._skills(os.path.join(folder, "skills"), directory)
        for name in _ALWAYS:
            path = os.path.join(folder, name)
            whole = (
                self._looking.files(path)
                if stat.S_ISDIR(self._looking.kind(path))
                else iter((path,))
            )
            for one in whole:
                if (file := self._looking.read(one)) is None:
                    continue
                if file.data is None:
                    self.unread.append(file)
                else:
                    self._say(one, ["defines what Claude runs"], file.digest)

    def _skills(self, folder: str, directory: str) -> None:
        skills: dict[str, list[str]] = {}
        for path in self._looking.files(folder):
            top = os.path.relpath(path, folder).split(os.sep)[0]
            skills.setdefault(os.path.join(folder, top), []).append(path)
        for skill, files in skills.items():
            parts = {
                part for path in files for part in os.path.relpath(path, skill).split(os.sep)[:1]
            }
            plugin = sorted(parts & _PLUGIN)
            if plugin:
                self._say(skill, [f"is a plugin: it has {', '.join(plugin)}"], "")
            heads = [path for path in files if path.lower().endswith(".md")]
            acts = [
                path for path in heads if self._markdown(path, directory, os.path.dirname(path))
            ]
            for path in files if plugin or acts else ():
                if (file := self._looking.read(path)) is not None:
                    self._files[path] = file.digest

    def _markdown(self, path: str, *directories: str) -> bool:
        file = self._looking.read(path)
        if file is None:
            return False
        if file.data is None:
            self.unread.append(file)
            return True
        found = markdown.acting(file.data)
        if "!" in path:  # which the CLI may put before a backtick, where it begins a shell command
            found.append("has an exclamation mark in its path")
        if found:
            self._say(path, found, file.digest)
            said = file.data.decode("utf-8", "replace")
            launched = programs.in_one_line(markdown.head(said))
            self._programs(iter((said, launched)), *directories)
        return bool(found)
