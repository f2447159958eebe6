"""One request to the daemon, for commands, on a connection of its own."""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Generator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import (
    CommandFailed,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    NestedCaller,
    Overloaded,
    SessionNotFound,
    StartupError,
    StoreUnavailable,
)
from pykoclaw_acp.front.dial import RESTART, Dialer, NotStarted
from pykoclaw_acp.link import places as at
from pykoclaw_acp.link.framing import MAX_PROMPT_EARLY, LineFramer, Oversized
from pykoclaw_acp.link.places import Places
from pykoclaw_acp.system.environment import of_sessions

if TYPE_CHECKING:
    import _socket

STARTS: Final = (
    "The daemon (pid {pid}) does not serve yet: it recovers or migrates its database, which may take minutes. Wait for"
    " it; its log is {log}."
)
_READ: Final = 256 * 1024  # bytes
_BUSY_PAUSE: Final = 0.02  # s between two attempts to reach a daemon that takes no connection now
_BUSY_TIMEOUT: Final = 10.0  # s
_START_TIMEOUT: Final = 15.0  # s; for a daemon that has been started just now
_LOOK: Final = "Look before you repeat a command that changes something."
# Of an error with another code, such as an internal one, it is not known when it has happened.
_REFUSALS: Final = frozenset(
    one.code
    for one in (
        InvalidParams,
        InvalidRequest,
        MethodNotFound,
        NestedCaller,
        Overloaded,
        SessionNotFound,
        StoreUnavailable,
    )
)


class DaemonAbsent(StartupError):
    """No daemon serves the data directory, or it went away before it had answered; or the next one
    refuses for now what an earlier one has had. `stood`: how long there was a connection (s); None if
    there was none, or the call was refused, so that nothing of it was kept.
    """

    def __init__(self, message: str, stood: float | None = None) -> None:
        super().__init__(message)
        self.stood = stood


class NoDaemon(DaemonAbsent):
    """No process has the data directory: a daemon can be started."""


