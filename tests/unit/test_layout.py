"""The shape of the package: a module is one idea, and imports point down the layers."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from pykoclaw_acp.model.events import Event, Text
from pykoclaw_acp.model.turns import TurnOrigin
from pykoclaw_acp.store import sql

ROOT = Path(__file__).parents[2]
PACKAGE = "pykoclaw_acp"
MOST_LINES = 350
WIDE = 100  # characters of a line
MOST_WIDE = 1_394  # such lines; lower it when they have become fewer
NOTE = "note=True"
HANGING = re.compile(r" *[)\]}]+[,:]? +# (?!fmt|type|noqa)")
LEANING = re.compile(
    r'"""(?:(?:As|Those|That|Of|It|Its|By its|With the|In a thread|The same|So far|From now|See|This process)\b'
    r"|None:).*"
)
# A class, or an alias of types in a module
NAMED = re.compile(r"^ *class (\w+)[(\[:]|^([A-Z]\w*[a-z]\w*)(?:: TypeAlias)? = ", re.MULTILINE)


def test_no_module_is_too_long_for_readers() -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in (ROOT / PACKAGE).rglob("*.py")
    }
    assert lengths
    assert {path: length for path, length in lengths.items() if length > MOST_LINES} == {}


def test_wide_lines_become_no_more() -> None:
    """The formatter leaves texts and comments as they are, and only what is far too wide is an error."""
    wide = [
        line
        for path in (ROOT / PACKAGE).rglob("*.py")
        for line in path.read_text().splitlines()
        if len(line) > WIDE
    ]
    assert len(wide) <= MOST_WIDE


def test_no_name_of_type_is_defined_twice() -> None:
    modules: dict[str, list[str]] = defaultdict(list)
    for path in sorted((ROOT / PACKAGE).rglob("*.py")):
        for of_class, alias in NAMED.findall(path.read_text()):
            modules[of_class or alias].append(str(path.relative_to(ROOT)))
    assert modules
    assert {name: paths for name, paths in modules.items() if len(paths) > 1} == {}


def test_notes_are_made_in_one_place() -> None:
    """By `note_event`, so that each stands between empty lines."""
    makers = [path.name for path in (ROOT / PACKAGE).rglob("*.py") if NOTE in path.read_text()]
    assert makers == ["events.py"]


def test_sql_takes_words_from_types() -> None:
    """Origins of turns and kinds of events, which a rename would else leave behind."""
    # 'text' is a type of SQLite's, too
    words = {*TurnOrigin, *map(sql.tag, Event.__args__)} - {sql.tag(Text)}
    found = [
        f"{path.relative_to(ROOT)}: {word}"
        for path in sorted((ROOT / PACKAGE / "store").rglob("*.py"))
        for word in re.findall(rf"'(?:{'|'.join(words)})'", path.read_text())
    ]
    assert len(words) > len(TurnOrigin)
    assert found == []


def test_each_task_has_a_name() -> None:
    """By which logs and stacks of a process that hangs tell it apart."""
    unnamed = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sorted((ROOT / PACKAGE).rglob("*.py"))
        if "create_task" in (source := path.read_text())
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "create_task"
        and "name" not in [keyword.arg for keyword in node.keywords]
    ]
    assert unnamed == []


def test_tasks_that_tests_wait_for_exist() -> None:
    """No task has a name that was changed: to wait for its end would be to wait for nothing."""
    waited = {
        name
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for name in re.findall(r"(?<![.\w])running\(\"([^\"]+)\"\)", path.read_text())
    }
    known: set[str] = set()
    for path in (ROOT / PACKAGE).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.ClassDef(name=name, body=body):
                    methods = [one for one in body if isinstance(one, ast.AsyncFunctionDef)]
                    known |= {f"{name}.{one.name}" for one in methods}  # without a name of its own
                case ast.keyword(arg="name", value=ast.Constant(value=str(name))):
                    known.add(name)
    assert waited
    assert waited - known == set()


def test_comments_stand_by_what_they_explain() -> None:
    """Not behind a bracket that closes alone, where the formatter carries a comment that is too long
    for its line.
    """
    hanging = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in sorted((ROOT / PACKAGE).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if HANGING.match(line)
    ]
    assert hanging == []


def test_docstrings_stand_alone() -> None:
    """None begins with a word for something that only its neighbours name."""
    leaning = [
        f"{path.relative_to(ROOT)}: {found}"
        for path in sorted((ROOT / PACKAGE).rglob("*.py"))
        for found in LEANING.findall(path.read_text())
    ]
    assert leaning == []


@pytest.mark.long
@pytest.mark.parametrize(
    ("module", "imports"),
    [
        ("model/turns.py", "server.app"),
        ("protocol/long_lines.py", "store.database"),
        ("pool/occupation.py", "pool.pool"),
        ("front/relay.py", "model.events"),
        ("server/recovery.py", "system.reaper"),
        ("server/status.py", "system.processes"),
        (None, ""),
    ],
)
def test_import_against_the_layers_is_found(
    tmp_path: Path, module: str | None, imports: str
) -> None:
    shutil.copytree(
        ROOT / PACKAGE, tmp_path / PACKAGE, ignore=shutil.ignore_patterns("__pycache__")
    )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    if module is not None:
        with (tmp_path / PACKAGE / module).open("a") as file:
            file.write(f"\nimport {PACKAGE}.{imports}\n")
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    found = subprocess.run(
        command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    assert (found.returncode == 0) == (module is None), found.stdout
    if module is not None:
        # of a circle only the last parts of names are said
        assert re.search(
            rf"-> (?:{PACKAGE})?\.(?:{imports}|{imports.split('.')[1]})\b", found.stdout
        )
