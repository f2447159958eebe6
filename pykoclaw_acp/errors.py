"""The exceptions that callers may catch, and their JSON-RPC codes or exit statuses.

AcpError                       a request failed: the error answer of that request
├─ ParseError, InvalidRequest, MethodNotFound, InvalidParams, RequestCancelled
├─ InternalError, and its SessionUnreadable
├─ AuthRequired                Claude refused the credential
├─ SessionNotFound
├─ Overloaded, StoreUnavailable    send the request again later
│  └─ StoreUncertain, StoreDamaged, StoreSuspect    look before; not to be sent again; in a moment
├─ NestedCaller                the caller runs inside of a session
└─ TurnFailed                  a turn ended without an answer

StartupError                   the program ends, with `exit_code`
├─ DataDirectoryLocked, RestartWanted, DatabaseBusy    another try may succeed (75)
├─ DatabaseUnusable, and its DatabaseForeign, DatabaseIncompatible    (78)
├─ DatabaseMissing             (78)
├─ ConfigurationError          (78)
│  └─ DirectoryUnusable
├─ Exhausted                   the machine, or a limit, has run out of something
├─ CommandFailed, and its NoSuchSession
├─ OutputLost, DaemonAbsent    standard output cannot be written; no daemon answers
└─ DaemonNotRunning            (3)

WorkerFailed                   no worker could be had for a turn
├─ LaunchFailed                the launcher could not launch a worker, or not reach it
└─ ClaudeNotStarted            in the worker: the CLI could not be started

StoreError                     nothing of what was to be written was kept
├─ StoreClosed, and its DatabaseClosed    the server stops
├─ NoPlaceForEnd, SpoolPending, RowRefused, and its DamageMet
└─ Conflict                    the database is not as the writer expected
   └─ StaleEpoch               frames of a worker that is not its session's newest

An exception that a single package raises and catches is in that package.
What a frame, a row or an outcome says of a failed turn is plain data: `model.failures.TurnFailure`.
"""

from __future__ import annotations

from pykoclaw_acp.error_kinds import ErrorKind

TYPE_CHECKING = False  # the front imports this: `typing` would cost it half of its start-up time
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, ClassVar


