"""Programs of a workspace that a command names, as far as the command's words say it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

_BETWEEN: Final = re.compile(r"""[\s;|&()<>"'`=,]+""")
_QUOTED: Final = re.compile(r""""([^"]+)"|'([^']+)'""")
_MODULE: Final = re.compile(r"\s-m\s+([\w.]+)")
_PROJECT: Final = re.compile(
    r"\$(?:CLAUDE_PROJECT_DIR|PWD)\b|\$\{(?:CLAUDE_PROJECT_DIR|PWD)[^}]*\}"
)
_SKILL: Final = re.compile(r"\$\{?CLAUDE_(?:SKILL_DIR|PLUGIN_ROOT)\b\}?")
_ENDS: Final = ("", ".js", ".mjs", ".cjs", ".ts", ".py", "/index.js", "/__main__.py")
"""What may be left out of a program's path where it is run."""
LONGEST: Final = 1024  # characters of a path


def words(command: str) -> dict[str, None]:
    """What may be a path in a command, however it is quoted."""
    bare = command.replace('"', "").replace("'", "")
    quoted = [found[1] or found[2] for found in _QUOTED.finditer(command)]
    found = [command, *quoted, *_BETWEEN.split(bare), *_BETWEEN.split(command)]
    if "\\" in bare:
        found += _BETWEEN.split(bare.replace("\\", ""))
    found += [name.replace(".", "/") for name in _MODULE.findall(command)]
    return dict.fromkeys(word for word in found if word)


def paths(word: str, bases: Iterable[str], roots: Sequence[str]) -> set[str]:
    """Where the word leads, if it is a path, from these directories, as far as that is below one of
    `roots`.
    """
    if len(word) > LONGEST or "\0" in word or word.startswith("-"):
        return set()
    inside = tuple(f"{root.rstrip('/')}/" for root in roots)
    return {
        f"{path}{end}"
        for base in bases
        for path in _from(word, base)
        if path.startswith(inside)
        for end in (_ENDS if "/" in word and "." not in os.path.basename(path) else _ENDS[:1])
    }


def _from(word: str, base: str) -> Iterator[str]:
    here = _SKILL.sub(lambda _: base, _PROJECT.sub(lambda _: base, word))
    yield os.path.normpath(os.path.join(base, here))
    if here.startswith("/"):  # the end of a path that begins with what another command says
        yield os.path.normpath(base + here)
