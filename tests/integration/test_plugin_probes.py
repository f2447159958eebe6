"""Plugins are tried in child processes before a worker loads them."""

from __future__ import annotations

import os
import sys
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import pytest

from pykoclaw_acp.worker.plugins import loading, probing
from pykoclaw_acp.worker.plugins.loading import GROUP
from pykoclaw_acp.worker.plugins.probing import TOO_SLOW, Probes
from tests import plugins

GOOD = "import helping\nclass Plugin: pass\n"
BAD = {
    "leaves": ("import os; os._exit(3)", "ends its process when it is loaded (status 3)"),
    "crashes": (
        "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
        "ends its process when it is loaded (signal 11)",
    ),
    "constructs": (
        "import os\nclass Plugin:\n    def __init__(self): os._exit(0)\n",
        "ends its process when it is loaded (status 0)",
    ),
    "holds": ("import ctypes; ctypes.PyDLL(None).pause()", TOO_SLOW),  # with Python's lock
}


class Place:
    """Plugins that are installed, and how often one was tried."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.forks = root / "plugins", 0
        self.memory = root / "plugins.json"
        self.probes = Probes(self.memory)
        fork = os.fork

        def counting() -> int:
            self.forks += 1
            return fork()

        monkeypatch.setattr(os, "fork", counting)
        self.root.mkdir()
        monkeypatch.syspath_prepend(self.root)
        (self.root / "helping.py").write_text("")

    def install(self, name: str, code: str) -> EntryPoint:
        plugins.install(self.root, name, code)
        (found,) = entry_points(group=GROUP, name=name)
        return found


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return Place(tmp_path, monkeypatch)


async def test_what_would_take_the_process_along_is_named(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [place.install(name, code) for name, (code, _) in BAD.items()]
    monkeypatch.setattr(probing, "LIMIT", 60.0)
    holding = found.pop()
    good, raises = place.install("good", GOOD), place.install("raises", "raise ValueError")
    whys = await place.probes.failures([good, *found, raises])
    assert whys == [None, *(why for name, (_, why) in BAD.items() if name != "holds"), None]
    monkeypatch.setattr(probing, "LIMIT", 1.0)
    assert await place.probes.failures([holding]) == [TOO_SLOW]
    assert "helping" not in sys.modules, "nothing is imported here"


async def test_loadable_plugin_is_tried_again_after_change(place: Place) -> None:
    good, raises = place.install("good", GOOD), place.install("raises", "raise ValueError")
    both = [good, raises]
    assert await place.probes.failures(both) == [None, None]
    assert await Probes(place.memory).failures(both) == [None, None]
    assert place.forks == 2 + 1, "what raises is not remembered"
    (place.root / "helping.py").write_text("import os; os._exit(1)")
    (why,) = await Probes(place.memory).failures([good])
    assert why is not None
    assert "status 1" in why
    (place.root / "helping.py").write_text("")
    place.memory.write_text("{ damaged")
    assert await place.probes.failures([good]) == [None]
    assert place.forks == 5
    assert await place.probes.failures([good]) == [None]
    assert place.forks == 5
    assert list(place.memory.parent.glob("plugins.json*")) == [place.memory]


def test_plugins_are_found_once_until_something_changes(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    def names() -> list[str]:
        return [one.name for one in loading.installed()]

    assert "late" not in names()
    with monkeypatch.context() as patched:
        patched.setattr(loading, "entry_points", None)
        assert "late" not in names()
    place.install("late", GOOD)
    assert "late" in names()
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one != os.fspath(place.root)])
    assert "late" not in names()
