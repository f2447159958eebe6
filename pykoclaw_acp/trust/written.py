"""Files that a shell command only writes, as in `date >> hook.log`: what they hold is not run by it."""

from __future__ import annotations

import re
from typing import Final

from pykoclaw_acp.trust.programs import KINDS

_VARIABLE: Final = r"\$\w+|\$\{\w+\}"
_BARE: Final = rf"(?:[\w./:@%+-]|{_VARIABLE})"
_NAME: Final = rf"(?P<name>(?:{_BARE}|'[\w./:@%+ -]*+'|\"(?:{_BARE}| )*+\")++)"
_WRITTEN: Final = re.compile(
    rf"(?:>>?\|?[ \t]*+|\|&?[ \t]*+tee[ \t]++(?:(?:-a|--append)[ \t]++)?){_NAME}(?=[\s;|&)<>]|\Z)"
)
"""A redirection to a file, or `tee`, with the file."""
# Within double quotes: a command with nothing that the end of the quotes could depend on.
_SIMPLE: Final = r"\$\((?:[^\"'`()$\\#<]|'[^\"'`()$\\#<]*+')*+\)"
_OTHER: Final = re.compile(
    rf"""
    [\w\s./:@%+,=;&()-]++ | [>|] | <>?+(?!<)
    | (?:\{{|\[\[?|!)(?=\s) | (?:\}}|\]\]?)(?=[\s;|&)<>]|\Z)
    | {_VARIABLE} | \$[?@] | \$\((?!\()
    | '(?:[^'\\]|\\[^'])*+'
    | "(?:[^"\\$`]|\\.|{_VARIABLE}|{_SIMPLE})*+"
    """,
    re.VERBOSE | re.DOTALL,
)
"""What leaves no doubt where words and quotes begin and end."""
# What is open for writing can be read there; `tee` may be another one.
_DOUBTFUL: Final = re.compile(
    r"(?i:/dev(?!/null\b|\w)|\bproc\b|\bfd\b|\bstd(?:out|err)\b)|\btee\b|\bPATH\b"
)
_QUOTES: Final = re.compile("[\"']")


def without_written(command: str) -> str:
    """The command without the names of files that it only writes there; unchanged if there is any doubt
    of how a shell reads it. A program that is written stays.
    """
    kept: list[str] = []
    others: list[str] = []
    at = 0
    while at < len(command):
        if found := _WRITTEN.match(command, at):
            is_program = _QUOTES.sub("", found["name"]).lower().endswith(KINDS)
            end = found.end() if is_program else found.start("name")
            kept.append(command[at:end])
            others.append(" ")
        elif found := _OTHER.match(command, at):
            kept.append(found[0])
            others.append(found[0])
        else:
            return command
        at = found.end()
    read = _QUOTES.sub("", "".join(others))
    return command if _DOUBTFUL.search(read) else "".join(kept)
