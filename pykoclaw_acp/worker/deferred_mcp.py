"""The SDK's import without the servers and clients of the package mcp, and without jsonschema, which are
loaded when they are first used.

They are half of that import, and a worker needs its server only when its Claude has started.

What was left out is loaded by an import of `complete_mcp` or `complete_jsonschema`: the locks of the
import system let other threads wait for it, and not for ever for one that waits for an import of
theirs.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Collection
from types import ModuleType
from typing import Any, Final

from pykoclaw_acp.worker.deferred_models import deferred_models

_TYPES: Final = "mcp_types"  # of mcp 2: all names that the SDK takes from mcp.types
SCHEMAS: Final = ("jsonschema",)
MCP: Final = ("mcp.types", "mcp.server", "mcp")  # in the order in which they can be completed
_SDK: Final = "claude_agent_sdk"

_pending: Final[list[_Package]] = []


class _Package(ModuleType):
    """A package whose `__init__` has not run; it does when a name is wanted that it lacks. Modules
    below it can be imported before.
    """

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            _load(MCP if self.__name__ in MCP else SCHEMAS)
            if name in self.__dict__:
                return self.__dict__[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


class _Server:
    """Stands for `mcp.server.Server` in the SDK: the real server is made when it is used."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._made: Any = None
        self._arguments = arguments
        self._options = options

    def __init_subclass__(cls) -> None:
        raise TypeError("this SDK needs the server's class")

    def __getattr__(self, name: str) -> Any:
        if self._made is None:
            self._made = _real_server()(*self._arguments, **self._options)
        return getattr(self._made, name)


def import_sdk() -> None:
    """Import claude_agent_sdk; what it does not need at once is left for `complete`, if mcp is that
    of version 2.
    """
    known = any(name in sys.modules for name in ("mcp", _SDK))
    if not known and importlib.util.find_spec(_TYPES) is not None:
        try:
            _defer()
            importlib.import_module(_SDK)
        except Exception:  # noqa: BLE001  of another version, which is made in another way
            _pending.clear()
            for name in [*sys.modules]:
                if name.partition(".")[0] in ("mcp", *SCHEMAS, _SDK):
                    del sys.modules[name]
    importlib.import_module(_SDK)


def is_complete() -> bool:
    """Whether nothing is left out."""
    return not _pending


def complete() -> None:
    """Load what was left out. Raises ImportError."""
    _load(SCHEMAS)
    _load(MCP)


def prepare_server() -> None:
    """Begin to load, in a thread, what a server of the SDK consists of."""
    if _pending:
        threading.Thread(target=_real_server, name="mcp", daemon=True).start()


def execute(names: Collection[str]) -> None:
    """Run the `__init__` of those of these packages that were left out; for the modules whose import
    does that.
    """
    left = [one for one in _pending if one.__name__ in names]
    with deferred_models():
        for package in left:
            assert package.__spec__ is not None
            assert package.__spec__.loader is not None
            package.__dict__.pop("Server", None)
            package.__spec__.loader.exec_module(package)
            package.__class__ = ModuleType  # type: ignore[assignment]
            _pending.remove(package)
    if left:
        _use_real_server()


def _load(names: Collection[str]) -> None:
    name = "complete_mcp" if names is MCP else "complete_jsonschema"
    importlib.import_module(f"{__package__}.{name}")


def _real_server() -> Any:
    with deferred_models():
        return importlib.import_module("mcp.server.lowlevel.server").Server


def _defer() -> None:
    types = importlib.import_module(_TYPES)
    for name in (*reversed(MCP), *SCHEMAS):
        spec = importlib.util.find_spec(name)
        if name in sys.modules or spec is None:
            continue
        package = importlib.util.module_from_spec(spec)
        package.__class__ = _Package
        assert isinstance(package, _Package)
        _pending.insert(0, package)
        sys.modules[name] = package
        parent, _, last = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], last, package)
    sys.modules["mcp.types"].__dict__.update({one: getattr(types, one) for one in types.__all__})
    sys.modules["mcp.server"].__dict__["Server"] = _Server


def _use_real_server() -> None:
    """Let the SDK make real servers, as nothing is saved any more."""
    server = _real_server()
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] == _SDK:
            for each, value in [*vars(module).items()]:
                if value is _Server:
                    setattr(module, each, server)
