"""Usage limits of subscriptions: a directive, and the headers in which the API tells of them.

The CLI reads them if it has an OAuth token; the names of the headers are those of CLI 2.1.327.
"""

from __future__ import annotations

import re
import time
from typing import Final

from .steps import Limit

STATUSES: Final = ("allowed", "allowed_warning", "rejected")
_SHORT: Final = {"five_hour": "5h", "seven_day": "7d"}
_PREFIX: Final = "anthropic-ratelimit-unified"
_OPTION: Final = re.compile(r"(resets|used|times)=(\d{1,9})")
FORM: Final = f"write limit {'|'.join(STATUSES)} [five_hour|seven_day] [resets=SECONDS] [used=PERCENT] [times=N]"


def parse(rest: str) -> Limit | None:
    """The step of a directive `limit`; None if it is none."""
    words = rest.split()
    if not words or words[0] not in STATUSES:
        return None
    window = "five_hour"
    options: dict[str, int] = {}
    for word in words[1:]:
        if word in _SHORT:
            window = word
        elif (found := _OPTION.fullmatch(word)) is not None:
            options[found[1]] = int(found[2])
        else:
            return None
    return Limit(
        words[0], window, options.get("resets", 3600), options.get("used"), options.get("times")
    )


def headers(limit: Limit) -> dict[str, str]:
    """Headers of the response that tells of the limit."""
    resets = str(int(time.time()) + limit.resets)
    used = 100 if limit.used is None and limit.status == "rejected" else limit.used or 0
    own = f"{_PREFIX}-{_SHORT[limit.window]}"
    told = {
        f"{_PREFIX}-status": limit.status,
        f"{_PREFIX}-reset": resets,
        f"{_PREFIX}-representative-claim": limit.window,
        f"{own}-status": limit.status,
        f"{own}-reset": resets,
        f"{own}-utilization": str(used / 100),
    }
    if limit.status == "allowed_warning":
        told[f"{own}-surpassed-threshold"] = str(used / 100)
    return told
