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
MISREAD: Final = "413"  # Mitto takes any error with these digits, a port or an id, for a context that is too large
USAGE_LIMIT: Final = "usage_limit"  # of the account, unlike `rate_limit` one that lasts hours
UNREACHABLE: Final = "service_unreachable"
# Kinds with which the same prompt may succeed when it is sent again, without a change by anybody.
RETRYABLE: Final = frozenset(
    {
        *(USAGE_LIMIT, "rate_limit", "overloaded", "server_error", UNREACHABLE),
        *("start_limit", "start_timeout"),
        *("spool_pending", "conversation_busy", "shutting_down", "not_started"),
        *("out_of_descriptors", "out_of_memory", "out_of_processes"),
    }
)


class TurnFailure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a turn failed: `kind` for programs, `message` for people, HTTP `status` where there is
    one.

    `retry_after`: seconds, from the turn's end, before which it is useless to try again.
    `resets_at`: when the usage limit ends (seconds since 1970).
    """

    kind: str
    message: str
    status: int | None = None
    retry_after: int | None = None
    resets_at: int | None = None

    @property
    def retryable(self) -> bool:
        """Whether the same prompt may succeed later."""
        return self.kind in RETRYABLE
