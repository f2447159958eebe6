"""The documents, for the tests that compare them with the program: text, sections,
tables, names.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
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
def program_texts() -> frozenset[str]:
    """The texts in the program's code but docstrings, with `…` for each value that an f-string has."""
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            match node:
                case ast.Constant(value=str(said)) if id(node) not in docstrings:
                    found.add(said)
                case ast.JoinedStr(values=parts):
                    texts = (getattr(part, "value", None) for part in parts)
                    found.add("".join(one if isinstance(one, str) else "…" for one in texts))
    return frozenset(found)
