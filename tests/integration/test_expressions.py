"""Every regular expression of the package, as its source has it, takes time in proportion to the
text: each is run on long texts that are made of what it looks for.
"""

from __future__ import annotations

import ast
import importlib
import math
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

import pykoclaw_acp

ROOT: Final = Path(pykoclaw_acp.__file__).parent
LENGTH: Final = 20_000  # characters
# s; of a text that takes more, it is looked whether its length is why
MOST: Final = 0.01
SHORTER: Final = 4  # how many times, for a comparison
# How many times longer a long text takes than such a shorter one: 4 in proportion, 16 by the square
GROWTH: Final = 8
SHAPES: Final = 250  # of each expression

SEARCHING: Final = {"search", "sub", "subn", "finditer", "findall", "split"}
ANCHORED: Final = {"match", "fullmatch"}
# What functions put into expressions
GIVEN: Final = {"name": "a", "tag": "a-b", "before": b"", "after": b""}

# What is slow by itself, and why no text makes it so
BOUNDED: Final = {
    "trust.markdown._SHELL": "the dollar signs that begin nothing are marked before",
    "system.secrets._NAMED": "rules of 300 characters",
    "system.secrets._TAKING": "rules of 300 characters",
    "doctor.database._LIBRARY": "the kernel's lines about our own daemon",
    "scripted_model.conversation._CLI_BLOCK": "the model of the tests",
}

_parser: Any = importlib.import_module("re._parser")
_codes: Any = importlib.import_module("re._constants")


class Expression(NamedTuple):
    name: str
    pattern: re.Pattern[Any]
    methods: frozenset[str]


# --- the expressions of the package


@cache
def expressions() -> tuple[Expression, ...]:
    trees = {path: ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))}
    named = {path: dict(_named(tree)) for path, tree in trees.items()}
    used: dict[str, set[str]] = defaultdict(set)  # by public name
    for path, tree in trees.items():
        for name, method in _calls(tree):
            if name not in named[path]:
                used[name].add(method)
    return tuple(one for path, tree in trees.items() for one in _of_module(path, tree, used))


def _of_module(path: Path, tree: ast.Module, used: dict[str, set[str]]) -> Iterator[Expression]:
    inside = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    names = {id(call): name for name, call in _named(tree)}
    own: dict[str, set[str]] = defaultdict(set)
    for name, method in _calls(tree):
        # Where an expression is a parameter, it may be any of the module.
        own[name if name in names.values() else ""].add(method)
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or _target(call)[0] != "re":
            continue
        method = _target(call)[1]
        if method not in SEARCHING | ANCHORED | {"compile"}:
            continue
        namespace = {**vars(importlib.import_module(f"pykoclaw_acp.{inside}")), **GIVEN}
        pattern = eval(ast.unparse(call.args[0]), namespace)
        flags = [*call.args[1:2], *(one.value for one in call.keywords if one.arg == "flags")]
        said = [eval(ast.unparse(one), namespace) for one in flags] if method == "compile" else []
        name = names.get(id(call), f"line {call.lineno}")
        methods = {method} if method != "compile" else own[name] | used[name] or own[""] - {"split"}
        yield Expression(
            f"{inside}.{name}",
            re.compile(pattern, said[0] if said else 0),
            frozenset(methods or SEARCHING),
        )


