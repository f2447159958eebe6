"""Exit codes that the CLI does not tell: those of a subagent's commands, whose results come without
the CLI's own form of them.
"""

from __future__ import annotations

import re
from typing import Final

# Programs that say something with a code other than 0, which the CLI then takes for success.
_TELLING: Final = re.compile(r"(?<![\w-])(?:[ef]?grep|rg|find|diff|cmp|test|git)(?![\w-])|\[")
_GOES_ON: Final = "Command running in background"


def of_success(command: str, blocks: object) -> int | None:
    """The exit code of a command that has succeeded; `blocks`: its result for the model.

    None if it is not known to be 0: no command, one that goes on in the background, or one of which
    the CLI may have taken another code for success.
    """
    goes_on = isinstance(blocks, str) and blocks.startswith(_GOES_ON)
    return None if goes_on or not command or _TELLING.search(command) else 0
