"""docs/security.md: every item of it names tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from pykoclaw_acp.system import disks
from pykoclaw_acp.trust import watch

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs/security.md"
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def claims() -> list[tuple[int, str]]:
    """Every item of a list and every row of a table, with the number of its first line."""
    found: list[tuple[int, str]] = []
    for number, line in enumerate(DOCUMENT.read_text().splitlines(), 1):
        if line.startswith(("* ", "|")):
            found.append((number, line))
        elif line.startswith("  ") and found:
            found[-1] = (found[-1][0], f"{found[-1][1]} {line.strip()}")
    return [
        (number, claim)
        for number, claim in found
        if not re.fullmatch(r"[|\- ]+|\|.*\| tests? \|", claim)
    ]


@cache
def functions(path: str) -> frozenset[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(
        node.name
        for node in ast.walk(ast.parse((ROOT / path).read_text()))
        if isinstance(node, kinds)
    )


@pytest.mark.parametrize(
    ("number", "claim"), claims(), ids=lambda value: str(value) if isinstance(value, int) else ""
)
def test_every_item_names_tests_that_exist(number: int, claim: str) -> None:
    named = NAMED.findall(claim)
    assert named, f"docs/security.md, line {number}, names no test: {claim}"
    for path, name in named:
        assert (ROOT / path).is_file(), f"docs/security.md, line {number}: there is no {path}"
        assert name in functions(path), f"docs/security.md, line {number}: {path} has no {name}"


def test_nothing_is_claimed_outside_of_items() -> None:
    """Paragraphs only introduce: two lines of them at most below a heading, the rest are items with
    their tests.
    """
    paragraph = 0
    for line in DOCUMENT.read_text().splitlines():
        if line.startswith(("#", "* ", "  ", "|")):
            paragraph = 0
        elif line:
            paragraph += 1
        assert paragraph <= 3, line


def test_examinations_at_a_time_are_counted() -> None:
    words = {2: "two", 5: "five"}
    looks, each = words[watch.LOOKS], words[disks.EACH]
    said = " ".join(DOCUMENT.read_text().split())
    assert f"* **{looks.capitalize()} examinations at a time** for sessions, and {looks}" in said
    assert f"at most {each} of them on one disk" in said
