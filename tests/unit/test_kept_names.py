"""Names that programs of users depend on: they may become more, and are not renamed."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path

import msgspec

from pykoclaw_acp.config import listing, loading
from pykoclaw_acp.protocol import control
from tests.unit.documents import PACKAGE

KEPT = Path(__file__).with_name("kept_names")


def names() -> set[str]:
    """Names of today, each after what it is."""
    sources = "\n".join(path.read_text() for path in PACKAGE.rglob("*.py"))
    extension = r"""["'](_?pykoclaw\.dev/\w[\w/]*)["']"""
    found = {f"action {one}" for one in re.findall(r'\baction="([a-z_]+)"', sources)}
    found |= {f"variable {line.env}" for line in listing.describe(loading.load())}
    found |= {f"extension {one}" for one in re.findall(extension, sources)}
    for info in pkgutil.iter_modules(control.__path__):
        module = importlib.import_module(f"{control.__name__}.{info.name}")
        for kind in vars(module).values():
            own = isinstance(kind, type) and kind.__module__ == module.__name__
            if own and issubclass(kind, msgspec.Struct):
                found |= {f"key {info.name} {one}" for one in kind.__struct_encode_fields__}
    return found


def test_names_that_users_rely_on_are_kept() -> None:
    """A name that is gone breaks somebody's script or filter; a new one is added to the list."""
    kept = KEPT.read_text().splitlines()
    assert kept == sorted(set(kept))
    assert set(kept) - names() == set(), "gone"
    assert names() - set(kept) == set(), "new"
