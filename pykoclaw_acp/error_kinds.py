"""The kinds of errors, which programs tell apart: `errorKind` in answers, failures of turns in
frames, rows and the log.

docs/protocol.md says what each means to clients.
"""

from __future__ import annotations

from enum import StrEnum


class ErrorKind(StrEnum):
    """Every kind with which this version makes an error; one of another version is kept as it is,
    and is no member.
    """

    # Claude, or its service
    AUTHENTICATION_MISSING = "authentication_missing"
    AUTHENTICATION_FAILED = "authentication_failed"
    AUTHENTICATION_EXPIRED = "authentication_expired"
    AUTHENTICATION_GATEWAY = "authentication_gateway"
    AUTHENTICATION_WITHHELD = "authentication_withheld"
    BILLING_ERROR = "billing_error"
    RATE_LIMIT = "rate_limit"
    USAGE_LIMIT = "usage_limit"  # of the account, unlike `rate_limit` one that lasts hours
    OVERLOADED = "overloaded"
    SERVICE_UNREACHABLE = "service_unreachable"
    SERVER_ERROR = "server_error"
    CONTEXT_TOO_LARGE = "context_too_large"
    IMAGE_REFUSED = "image_refused"
    DOCUMENT_REFUSED = "document_refused"
    MODEL_NOT_FOUND = "model_not_found"
    INVALID_REQUEST = "invalid_request"
    TURN_FAILED = "turn_failed"
    # the worker, and what it needs to start
    WORKER_LOST = "worker_lost"
    START_FAILED = "start_failed"
    START_TIMEOUT = "start_timeout"
    WORKSPACE_REFUSED = "workspace_refused"
    WORKSPACE_CHANGING = "workspace_changing"
    START_LIMIT = "start_limit"
    NESTED_CALLER = "nested_caller"
    SERVER_DIED = "server_died"
    SPOOL_PENDING = "spool_pending"
    CLI_NOT_FOUND = "cli_not_found"
    CLI_ENDED = "cli_ended"
    CWD_MISSING = "cwd_missing"
    CONVERSATION_BUSY = "conversation_busy"
    CONTEXT_LOST = "context_lost"
    # the daemon
    INTERNAL = "internal"
    SHUTTING_DOWN = "shutting_down"
    DAEMON_NOT_STARTED = "daemon_not_started"
    # no daemon
    DATA_IN_USE = "data_in_use"
    CONFIGURATION = "configuration"
    DIRECTORY_UNUSABLE = "directory_unusable"
    DATABASE_BUSY = "database_busy"
    DATABASE_UNUSABLE = "database_unusable"
    DATABASE_FOREIGN = "database_foreign"
    DATABASE_INCOMPATIBLE = "database_incompatible"
    DATABASE_MISSING = "database_missing"
    # the machine
    OUT_OF_DESCRIPTORS = "out_of_descriptors"
    OUT_OF_MEMORY = "out_of_memory"
    OUT_OF_PROCESSES = "out_of_processes"
    # the end of a worker or a daemon
    SERVER_LOST = "server_lost"
    WORKER_FOREIGN = "worker_foreign"
    ORPHANED = "orphaned"
    STOPPED = "stopped"
    WORKER_STOPPED = "worker_stopped"
    SPOOL_FULL = "spool_full"
    END_LOST = "end_lost"
    COPIED = "copied"
    RESTORED = "restored"
    NOT_STARTED = "not_started"
    # requests that are refused, and may be sent again unless it is uncertain whether they were kept
    STORE_LOCKED = "store_locked"
    STORE_BLOCKED = "store_blocked"
    STORE_DAMAGED = "store_damaged"
    STORE_GONE = "store_gone"
    STORE_UNCERTAIN = "store_uncertain"
    TOO_MANY_CALLS = "too_many_calls"
    TOO_MANY_CLIENTS = "too_many_clients"
    TOO_MANY_LINES = "too_many_lines"
    TOO_MANY_PROMPTS = "too_many_prompts"

    @classmethod
    def _missing_(cls, value: object) -> ErrorKind | None:
        """A kind of another version, in a frame or a row."""
        if not isinstance(value, str):
            return None
        foreign = str.__new__(cls, value)
        foreign._name_ = foreign._value_ = value
        return foreign


# Mitto takes any error with these digits, a port or an id, for a context that is too large
MISREAD = "413"
_APART = MISREAD[0] + "\u2060" + MISREAD[1:]  # reads alike, as nobody sees a word joiner


def unmistakable(words: str) -> str:
    """The words for a client that would take digits in them for a context that is too large."""
    return words.replace(MISREAD, _APART)
