"""Pydantic models that are built when they are first used.

A third of the SDK's import builds models of MCP, of which a worker uses a few, or none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def deferred_models() -> Iterator[None]:
    """Defer the building of the models that are defined meanwhile, by `defer_build` of pydantic's
    configuration, which classes inherit.
    """
    from pydantic import BaseModel

    before = BaseModel.model_config.copy()
    BaseModel.model_config["defer_build"] = True
    try:
        yield
    finally:
        BaseModel.model_config = before
