"""Pydantic models that are built when they are first used.

A third of the SDK's import builds models of MCP, of which a worker uses a few, or none.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any, Final

_lock: Final = threading.Lock()
_before: Final[list[Any]] = []  # the configuration without it, once for each who defers now


@contextlib.contextmanager
def deferred_models() -> Iterator[None]:
    """Defer the building of the models that are defined meanwhile, by `defer_build` of pydantic's
    configuration, which classes inherit: until the last one who does that, of all threads, has ended.
    """
    from pydantic import BaseModel

    with _lock:
        _before.append(_before[0] if _before else BaseModel.model_config.copy())
        BaseModel.model_config["defer_build"] = True
    try:
        yield
    finally:
        with _lock:
            before = _before.pop()
            if not _before:
                BaseModel.model_config = before
