"""Programs of a workspace that a command names, as far as the command's words say it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

_BETWEEN: Final = re.compile(r"""[\s;|&()<>"'`=,]+""")
_QUOTES: Final = re.compile(r"""["'\\]""")
_PIECE: Final = re.compile(r"""(?<=["'])[^"'\n]++(?=["'])""")
"""What is between two quotes, whether or not they belong together."""
# Longer than a file system has it, or text of several lines
_NO_NAME: Final = re.compile(r"[^/]{256}|\n")
_PLAIN: Final = re.compile(r"[=,:]")
"""Signs of names that are also between names, as in `A=x`, `--files=x,y` and `PATH=x:y`."""
_WORD: Final = re.compile(
    r"""(?:[^\s;|&()<>`"'\\]++|\\.|'[^']*+'|"(?:[^"\\]++|\\.)*+"|["'\\])++""", re.DOTALL
)
"""A word of a shell, in quotes or not; a quote that does not end is a character."""
_QUOTING: Final = re.compile(
    r"""\\(?:\n|(.))|\$?'([^']*+)'|\$?"((?:[^"\\]++|\\.)*+)\"""", re.DOTALL
)
_ESCAPED: Final = re.compile(r"""\\(?:\n|([$`"\\]))""")
# Where quotes may begin anew: the line before may be a comment with an apostrophe.
_ANEW: Final = re.compile(r"\n|`|[$<>]\(")
DEPTH: Final = 3  # of commands within words, as in `bash -c 'sh "x"'`
_OPTION: Final = re.compile(r"\A-(?:[A-Za-z]|-[\w-]++=)")
"""An option, up to its value."""
# After Python's options without a value, with which `-m` may be in one word
_MODULE: Final = re.compile(r"\s-[bBdEiIOPqRsSuvVx]*+m\s*+([\w.]++)")
_SYNTAX: Final = re.compile(r"""(?:[\s\[\]{},"':]|-(?=\s)|\bargs\b)++""")
_VARIABLE: Final = re.compile(r"\$\{\w++(?::?[-=+?])?|\$\w++|\}")
"""A variable, up to what stands in its place if it is not set."""
_NAMED: Final = re.compile(r"\$(?:CLAUDE_PROJECT_DIR|PWD)\b|\A~[+-](?=/|\Z)")
# What does not end is matched, too (group 1), lest each beginning in it be tried.
_PROJECT: Final = re.compile(rf"{_NAMED.pattern}|\$\{{(?:CLAUDE_PROJECT_DIR|PWD)[^}}]*+(?:\}}|())")
_HOME: Final = re.compile(r"\A~(?!-)[\w.-]*+(?=/|\Z)|\$HOME\b|\$\{HOME\b[^{}$]*+\}")
_SKILL: Final = re.compile(r"\$\{?CLAUDE_(?:SKILL_DIR|PLUGIN_ROOT)\b\}?")
_BLANK: Final = r"(?:[ \t]|\\\n)++"
_RUN: Final = re.compile(
    r"(?:^|[\s;&|(\"'/])(?:node|bun|deno|tsx|ts-node|python[\d.]*+|ruby|perl)(?:@[^\s\"']*+)?"
    rf"((?:{_BLANK}(?:(?:run|watch)(?=\s)|(?=-){_WORD.pattern}(?:{_BLANK}(?!-){_WORD.pattern})?))*+)"
    rf"(?=((?:{_BLANK}{_WORD.pattern})?))",  # not passed over, as it may be an interpreter
    re.DOTALL,
)
"""An interpreter, its options with the word after each, and what it runs."""
_ENDS: Final = (
    *(".js", ".mjs", ".cjs", ".ts", ".py", ".rb"),
    *("/index.js", "/index.ts", "/__main__.py"),
)
"""What may be left out of a program's path where it is run."""
KINDS: Final = (
    *(".sh", ".bash", ".zsh", ".fish", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".ps1"),
    *(".bat", ".cmd"),
)
"""Endings of programs' names."""
LONGEST: Final = 4096  # characters of a path


def words(command: str) -> dict[str, None]:
    """What may be a path in a command, however it is quoted."""
    bare = _QUOTES.sub("", command)
    found = [command, *_BETWEEN.split(bare), *_BETWEEN.split(command)]
    found += _PIECE.findall(command)
    for word in _words_of_shell(command):
        found += [word, word.partition("=")[2], _OPTION.sub("", word), *_PLAIN.split(word)]
    run = dict.fromkeys(name.replace(".", "/") for name in _MODULE.findall(bare))
    run |= dict.fromkeys(_run(command)) | dict.fromkeys(_run(bare))
    found += [name + end for name in run for end in _ENDS]
    found += [part for word in found if "$" in word for part in _VARIABLE.split(word)]
    return dict.fromkeys(word for word in found if word and not _NO_NAME.search(word))


def in_one_line(text: str) -> str:
    """The words of YAML or JSON, in which a command's arguments then follow it."""
    return _SYNTAX.sub(" ", text)


def _run(command: str) -> Iterator[str]:
    """What interpreters run in it, perhaps without its ending."""
    for found in _RUN.finditer(command):
        for word in _WORD.findall(found[1] + found[2]):
            if name := _OPTION.sub("", _unquoted(word)).strip("\"'").rstrip("/"):
                yield name


def _words_of_shell(command: str) -> dict[str, None]:
    """The words of a shell command, and those of commands that are such a word."""
    words: dict[str, None] = {}
    commands = [command]
    for _ in range(1 + DEPTH):
        inner: list[str] = []
        for part in dict.fromkeys(part for one in commands for part in (one, *_ANEW.split(one))):
            for raw in _WORD.findall(part):
                word = _unquoted(raw)
                if word != raw and word not in words and _BETWEEN.search(word):
                    inner.append(word)
                words[word] = None
        commands = inner
    return words


def _unquoted(word: str) -> str:
    return _QUOTING.sub(_without_quotes, word)


def _without_quotes(found: re.Match[str]) -> str:
    escaped, single, double = found.groups()
    return _ESCAPED.sub(r"\1", double) if double is not None else single or escaped or ""


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
    if len(word) > LONGEST or "\0" in word:
        return set()
    inside = tuple(f"{root.rstrip('/')}/" for root in roots)
    home = os.path.expanduser("~")
    near = (*inside, f"{home.rstrip('/')}/")  # what is elsewhere may be on a disk that is away
    found: set[str] = set()
    for path in (path for base in bases for path in _from(word, base, home)):
        normal = f"/{os.path.normpath(path).lstrip('/')}"
        if normal.startswith(inside):
            found.add(normal)
        # `..` leads elsewhere behind a symbolic link.
        if normal.startswith(near) and ("/.." in path or normal not in found):
            found.add(os.path.realpath(path))
    return {path for path in found if path.startswith(inside)}


def _from(word: str, base: str, home: str) -> Iterator[str]:

    def project(found: re.Match[str]) -> str:
        return base if found[1] is None else _NAMED.sub(lambda _: base, found[0])

    expanded = _PROJECT.sub(project, _HOME.sub(lambda _: home, word))
    for here in {word, _SKILL.sub(lambda _: base, expanded)}:
        yield os.path.join(base, here)
        if here.startswith("/"):  # the end of a path that begins with what another command says
            yield base + here
