"""Writing in pieces: what grows with the data is committed in transactions of about 0.1 s.

Other programs on the file give up after 5 s, and clients after 10.
"""

from __future__ import annotations

import time
from typing import Final

from pykoclaw_acp.store.database import Database
from pykoclaw_acp.store.units import Unit

SMALLEST: Final = 100  # rows of a piece
LARGEST: Final = 4000
PIECE_SIZE: Final = 2 * 1024 * 1024  # characters after which a piece ends
AIM: Final = 0.08  # s per commit


class Pieces:
    """The number of rows that the next piece has, from how long the ones before took."""

    def __init__(self, rows: int = SMALLEST) -> None:
        self._rows = rows

    @property
    def rows(self) -> int:
        """Rows of the next piece."""
        return min(max(self._rows, SMALLEST), LARGEST)

    async def commit(self, database: Database, unit: Unit, *, patient: bool = False) -> None:
        """Commit a piece; raises as `Database.commit`."""
        began = time.monotonic()
        await database.commit(unit, patient=patient)
        took = time.monotonic() - began
        if took > AIM:
            self._rows = max(self.rows // 2, SMALLEST)
        elif took < AIM / 2:
            self._rows = min(self.rows * 2, LARGEST)
