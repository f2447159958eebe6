"""Why a turn has no answer: the plain data that frames, rows and outcomes carry.

The exceptions are in errors.py; the event that tells the user is `Failure` in events.py.
"""

from __future__ import annotations

from typing import Final

import msgspec

# Kinds for want of a credential; clients then offer a login.
MISSING: Final = "authentication_missing"
REFUSED: Final = "authentication_failed"
EXPIRED: Final = "authentication_expired"
GATEWAY: Final = "authentication_gateway"
WITHHELD: Final = "authentication_withheld"
AUTHENTICATION: Final = (MISSING, REFUSED, EXPIRED, GATEWAY, WITHHELD)


class TurnFailure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a turn failed: `kind` for programs, `message` for people, HTTP `status` where there is
    one.

    `retry_after`: seconds, from the turn's end, before which it is useless to try again.
    """

    kind: str
    message: str
    status: int | None = None
    retry_after: int | None = None
