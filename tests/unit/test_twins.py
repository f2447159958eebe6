"""Every storage port has a twin, and contract tests that both implementations have to pass."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol, get_type_hints

import pytest

from pykoclaw_acp.notify.ports import NoticeStore
from tests import twins
from tests.integration import journals
from tests.integration.journals import Subject

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "pykoclaw_acp"
NOT_STORED = {
    "CallTaker",
    "Client",
    "FoundTranscripts",
    "Transcripts",
    "TurnLocks",
    "Workers",
    "Workspaces",
}
"""Ports for processes, clients and files."""


def protocols() -> Iterator[type]:
    """Ports of the package, and whatever else has the name of a store."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if "Protocol)" not in path.read_text():
            continue
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        is_port = "ports" in name.split(".")
        for one in vars(importlib.import_module(name)).values():
            if not inspect.isclass(one) or one.__module__ != name:
                continue
            wanted = is_port or one.__name__.endswith("Store")
            if wanted and getattr(one, "_is_protocol", False):
                yield one


def storage_ports() -> list[type]:
    return [one for one in protocols() if one.__name__ not in NOT_STORED]


def methods(port: type) -> set[str]:
    """Those that the port itself adds."""
    return {name for name, one in vars(port).items() if _is_public(name, one)}


def _is_public(name: str, one: object) -> bool:
    return not name.startswith("_") and (inspect.isfunction(one) or isinstance(one, property))


def twin(port: type) -> type[Any] | None:
    (folder,) = twins.__path__
    for path in Path(folder).glob("*.py"):
        module = importlib.import_module(f"{twins.__name__}.{path.stem}")
        found: type[Any] | None = getattr(module, f"Memory{port.__name__}", None)
        if found is not None:
            return found
    return None


@functools.cache
def called() -> frozenset[tuple[str, str]]:
    """What contract tests use of which field of a subject."""
    found: set[tuple[str, str]] = set()
    for path in Path(journals.__file__).parent.glob("test_*_contract.py"):
        text = path.read_text()
        if "fixture(params=BOTH)" not in text:
            continue
        for one in ast.walk(ast.parse(text)):
            if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Attribute):
                found.add((one.value.attr, one.attr))
    return frozenset(found)


def unexamined(port: type) -> set[str]:
    """Methods of the port that no contract test calls."""
    known = get_type_hints(Subject).items()
    fields = {name for name, kind in known if port in getattr(kind, "__mro__", ())}
    return methods(port) - {method for field, method in called() if field in fields}


def test_every_storage_port_has_a_twin() -> None:
    ports = storage_ports()
    assert NoticeStore in ports
    parts = {one: twin(one) for one in ports if methods(one)}
    assert [one.__name__ for one, its in parts.items() if its is None] == []
    lacking = {one.__name__: methods(one) - set(dir(its)) for one, its in parts.items()}
    assert {name: left for name, left in lacking.items() if left} == {}


def test_contract_tests_call_every_storage_method() -> None:
    left = {one.__name__: sorted(unexamined(one)) for one in storage_ports()}
    assert {name: some for name, some in left.items() if some} == {}


def test_ports_that_are_not_stored_exist() -> None:
    assert NOT_STORED - {one.__name__ for one in protocols()} == set()


class NewStore(Protocol):
    """A port without twin and contract tests."""

    async def begin(self) -> None:
        """Of the name of a method that other ports have."""


def test_new_port_without_twin_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert twin(NewStore) is None
    assert unexamined(NewStore) == {"begin"}
    monkeypatch.setattr(NoticeStore, "more", NewStore.begin, raising=False)
    assert unexamined(NoticeStore) == {"more"}
