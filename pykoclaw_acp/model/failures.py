"""Why a turn has no answer: the plain data that frames, rows and outcomes carry.

The exceptions are in errors.py; the event that tells the user is `Failure` in events.py.
"""

from __future__ import annotations

from typing import Final

import msgspec

from pykoclaw_acp.error_kinds import ErrorKind

# Kinds for want of a credential; clients then offer a login.
AUTHENTICATION: Final = (
    ErrorKind.AUTHENTICATION_MISSING,
    ErrorKind.AUTHENTICATION_FAILED,
    ErrorKind.AUTHENTICATION_EXPIRED,
    ErrorKind.AUTHENTICATION_GATEWAY,
    ErrorKind.AUTHENTICATION_WITHHELD,
)
# Kinds with which the same prompt may succeed when it is sent again, without a change by anybody.
RETRYABLE: Final = frozenset(
    {
        ErrorKind.USAGE_LIMIT,
        ErrorKind.RATE_LIMIT,
        ErrorKind.OVERLOADED,
        ErrorKind.SERVER_ERROR,
        ErrorKind.SERVICE_UNREACHABLE,
        ErrorKind.START_LIMIT,
        ErrorKind.START_TIMEOUT,
        ErrorKind.SPOOL_PENDING,
        ErrorKind.CONVERSATION_BUSY,
        ErrorKind.SHUTTING_DOWN,
        ErrorKind.NOT_STARTED,
        ErrorKind.OUT_OF_DESCRIPTORS,
        ErrorKind.OUT_OF_MEMORY,
        ErrorKind.OUT_OF_PROCESSES,
        ErrorKind.STORE_BLOCKED,
        ErrorKind.STORE_LOCKED,
    }
)


class TurnFailure(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why a turn failed: `kind` for programs, `message` for people, HTTP `status` where there is
    one.

    `retry_after`: seconds, from the turn's end, before which it is useless to try again.
    `resets_at`: when the usage limit ends (seconds since 1970). `begun`: the turn has used tools, which
    the same prompt would have done again.
    """

    kind: ErrorKind
    message: str
    status: int | None = None
    retry_after: int | None = None
    resets_at: int | None = None
    begun: bool = False

    @property
    def retryable(self) -> bool:
        """Whether the same prompt may succeed later, and repeats nothing."""
        return self.kind in RETRYABLE and not self.begun
