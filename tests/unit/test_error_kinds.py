from __future__ import annotations

import ast
import re
from pathlib import Path

import msgspec

from pykoclaw_acp import errors
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.failures import TurnFailure


def test_kind_of_another_version_survives_frames_and_rows() -> None:
    written = msgspec.json.encode({"kind": "of_tomorrow", "message": "m"})
    failure = msgspec.json.decode(written, type=TurnFailure)
    assert failure.kind == "of_tomorrow"
    assert not failure.retryable
    assert msgspec.json.encode(failure) == written
    assert "of_tomorrow" not in set(ErrorKind)


def test_known_kind_is_the_member() -> None:
    failure = msgspec.json.decode(b'{"kind":"rate_limit","message":"m"}', type=TurnFailure)
    assert failure.kind is ErrorKind.RATE_LIMIT
    assert failure.retryable


def drawn() -> dict[str, str | None]:
    """The tree of the docstring: the bases of exceptions, by name; None: one of Python's."""
    found: dict[str, str | None] = {}
    above: list[str] = []  # the last one of each level
    for line in (errors.__doc__ or "").splitlines()[2:]:
        shape = re.match(
            r"((?:│  |   )*[├└]─ )?([A-Z]\w+(?:, (?:and its )?[A-Z]\w+)*)(?: {2}|$)", line
        )
        if shape is None:
            continue
        level = len(shape[1] or "") // 3
        base = above[level - 1] if level else None
        ahead, *behind = shape[2].split(", and its ")
        found.update(dict.fromkeys(ahead.split(", "), base))
        above[level:] = [ahead.split(", ")[-1]]
        found.update(dict.fromkeys(", ".join(behind).split(", ") if behind else [], above[level]))
    return found


def test_each_error_is_drawn_below_its_base() -> None:
    package = Path(errors.__file__).parent
    own = {name for name, one in vars(errors).items() if isinstance(one, type)}
    bases: dict[str, str | None] = {}
    for path in package.rglob("*.py"):
        source = path.read_text()
        if "errors" not in source and path.name != "errors.py":
            continue
        for node in ast.walk(ast.parse(source)):
            if not isinstance(node, ast.ClassDef):
                continue
            known = [one.id for one in node.bases if isinstance(one, ast.Name) and one.id in own]
            if known or path.name == "errors.py":
                bases[node.name] = known[0] if known else None
    assert drawn() == bases
