"""`make test` examines each part: no file of the end-to-end tests and of the fault tests is left to
`make test-long` as a whole. What several test files need is in a module that is none. Names of
tests are short sentences.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
LONG = "pytest.mark.long"
IMPORTS = re.compile(r"^\s*from (tests[\w.]*) import (\([^)]*\)|.*)", re.MULTILINE)
TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
FILES = [
    path for folder in ("e2e", "faults") for path in sorted((TESTS / folder).glob("test_*.py"))
]
# Seeded walks: a few of them would find nothing that other tests do not. Clients on Node, which take
# half a minute for each test: of one a recording is played in `test_clients.py`, the other does what
# `test_official_client.py` does. The rest takes long for each test, and integration tests or other
# files here have what matters most of it.
ALWAYS_LONG = {
    "test_accounts.py",
    "test_acpx.py",
    "test_beside.py",
    "test_deliveries.py",
    "test_fork_sources.py",
    "test_list.py",
    "test_many_fronts.py",
    "test_notify.py",
    "test_other_programs.py",
    "test_plugins.py",
    "test_profile.py",
    "test_restored.py",
    "test_rewind_memory.py",
    "test_schedulers.py",
    "test_seen_offers.py",
    "test_seen_servers.py",
    "test_seen_titles.py",
    "test_shared.py",
    "test_typescript_client.py",
    "test_walk.py",
}


def is_ordinary(test: ast.AST) -> bool:
    """A test function that is run by `make test`, with some parameters at least."""
    if not isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    if not test.name.startswith("test_"):
        return False
    return not any(_skips_all(decorator) for decorator in test.decorator_list)


def _skips_all(decorator: ast.expr) -> bool:
    if ast.unparse(decorator) == LONG:
        return True
    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.parametrize":
        values = decorator.args[1]
        return isinstance(values, ast.List) and all(
            LONG in ast.unparse(value) for value in values.elts
        )
    return False


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_each_file_keeps_an_ordinary_test(path: Path) -> None:
    tree = ast.parse(path.read_text())
    for_all = any(ast.unparse(line) == f"pytestmark = {LONG}" for line in tree.body)
    ordinary = not for_all and any(is_ordinary(line) for line in tree.body)
    assert ordinary or path.name in ALWAYS_LONG


def test_no_file_imports_a_test_file() -> None:
    imported = [
        f"{path.relative_to(TESTS)}: {name}"
        for path in sorted(TESTS.rglob("*.py"))
        for found in IMPORTS.finditer(path.read_text())
        for name in (found[1], *(f"{found[1]}.{one}" for one in re.findall(r"\w+", found[2])))
        if re.search(r"^tests\..*\btest_\w+$", name)
    ]
    assert imported == []


def test_names_have_three_to_eight_words() -> None:
    odd = [
        f"{path.relative_to(TESTS)}: {name}"
        for path in sorted(TESTS.rglob("*.py"))
        for name in TEST.findall(path.read_text())
        if not 3 <= len(name.split("_")[1:]) <= 8
    ]
    assert odd == []
