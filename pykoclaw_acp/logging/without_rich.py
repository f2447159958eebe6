"""The import of structlog without rich, which structlog imports if it is installed."""

from __future__ import annotations

import sys
from typing import Final

# For tracebacks that show local variables, which logs never do: 90 ms of each start.
_UNUSED: Final = "rich"


def import_structlog() -> None:
    """Import structlog as if rich were not installed; later imports of rich find it."""
    if _UNUSED in sys.modules or "structlog" in sys.modules:
        return
    sys.modules[_UNUSED] = None  # type: ignore[assignment]  # "not installed", to an import
    try:
        import structlog  # noqa: F401
    finally:
        del sys.modules[_UNUSED]
