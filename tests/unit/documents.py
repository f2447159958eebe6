"""The documents, for the tests that compare them with the program: text, sections,
tables, names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Final

import click

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "pykoclaw_acp"
DOCUMENTS: Final = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "deploy/README.md",
    *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))),
)


def text(document: str) -> str:
    return (ROOT / document).read_text()


def section(document: str, heading: str) -> str:
    return text(document).split(f"\n## {heading}\n")[1].split("\n## ")[0]


def table(document: str, header: str) -> list[list[str]]:
    """The rows of the table whose header begins with `header`."""
    return rows_of(text(document), header)


def rows_of(markdown: str, header: str) -> list[list[str]]:
    lines = (line.strip() for line in markdown.splitlines())
    for line in lines:
        if line.startswith(f"| {header} |"):
            break
    else:
        raise AssertionError(f"there is no table that begins with {header!r}")
    next(lines)
    rows: list[list[str]] = []
    for line in lines:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip().strip("|").split("|")])
    return rows


def codes(markdown: str) -> list[str]:
    """What stands in backticks, outside of blocks."""
    return re.findall(
        r"`([^`]+)`", re.sub(r"^ *```.*?^ *```$", "", markdown, flags=re.MULTILINE | re.DOTALL)
    )


def blocks(markdown: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", markdown, re.MULTILINE | re.DOTALL)


def anchors(markdown: str) -> set[str]:
    """Those of its headings, as forges make them."""
    headings = re.findall(r"^#+ (.+)$", markdown, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", one).lower().replace(" ", "-") for one in headings}


def commands(group: click.Group, name: str) -> Iterator[tuple[str, click.Command]]:
    """All that can be run, with their full names."""
    for one in group.commands.values():
        if isinstance(one, click.Group):
            yield from commands(one, f"{name} {one.name}")
        else:
            yield f"{name} {one.name}", one


@cache
def constants() -> frozenset[str]:
    """Every text of the program that is whole in its code, from the compiled modules."""
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        name = ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
        found.update(_texts(SourceFileLoader(name, str(path)).get_code(name)))
    return frozenset(found)


def _texts(constant: object) -> Iterator[str]:
    match constant:
        case str():
            yield constant
        case CodeType(co_consts=parts):
            for part in parts:
                yield from _texts(part)
        case tuple() | frozenset():
            for part in constant:
                yield from _texts(part)


def written() -> str:
    """The program's sources; a text that is written in several pieces is one text here."""
    sources = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    return re.sub(r'"\s*[rf]{0,2}"', "", sources)