class AcpError(Exception):
    """A request failed; becomes the JSON-RPC error answer of that request and of no other.

    `message` is what a person reads: one sentence, no prompt text, no secret. `data` is for
    programs.
    """

    code: ClassVar[int] = -32603

    def __init__(self, message: str, data: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.data = data


class ParseError(AcpError):
    """The line is not JSON."""

    code = -32700


class InvalidRequest(AcpError):
    """The JSON is not a request that this connection accepts now."""

    code = -32600


class MethodNotFound(AcpError):
    """No such method."""

    code = -32601


class InvalidParams(AcpError):
    """A parameter has the wrong type or an unusable value; the message names the field."""

    code = -32602


class InternalError(AcpError):
    """A fault of ours; the log has the details."""

    code = -32603


class SessionUnreadable(InternalError):
    """Rows of this session are damaged."""


class RequestCancelled(AcpError):
    """The client withdrew the request with `$/cancel_request`."""

    code = -32800


class AuthRequired(AcpError):
    """Claude refused the credential, or there is none."""

    code = -32000


class SessionNotFound(AcpError):
    """No session has this id."""

    code = -32002

    def __init__(self, session_id: str, words: str | None = None) -> None:
        # OpenCode looks for "session … not found".
        super().__init__(
            words or "Session not found. No session has this id. Begin a new one.",
            {"sessionId": session_id},
        )


class StoreUnavailable(AcpError):
    """The database cannot be written now; nothing of the request was kept, and it may be sent again
    later.

    `state` is the store's condition, `reason` a sentence that says why.
    """

    code = -32011
    what = "Nothing can be stored now."
    kept = (
        "The request was not carried out, and nothing of it was kept; what was stored before is safe."
        " Send the request again when the database can be written."
    )
    retryable = True
    kind: ErrorKind | None = None  # None: as the store's condition says

    def __init__(self, state: str, reason: str) -> None:
        super().__init__(
            f"{self.what} {reason} {self.kept}",
            {
                "errorKind": self.kind or ErrorKind(f"store_{state}"),
                "retryable": self.retryable,
                "reason": reason,
            },
        )
        self.state = state
        self.reason = reason


class StoreUncertain(StoreUnavailable):
    """The database could not be written any more while the request was stored: whether that was
    kept is not known.
    """

    kept = (
        "Whether the request was kept is not known; what was stored before is safe. When the database"
        " can be written again, look at the session before you send the request again."
    )
    retryable = False
    kind = ErrorKind.STORE_UNCERTAIN


class Overloaded(AcpError):
    """A client asks for more at a time than it may have; nothing of the request was kept, and it
    may be sent again.

    `kind` says what there is too much of.
    """

    code = -32012

    def __init__(self, message: str, kind: ErrorKind) -> None:
        super().__init__(message, {"errorKind": kind, "retryable": True})


class NestedCaller(AcpError):
    """Whoever asks runs inside of a session, and may not: `may_not` says what, and which setting
    allows it.
    """

    code = -32013

    def __init__(self, may_not: str, session_id: str | None) -> None:
        where = "a session" if session_id is None else f"session {session_id}"
        data = {"errorKind": ErrorKind.NESTED_CALLER, "setting": "PYKOCLAW_NESTED_ACCESS"}
        super().__init__(
            f"This program runs inside of {where}: Claude, or one of its tools, has started it. {may_not}",
            data if session_id is None else data | {"sessionId": session_id},
        )


class TurnFailed(AcpError):
    """A turn ended without an answer; `data.errorKind` says why (see docs/protocol.md)."""

    code = -32010  # acpx takes -32001, too, for a session that is gone, and begins a new one


class StartupError(Exception):
    """The program cannot start; the message says what is wrong and what to do.

    `kind` is for programs: `data.errorKind` of what a client asks for meanwhile.
    """

    exit_code: ClassVar[int] = 1
    kind: ErrorKind = ErrorKind.DAEMON_NOT_STARTED


class DataDirectoryLocked(StartupError):
    """Another server owns the data directory (EX_TEMPFAIL of sysexits.h)."""

    exit_code = 75
    kind = ErrorKind.DATA_IN_USE


class RestartWanted(StartupError):
    """The running server cannot go on, a new one can; workers go on meanwhile (EX_TEMPFAIL)."""

    exit_code = 75


class DatabaseBusy(StartupError):
    """Another program denies even reading the database; a later start succeeds (EX_TEMPFAIL)."""

    exit_code = 75
    kind = ErrorKind.DATABASE_BUSY


class DatabaseUnusable(StartupError):
    """The database is damaged or from a newer version, or its migrations were changed."""

    exit_code = 78
    kind = ErrorKind.DATABASE_UNUSABLE


class DatabaseMissing(StartupError):
    """There was a database, and there is none now; no empty one was made (EX_CONFIG)."""

    exit_code = 78
    kind = ErrorKind.DATABASE_MISSING


class ConfigurationError(StartupError):
    """A setting has a value that cannot be used (EX_CONFIG of sysexits.h)."""

    exit_code = 78
    kind = ErrorKind.CONFIGURATION


class DirectoryUnusable(ConfigurationError):
    """A directory, or a file in one, that the program needs cannot be used (EX_CONFIG); `ways` to
    mend it: `system.trusted_path.unusable` finds them.
    """

    kind = ErrorKind.DIRECTORY_UNUSABLE

    def __init__(
        self, path: object, error: OSError, ways: Sequence[str], what: str = "The directory"
    ) -> None:
        advice = f" To mend it, {', or '.join(ways)}." if ways else ""
        is_file = isinstance(error, FileExistsError | NotADirectoryError)
        why = "a file is in its place or above it" if is_file else error.strerror
        super().__init__(f"{what} {path} cannot be used: {why}. Nothing was changed.{advice}")


class Exhausted(StartupError):
    """The machine, or a limit, leaves no descriptors, memory or processes; nothing was begun."""

    def __init__(self, kind: ErrorKind, sentence: str) -> None:
        super().__init__(f"The program cannot go on: {sentence} Nothing was lost.")
        self.kind = kind


class CommandFailed(StartupError):
    """A command cannot do what it was asked to; the message says why."""

    certain: bool = True  # False: it may have been done all the same


class OutputLost(StartupError):
    """Standard output cannot be written; what the command was asked to do besides is done."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"Standard output cannot be written: {reason}. The output is incomplete; what the command changed stays"
            " changed. Run it again with its output somewhere else."
        )


class DaemonNotRunning(StartupError):
    """The daemon does not run, and the command does not start it."""

    exit_code = 3
    stood: float | None = None  # s that there was a connection; None: there was none


class WorkerFailed(Exception):
    """No worker could be had. `kind` is for programs, `retry_after` (s) says when to try again."""

    def __init__(self, kind: ErrorKind, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.retry_after = retry_after


class LaunchFailed(WorkerFailed):
    """No worker could be launched, or reached."""


class ClaudeNotStarted(WorkerFailed):
    """The CLI could not be started, or could not resume its session."""


class StoreError(Exception):
    """Nothing of what was to be written was kept."""


class StoreClosed(StoreError):
    """The database was closed, because the server stops; nothing was read or written."""


class NoPlaceForEnd(StoreError):
    """The end of a turn can never be recorded: its session or its row is gone from the journal."""


class SpoolPending(StoreError):
    """A dead worker's spool is not in the log yet: its session gets no other worker before."""


class RowRefused(StoreError):
    """A row breaks a rule of its table; nothing of its unit was kept."""


class DamageMet(RowRefused):
    """A unit needs a damaged part of the database; nothing of it was kept."""


class Conflict(StoreError):
    """The database is not as the writer expected; nothing of its unit was kept."""


class StaleEpoch(Conflict):
    """Frames of a worker that is not its session's newest; nothing of their unit was kept."""
