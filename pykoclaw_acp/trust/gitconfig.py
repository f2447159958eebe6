"""What of a git configuration runs programs in commands that only read, which the CLI runs without
asking, in words.

Git's own syntax: https://git-scm.com/docs/git-config#_syntax
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from pykoclaw_acp.trust.settings import UNCLEAR, shown

MOST_SECTION: Final = 1024
"""Characters of a section's name. Each of its keys is looked at with it, so longer ones would take
long; no repository needs one."""

_SKIPPED: Final = re.compile(r"(?:[ \t\r\n]|[#;][^\n]*)*+")
_SECTION: Final = re.compile(r'\[([A-Za-z0-9.-]*+)(?:[ \t\r]++"((?:[^"\\\n]|\\[^\n])*+)")?\]')
_KEY: Final = re.compile(r"([A-Za-z][A-Za-z0-9-]*+)[ \t]*+(?:(=)|(?=\n|\Z))")
_VALUE: Final = re.compile(
    r'((?:[^"\\\n;#]|\\[\ntbn\\"]|"(?:[^"\\\n]|\\[\ntbn\\"])*+"|\\\Z)*+)(?=[;#\n]|\Z)'
)
_UNQUOTED: Final = re.compile(r'\\([\ntbn\\"])|"')
_MEANT: Final = {"\n": "", "t": "\t", "b": "\b", "n": "\n", "\\": "\\", '"': '"'}

_PROGRAMS: Final = re.compile(
    r"core\.(?:alternaterefscommand|askpass|gitproxy|sshcommand)"
    r"|diff\.external|diff\..*\.(?:command|textconv)|filter\..*\.(?:clean|process|smudge)"
    r"|gpg\.program|gpg\..*\.program|hook\..*\.command|remote\..*\.(?:uploadpack|vcs)"
    r"|(?i:lfs\.extension\..*\.(?:clean|smudge)|lfs\.customtransfer\..*\.path)",
    re.DOTALL,
)
_HELPER: Final = re.compile(r"credential\.(?:.*\.)?helper", re.DOTALL)
_INCLUDE: Final = re.compile(r"include\.path|includeif\..*\.path", re.DOTALL)
_ALLOWED: Final = re.compile(r"protocol\.(?:ext\.)?allow")
_BOOLEAN: Final = re.compile(r"(?:true|yes|on|false|no|off|[01])?", re.IGNORECASE)
_LFS: Final = re.compile(r"git-lfs (?:clean|smudge|filter-process)(?: --skip)?(?: -- %f)?")
_OWN_HELPER: Final = re.compile(r"[\w-]*(?: --[\w=-]+)*")  # a program of git's, by its name


def acting(data: bytes) -> list[tuple[str, str]]:
    """Entries that have git run something; what the file includes is only named. Raises ValueError
    as `entries`.
    """
    return [(name, value) for name, value in entries(data) if _acts(name, value)]


def words(name: str, value: str) -> str:
    """What an entry has git do."""
    return f"has git run or read something ({shown(name)}): {shown(value)}"


def hooks(data: bytes) -> list[str]:
    """Directories of hooks that the file names."""
    try:
        return [value for name, value in entries(data) if name == "core.hookspath"]
    except ValueError:
        return []


def entries(data: bytes) -> Iterator[tuple[str, str]]:
    """Names, as `diff.Of.textconv`, with their values, in order; raises ValueError where git would
    take it for no configuration, or may read another. A key without a value is "true".
    """
    if b"\0" in data:  # there git's names and values end, and go on
        raise ValueError(UNCLEAR)
    text = data.decode("utf-8-sig", "surrogateescape").replace("\r\n", "\n")
    section = ""
    at = _end(_SKIPPED.match(text))
    while at < len(text):
        if (head := _SECTION.match(text, at)) is not None:
            section = f"{head[1].lower()}."
            if head[2] is not None:
                section += re.sub(r"\\(.)", r"\1", head[2]) + "."
            if len(section) > MOST_SECTION:
                raise ValueError(UNCLEAR)
            at = head.end()
        else:
            key = _KEY.match(text, at)
            at = _end(key)
            value = "true"
            if key is not None and key[2]:
                given = _VALUE.match(text, at)
                at = _end(given)
                value = _UNQUOTED.sub(_meant, given[1].strip(" \t\r")) if given else ""
            yield f"{section}{key[1].lower() if key else ''}", value
        at = _end(_SKIPPED.match(text, at))


def _end(found: re.Match[str] | None) -> int:
    if found is None:
        raise ValueError(UNCLEAR)
    return found.end()


def _meant(found: re.Match[str]) -> str:
    return _MEANT[found[1]] if found[1] else ""


def _acts(name: str, value: str) -> bool:
    if name == "core.fsmonitor":
        return _BOOLEAN.fullmatch(value) is None
    if _HELPER.fullmatch(name):
        return _OWN_HELPER.fullmatch(value) is None
    if _ALLOWED.fullmatch(name):
        return value.lower() != "never"  # `user`, too: git takes a tool's command for a user's
    if name.startswith("filter.") and _LFS.fullmatch(value):
        return False
    return bool(value) and bool(_PROGRAMS.fullmatch(name) or _INCLUDE.fullmatch(name))
