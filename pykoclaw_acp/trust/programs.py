"""Programs of a workspace that a command names, as far as the command's words say it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

_BETWEEN: Final = re.compile(r"""[\s;|&()<>"'`=,]+""")
_QUOTED: Final = re.compile(r""""([^"]+)"|'([^']+)'""")
_MODULE: Final = re.compile(r"\s-m\s+([\w.]+)")
_VARIABLE: Final = re.compile(r"\$\{\w++(?::?[-=+?])?|\$\w++|\}")
"""A variable, up to what stands in its place if it is not set."""
_NAMED: Final = re.compile(r"\$(?:CLAUDE_PROJECT_DIR|PWD)\b")
# What does not end is matched, too (group 1), lest each beginning in it be tried.
_PROJECT: Final = re.compile(rf"{_NAMED.pattern}|\$\{{(?:CLAUDE_PROJECT_DIR|PWD)[^}}]*+(?:\}}|())")
_SKILL: Final = re.compile(r"\$\{?CLAUDE_(?:SKILL_DIR|PLUGIN_ROOT)\b\}?")
_RUN: Final = re.compile(
    r"(?:^|[\s;&|(\"'])(?:node|bun|deno|tsx|ts-node|python[\d.]*|ruby|perl)\s+(?:run\s+|-\S+\s+)*([^\s;&|]+)"
)
"""An interpreter and what it runs."""
_ENDS: Final = (".js", ".mjs", ".cjs", ".ts", ".py", "/index.js", "/__main__.py")
"""What may be left out of a program's path where it is run."""
KINDS: Final = (
    *(".sh", ".bash", ".zsh", ".fish", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".ps1"),
    *(".bat", ".cmd"),
)
"""Endings of programs' names."""
LONGEST: Final = 1024  # characters of a path


def words(command: str) -> dict[str, None]:
    """What may be a path in a command, however it is quoted."""
    bare = command.replace('"', "").replace("'", "")
    quoted = [found[1] or found[2] for found in _QUOTED.finditer(command)]
    found = [command, *quoted, *_BETWEEN.split(bare), *_BETWEEN.split(command)]
    if "\\" in bare:
        found += _BETWEEN.split(bare.replace("\\", ""))
    run = [name.replace(".", "/") for name in _MODULE.findall(command)]
    run += [name.rstrip("/") for name in _RUN.findall(bare)]
    found += [name + end for name in run for end in _ENDS]
    found += [part for word in found if "$" in word for part in _VARIABLE.split(word)]
    return dict.fromkeys(word for word in found if word)


def is_program(path: str) -> bool:
    """Whether the file can be run, by its name or by its mode; not what Python keeps of one."""
    if f"{os.sep}__pycache__{os.sep}" in path:
        return False
    try:
        return path.lower().endswith(KINDS) or bool(os.stat(path).st_mode & 0o111)
    except OSError:
        return False


def paths(word: str, bases: Iterable[str], roots: Sequence[str]) -> set[str]:
    """Where the word leads, if it is a path, from these directories, as far as that is below one of
    `roots`.
    """
    if len(word) > LONGEST or "\0" in word or word.startswith("-"):
        return set()
    inside = tuple(f"{root.rstrip('/')}/" for root in roots)
    return {path for base in bases for path in _from(word, base) if path.startswith(inside)}


def _from(word: str, base: str) -> Iterator[str]:

    def project(found: re.Match[str]) -> str:
        return base if found[1] is None else _NAMED.sub(lambda _: base, found[0])

    here = _SKILL.sub(lambda _: base, _PROJECT.sub(project, word))
    yield os.path.normpath(os.path.join(base, here))
    if here.startswith("/"):  # the end of a path that begins with what another command says
        yield os.path.normpath(base + here)
