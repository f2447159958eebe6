"""Names that programs of users, rows and workers of other versions depend on: they may become more,
and are not renamed.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from types import ModuleType

import msgspec

from pykoclaw_acp import model
from pykoclaw_acp.channel import frames
from pykoclaw_acp.config import listing, loading
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.model.events import Event
from pykoclaw_acp.model.imports import RowStanding, Side
from pykoclaw_acp.protocol import control
from tests.unit.documents import PACKAGE

KEPT = Path(__file__).with_name("kept_names")
INTERNAL = (RowStanding, Side)  # in no row, no frame and no answer


def names() -> set[str]:
    """Names of today, each after what it is."""
    sources = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    extension = r"""["'](_?pykoclaw\.dev/\w[\w/]*)["']"""
    found = {f"action {one}" for one in re.findall(r'\baction="([a-z_]+)"', sources)}
    found |= {f"variable {line.env}" for line in listing.describe(loading.load())}
    found |= {f"extension {one}" for one in re.findall(extension, sources)}
    for word, union in (("event", Event), ("frame", frames.ToWorker), ("frame", frames.FromWorker)):
        for kind in union.__args__:
            name = f"{word} {kind.__struct_config__.tag}"
            found |= {name, *(f"{name} {field}" for field in kind.__struct_encode_fields__)}
    for module, kind in defined(model):
        if issubclass(kind, StrEnum) and kind not in INTERNAL:
            found |= {f"state {module} {one}" for one in kind}
    found |= {f"error {one}" for one in ErrorKind}
    for module, kind in defined(control):
        if issubclass(kind, msgspec.Struct):
            found |= {f"key {module} {one}" for one in kind.__struct_encode_fields__}
    return found


def defined(package: ModuleType) -> Iterator[tuple[str, type]]:
    """The classes of a package, each after the name of its module."""
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        for kind in vars(module).values():
            if isinstance(kind, type) and kind.__module__ == module.__name__:
                yield info.name, kind


def test_names_that_users_rely_on_are_kept() -> None:
    """A name that is gone breaks somebody's script or filter, or what is stored or sent; a new one is
    added to the list.
    """
    kept = KEPT.read_text().splitlines()
    assert kept == sorted(set(kept))
    assert set(kept) - names() == set(), "gone"
    assert names() - set(kept) == set(), "new"
