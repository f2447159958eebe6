"""What a front says by itself: answers in place of a daemon, why there is none, and lines on standard
error.
"""

from __future__ import annotations

import json
import os

from pykoclaw_acp import __version__
from pykoclaw_acp.error_kinds import ErrorKind, unmistakable
from pykoclaw_acp.errors import StartupError, TurnFailed
from pykoclaw_acp.front.dial import NotStarted
from pykoclaw_acp.link.lines import MAX_NUMBER
from pykoclaw_acp.system import environment

TYPE_CHECKING = False  # `typing` would cost the front half of its start-up time
if TYPE_CHECKING:
    from typing import Any, Final

    from pykoclaw_acp.front.ledger import KeptLine
    from pykoclaw_acp.link.framing import Oversized

REPLACED: Final = (
    "The program was replaced by another version while this client was open, and cannot start the daemon from here. "
    "Nothing was lost. Start the client again."
)

FOR_PEOPLE: Final = (
    "pykoclaw-acp is an ACP agent that runs Claude. Editors and chat front ends start it and talk JSON-RPC with it;",
    "there is nothing to type here.",
    "",
    "  In a client's settings      command: pykoclaw-acp (no arguments)",
    "  pykoclaw-acp demo           see it work, without an account",
    "  pykoclaw-acp doctor         check the installation",
    "  pykoclaw-acp sessions list  conversations so far; `prompt` goes on with one, `attach` follows it",
    "  pykoclaw-acp --help         all commands",
)


def greeting(request: dict[str, Any]) -> bytes | None:
    """The answer to this `initialize`; None if a daemon would not accept it, or may refuse it here."""
    from pykoclaw_acp.link.greeting import greeting as result
    from pykoclaw_acp.system.lineage import is_inside

    if is_inside(os.getpid()):  # it is to hear that now, not as it opens a session
        return None
    params, request_id = request["params"], request.get("id")
    # A healthcheck of pykoclaw's users names no version.
    version = params.get("protocolVersion", 1) if isinstance(params, dict) else None
    if request.get("jsonrpc") != "2.0" or type(request_id) not in (int, str):
        return None
    if type(version) is not int or not 0 <= version <= MAX_NUMBER:
        return None
    capabilities = params.get("clientCapabilities") if isinstance(params, dict) else None
    answer = result(capabilities, os.environ.get(environment.ACCOUNT))
    return _encode({"jsonrpc": "2.0", "id": request_id, "result": answer})


TAKEN: Final = (
    " The daemon had received this request and kept it: its work may continue, and what has not begun may be done when "
    "the session is opened again. Look at the session before you send the request again."
)


def refusal(line: KeptLine, message: str, kind: ErrorKind, *, misread: bool) -> bytes:
    """The error answer of a request while there is no daemon. `misread`: the client would take digits
    in it for a context that is too large.
    """
    request_id = line.message["id"]
    if misread and not str(line.message["method"]).startswith("_pykoclaw.dev/"):
        message = unmistakable(message)
    if not line.taken:
        return _error(request_id, TurnFailed.code, message, {"errorKind": kind})
    data = {"errorKind": kind, "turnState": "unknown", "retryable": False}
    return _error(request_id, TurnFailed.code, message + TAKEN, data)


def too_long(line: Oversized) -> bytes:
    """The error answer of a line that is longer than a line may be."""
    from pykoclaw_acp.link import line_id

    said = f"The line is longer than {line.limit >> 20} MiB; it was not read. Put long material in files."
    return _error(json.loads(line_id.find(line.head)), -32600, said)


def reason(
    error: NotStarted | StartupError | OSError | ImportError, log: object
) -> tuple[str, int, ErrorKind]:
    """Why there is no daemon: message, exit status and kind. `log`: the daemon's."""
    if isinstance(error, NotStarted):
        return f"{error} The daemon's log is {log}.", error.status, error.kind
    if isinstance(error, StartupError):
        return str(error), error.exit_code, error.kind
    if isinstance(error, ImportError):
        return REPLACED, 1, ErrorKind.DAEMON_NOT_STARTED
    from pykoclaw_acp.system.shortage import of

    kind, sentence = of(error, forks=True) or (
        ErrorKind.DAEMON_NOT_STARTED,
        f"{error.strerror or error}.",
    )
    return f"The daemon cannot be started: {sentence}", 1, kind


def names(said: object) -> list[str]:
    """Names of settings, as a daemon lists them."""
    return [one for one in said if isinstance(one, str)][:50] if isinstance(said, list) else []


def of_connection(state: str, socket: str, settings: list[str]) -> str:
    """The front's line. `settings`: of this environment, which the daemon does not run with."""
    other = f"; its own values of {', '.join(settings)} hold" if settings else ""
    return f"pykoclaw-acp {__version__}: {state} the daemon at {socket}{other}"


def say(text: str) -> None:
    """Write one line to standard error, which clients search for signs of a crash."""
    if not (text.isascii() and text.isprintable()):
        from pykoclaw_acp.neutral import neutral  # its patterns would cost every start 2 ms

        text = neutral(text)
    try:
        os.write(2, text.encode(errors="replace") + b"\n")
    except OSError:
        return  # nobody listens


def _error(request_id: Any, code: int, message: str, data: dict[str, Any] | None = None) -> bytes:
    error = {"code": code, "message": message} | ({} if data is None else {"data": data})
    return _encode({"jsonrpc": "2.0", "id": request_id, "error": error})


def _encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"
