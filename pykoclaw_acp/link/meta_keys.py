"""Keys of our own in `_meta` of updates that the daemon writes and commands read."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` would cost the front half of its start-up time
if TYPE_CHECKING:
    from typing import Final

ORIGIN: Final = "pykoclaw.dev/origin"
NOTE: Final = "pykoclaw.dev/note"
LINE: Final = "pykoclaw.dev/line"
OLD_LINE: Final = "pykoclaw.dev/oldLine"
