"""Error numbers that mean that no file can be written."""

from __future__ import annotations

import errno

TYPE_CHECKING = False  # `typing` would cost the front half of its start-up time
if TYPE_CHECKING:
    from typing import Final

# EPERM: the directory, or the file, is immutable.
TAKES_NO_FILE: Final = frozenset({errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EPERM})