class CallFailed(Exception):
    """The daemon answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data

    @property
    def is_refusal(self) -> bool:
        """Whether the call was certainly refused, so that nothing of it was kept."""
        kind = (self.data or {}).get("errorKind")
        return self.code in _REFUSALS and kind != ErrorKind.STORE_UNCERTAIN

    @property
    def passes(self) -> bool:
        """Whether the call was certainly refused, and may be sent again in a moment."""
        return self.is_refusal and bool((self.data or {}).get("retryable"))


def unfit(prompt: str) -> str:
    """Why the daemon would not take the prompt on such a connection; empty if it would."""
    if not prompt.strip():
        return "The prompt is empty."
    try:
        if len(_encoded(prompt)) <= MAX_PROMPT_EARLY:
            return ""
    except CommandFailed as error:
        return str(error)
    return f"The prompt is longer than {MAX_PROMPT_EARLY >> 10} KiB; nothing was sent. Put long material in files."


def given_environment() -> dict[str, str]:
    """What of this process's environment is a session's matter, as a request can hold it."""
    found = of_sessions(os.environ)
    return {name: value.encode(errors="replace").decode() for name, value in found.items()}


def call(
    places: Places,
    method: str,
    params: dict[str, Any],
    *,
    start: bool = False,
    timeout: float | None = None,
    lock: int | None = None,
    served: bool = False,
) -> Any:
    """Call a method of the daemon. `start`: start a daemon if none runs, with the `lock` on that, if
    the caller has it, which is closed; `timeout`: in seconds, for each message; `served`: as in
    `follow`.

    Raises DaemonAbsent, CallFailed, ConfigurationError (the socket is another user's), CommandFailed
    (a parameter is no text), or StartupError with the exit status of a daemon that could not start.
    """
    answers = follow(places, method, params, start=start, timeout=timeout, lock=lock, served=served)
    while True:
        try:
            next(answers)
        except StopIteration as end:
            return end.value


def follow(
    places: Places,
    method: str,
    params: dict[str, Any],
    *,
    start: bool = False,
    timeout: float | None = None,
    lock: int | None = None,
    served: bool = False,
) -> Generator[dict[str, Any], None, Any]:
    """Call a method; yields the notifications that the daemon sends before its response, and
    returns the result. `served`: a daemon has had the call already; a start of the next one that
    fails is repeated, as for a client that was served, and a refusal that passes is DaemonAbsent.

    Closing the generator closes the connection. Raises as `call`.
    """
    line = _encoded({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}) + b"\n"
    connection = _connection(places, start=start, lock=lock, served=served)
    connection.settimeout(timeout)
    since = time.monotonic()
    try:
        with suppress(ConnectionError):  # one that is refused at once: the answer is there
            connection.sendall(line)
        framer = LineFramer()
        while data := connection.recv(_READ):
            for answer in framer.feed(data):
                message = {} if isinstance(answer, Oversized) else json.loads(answer)
                if "method" in message:
                    yield message
                elif message.get("id", 0) in (1, None):  # without an id for any client
                    return _result(message, served=served)
    except TimeoutError:
        raise DaemonAbsent(
            f"The daemon has not answered within {timeout:g} s: it may hang.",
            time.monotonic() - since,
        ) from None
    except OSError as error:
        raise DaemonAbsent(
            f"The daemon is gone ({error.strerror}). {_LOOK}", time.monotonic() - since
        ) from error
    finally:
        connection.close()
    raise DaemonAbsent(
        f"The daemon ended before it had answered. {_LOOK}", time.monotonic() - since
    )


def _encoded(message: Any) -> bytes:
    """The message as JSON in UTF-8. Raises CommandFailed for bytes that are no text, as a file's name
    may have: the daemon would take another one for it.
    """
    try:
        return json.dumps(message, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise CommandFailed(
            "The arguments, the input or the directory's name contain bytes that are not valid UTF-8; nothing was sent."
        ) from None


def _result(message: dict[str, Any], *, served: bool) -> Any:
    error = message.get("error")
    if error is None:
        return message.get("result")
    failed = CallFailed(
        error.get("code", -32603), error.get("message", "The daemon refused."), error.get("data")
    )
    # As when many come again at once to a daemon that has just started
    if served and failed.passes:
        raise DaemonAbsent(failed.message) from failed
    raise failed


def _connection(places: Places, *, start: bool, lock: int | None, served: bool) -> _socket.socket:
    connection = _start(places, lock, served=served) if start else _reach(places)
    connection.setblocking(True)
    return connection


def _reach(places: Places) -> _socket.socket:
    """Connect to the daemon, also one that is starting just now."""
    began = time.monotonic()
    while True:
        holder = at.lock_holder(places.data)
        expected = (holder is not None and holder[1] is not None) or at.is_starting(places)
        busy = False
        for path in filter(None, dict.fromkeys((places.socket, holder and holder[1]))):
            try:
                return at.connect(path)
            except BlockingIOError:
                busy = True
            except OSError:
                continue
        waited = time.monotonic() - began
        if busy and waited > _BUSY_TIMEOUT:
            raise DaemonAbsent("The daemon takes no connections: it may hang.")
        if not busy and (not expected or waited > _START_TIMEOUT):
            if holder is None:
                raise NoDaemon(f"No daemon runs for the data directory {places.data}.")
            if holder[1] and not at.serves(places.data):
                raise DaemonAbsent(STARTS.format(pid=holder[0], log=places.log))
            advice = f" {RESTART}" if holder[1] else ""
            raise DaemonAbsent(
                f"The server of the data directory {places.data} (pid {holder[0]}) has no socket that can be reached."
                + advice
            )
        time.sleep(_BUSY_PAUSE)


def _start(places: Places, lock: int | None, *, served: bool) -> _socket.socket:
    dialer = Dialer(places, lock=lock, served=served)
    poll = select.poll()
    try:
        while (connection := dialer.attempt()) is None:
            if dialer.pipe is None:
                time.sleep(dialer.pause)
                continue
            poll.register(dialer.pipe, select.POLLIN)
            poll.poll(max(0.0, dialer.deadline - time.monotonic()) * 1000 + 1)
            poll.unregister(dialer.pipe)
    except NotStarted as error:
        failure = StartupError(f"{error} The daemon's log is {places.log}.")
        failure.exit_code = error.status  # type: ignore[misc]  # each failure has the daemon's own
        raise failure from None
    except OSError as error:
        raise DaemonAbsent(
            f"The daemon cannot be started: {error.strerror} ({os.fsdecode(error.filename or '')})."
        ) from error
    except ImportError as error:  # as while it is installed anew
        raise DaemonAbsent(f"The daemon cannot be started: {error}.") from error
    finally:
        dialer.close()
    return connection