def _named(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """The calls of `re.compile` at the top of a module, with the names that they are given."""
    for statement in tree.body:
        for one in (statement, *(statement.body if isinstance(statement, ast.ClassDef) else ())):
            if isinstance(one, ast.Assign | ast.AnnAssign) and one.value is not None:
                target = one.targets[0] if isinstance(one, ast.Assign) else one.target
                for call in ast.walk(one.value):
                    if isinstance(call, ast.Call) and _target(call) == ("re", "compile"):
                        yield ast.unparse(target), call


def _calls(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            name, method = _target(call)
            if name != "re" and method in SEARCHING | ANCHORED:
                yield name, method


def _target(call: ast.Call) -> tuple[str, str]:
    """Whose method is called, and which."""
    if not isinstance(call.func, ast.Attribute):
        return "", ""
    whose: ast.AST = call.func.value
    while isinstance(whose, ast.Subscript):
        whose = whose.value
    name = whose.id if isinstance(whose, ast.Name) else getattr(whose, "attr", "")
    return name, call.func.attr


# --- texts that are made of what an expression looks for

SAMPLES: Final = " a0_-\n\t.,:;\"'`<>[](){}$#/\\=*|&+!?@~%^AZ\x1b\x00é"
REPEATS: Final = (_codes.MAX_REPEAT, _codes.MIN_REPEAT, _codes.POSSESSIVE_REPEAT)


def shapes(pattern: re.Pattern[Any]) -> Iterator[tuple[str, str, str]]:
    """What comes once, what is repeated after it, and the end."""
    tree = _parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE)
    paths = _paths(tree, _literals(pattern))
    found = list(dict.fromkeys(one for path in paths for one in _repeated(path) if one[1]))
    yield from found[:: len(found) // SHAPES + 1]


def _repeated(path: list[str]) -> Iterator[tuple[str, str, str]]:
    """A beginning that never ends, or ends wrongly; a piece, or two, again and again."""
    for at, piece in enumerate(path):
        before, rest = "".join(path[:at]), "".join(path[at + 1 : -1])
        yield "", before + piece, ""
        yield "", before + piece, f"{rest}\x01"
        yield before, piece, "\x01"
        yield before, "".join(path[at : at + 2]), ""


def _literals(pattern: re.Pattern[Any]) -> str:
    """Signs that the expression looks for, which may be where it allows anything, too."""
    said = (
        pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    )
    return "".join(dict.fromkeys(re.sub(r"[\w\s]", "", said.replace("\\\\", "\\"))))


def _paths(tree: Any, signs: str) -> list[list[str]]:
    """Texts that the expression finds, in pieces: some, not all."""
    found: list[list[str]] = [[]]
    words = False  # what came last is a literal
    for kind, value in tree:
        if kind is _codes.LITERAL and words:
            found = [[*before[:-1], before[-1] + chr(value)] for before in found]
            continue
        words = kind is _codes.LITERAL
        ways = _ways(kind, value, signs)
        found = [before + way for way in ways for before in found[: max(1, 12 // len(ways))]][:24]
    return found


def _ways(kind: Any, value: Any, signs: str) -> list[list[str]]:
    if kind is _codes.LITERAL:
        return [[chr(value)]]
    if kind in (_codes.NOT_LITERAL, _codes.ANY, _codes.IN):
        one = _parser.SubPattern(_parser.State(), [(kind, value)])
        fits = importlib.import_module("re._compiler").compile(one).match
        usual = [char for char in SAMPLES if fits(char)] or [_first(value)]
        return [[char] for char in (*filter(fits, signs), *usual)][:4]
    if kind in REPEATS:
        least, _, inner = value
        ways = [
            [*("".join(way) for _ in range(max(1, min(least, 3))))] for way in _paths(inner, signs)
        ]
        return [*ways, []] if least == 0 else ways
    if kind is _codes.SUBPATTERN:
        return _paths(value[3], signs)
    if kind is _codes.ATOMIC_GROUP:
        return _paths(value, signs)
    if kind is _codes.BRANCH:
        in_turn = zip_longest(*(_paths(branch, signs) for branch in value[1]))
        return [path for some in in_turn for path in some if path is not None][:24]
    if kind is _codes.ASSERT:
        return _paths(value[1], signs)
    return [[]]


def _first(ranges: Any) -> str:
    """A character of a set that has none of the samples."""
    kind, value = ranges[0]
    return chr(value if kind is _codes.LITERAL else value[0])


def too_slow(pattern: re.Pattern[Any], methods: Iterable[str]) -> tuple[str, object] | None:
    """The first text that takes much more time than a shorter one like it: how it is searched, and
    its shape.
    """
    runs = {"finditer" if method in SEARCHING else method for method in methods}
    for shape in shapes(pattern):
        # The short one for what doubles with each character
        for length in (20, 4_000, LENGTH):
            for method in runs:
                took = _time(pattern, method, shape, length, MOST)
                if took > MOST:
                    shorter = _time(pattern, method, shape, length // SHORTER)
                    if took > GROWTH * shorter:
                        return method, shape
    return None


def _time(
    pattern: re.Pattern[Any],
    method: str,
    shape: tuple[str, str, str],
    length: int,
    enough: float = 0,
) -> float:
    """CPU seconds, the least of several until they are `enough`: other work may be in between."""
    before, repeated, end = shape
    text: Any = before + repeated * (length // len(repeated)) + end
    if isinstance(pattern.pattern, bytes):
        text = text.encode("latin-1")
    least = math.inf
    for _ in range(5):
        began = time.thread_time()
        found = getattr(pattern, method)(text)
        for _ in found if method == "finditer" else ():
            pass
        least = min(least, time.thread_time() - began)
        if least <= enough:
            break
    return least


@pytest.mark.parametrize("module", sorted({one.name.split(".")[0] for one in expressions()}))
def test_expressions_take_no_quadratic_time(module: str) -> None:
    slow = {
        one.name: (one.pattern.pattern, *found)
        for one in expressions()
        if one.name.split(".")[0] == module
        and one.name not in BOUNDED
        and (found := too_slow(one.pattern, one.methods))
    }
    assert not slow, "search by hand, or say in BOUNDED why no long text comes there"


def test_every_expression_of_the_source_is_found() -> None:
    said = {path: path.read_text().count("re.compile(") for path in ROOT.rglob("*.py")}
    assert len(expressions()) >= sum(said.values())
    assert {one.name for one in expressions()} >= BOUNDED.keys()


@pytest.mark.parametrize(
    "pattern",
    [
        r"\s+#.*", r"\$\{[^}]*\}", r"<name>(.*?)</name>", r'"(?:\\.|[^"\\])*"', r"/\*.*?\*/", r"(\w+)\s*=",
        r"(?:a|a)*b", r"\S*/lib\S*\.so$",
    ],
)  # fmt: skip
def test_slow_expressions_are_known_as_slow(pattern: str) -> None:
    assert too_slow(re.compile(pattern, re.DOTALL), {"search"})
