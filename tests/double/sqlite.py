"""The SQLite of the double: the standard library's, unless a test's process has chosen already."""

from __future__ import annotations

import sys

if "pytest" in sys.modules:
    # Two engines in one process drop each other's locks on a file.
    from pykoclaw_acp.store.sqlite import sqlite3
else:
    import sqlite3

__all__ = ["sqlite3"]
