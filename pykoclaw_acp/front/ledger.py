"""What a front keeps to continue with another daemon unnoticed by its client."""

from __future__ import annotations

import json
import os
import sys
import time

from pykoclaw_acp import __version__
from pykoclaw_acp.link import client_process, lines
from pykoclaw_acp.system import environment

TYPE_CHECKING = False  # `typing` would cost the front half of its start-up time
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, Final

_OPENING: Final = frozenset({"session/new", "session/load", "session/resume", "session/fork"})
_OPENING_AGAIN: Final = ("session/load", "session/resume")
_LARGEST: Final = sys.float_info.max
_MOST_DEATHS: Final = 1000  # lines of which a hello says that daemons died over them
_LOGINS: Final = frozenset({"authenticate", "logout"})
# Of their parameters: what the next daemon must be told
_KEPT: Final = (
    "additionalDirectories",
    "mcpServers",
)


class KeptLine:
    """A line of the client's, kept until it need not be re-sent."""

    __slots__ = ("acknowledged", "at", "content", "deaths", "message", "number", "session", "taken")

    def __init__(self, number: int, content: bytes | bytearray, at: float) -> None:
        self.number = number
        self.content = content
        self.at = at  # s, monotonic
        self.message: dict[
            str, Any
        ] = {}  # a request's id, method, and parameters that matter; a response's id
        self.session = ""  # that it names
        self.acknowledged = False
        self.taken = False  # a daemon has it where no death of its own is the end of it
        self.deaths = 0  # daemons that died before one had taken or acknowledged it

    @property
    def is_request(self) -> bool:
        """A request; lines after it are kept until it is answered."""
        return "method" in self.message and "id" in self.message

    def sent(self) -> bytes:
        """The line as it is sent first."""
        return lines.SENT.build(self.number, text=self.content)

    def resent(self, wall: float) -> bytes:
        """The line as it is re-sent to another daemon; `wall`: the wall clock minus the monotonic
        one.
        """
        return lines.RESENT.build(self.number, int((self.at + wall) * 1000), text=self.content)


class FollowedSession:
    """A session that the client follows. `line`: the number of the load whose replay is running, or
    0.

    `begun`: the position at which the client started. `daemon`: the process that tells it.
    """

    __slots__ = ("begun", "daemon", "line", "seq")

    def __init__(self, seq: int, line: int, begun: int, daemon: dict[str, Any] | None) -> None:
        self.seq = seq
        self.line = line
        self.begun = begun
        self.daemon = daemon


class Ledger:
    """The client's open lines, the sessions that it follows, and the daemon's pending requests."""

    def __init__(self) -> None:
        self.front = _uuid()
        self._parent = client_process.parent()  # now: it may be gone when a daemon asks
        self._environment = environment.of_sessions(os.environ) | environment.of_daemon(os.environ)
        self._logged_out = False
        self.lines: dict[int, KeptLine] = {}
        self.sessions: dict[str, FollowedSession] = {}
        self._opened: dict[str, Any] = {}  # parameters of the request that opened the session last
        self._asked: dict[str, str] = {}  # ids of requests that the client has, with the session
        self._initialize: Any = None
        self._count = 0
        self._daemon: dict[str, Any] | None = None  # which has told the newest places
        self._wall = 0.0  # s; the wall clock less the monotonic one, at the last hello
        # the daemon that was there last, and did not say that it ends
        self._lost: dict[str, Any] | None = None
        self._over: list[KeptLine] = []  # what it had not taken then

    # --- what the client sends

    def keep(self, content: bytes | bytearray, at: float) -> KeptLine:
        """Number a new line and keep it; `understand` it once it is on its way."""
        self._count += 1
        line = self.lines[self._count] = KeptLine(self._count, content, at)
        return line

    def understand(self, line: KeptLine) -> None:
        """Decode the line; the daemon refuses one that is no message."""
        try:
            message = json.loads(line.content, parse_float=_finite, parse_constant=_refuse_constant)
        except (ValueError, RecursionError):
            return
        if not isinstance(message, dict):
            return
        line.message = {key: message[key] for key in ("jsonrpc", "id", "method") if key in message}
        method = message.get("method")
        line.session = _session(message.get("params"))
        if method == "initialize" or (isinstance(method, str) and method in _OPENING | _LOGINS):
            line.message["params"] = message.get("params")
        if method == "initialize":
            self._initialize = message.get("params")
        elif method in _OPENING_AGAIN:
            self._forget_requests(line.session)
        elif method is None and isinstance(message.get("id"), str):
            self._asked.pop(message["id"], None)

    # --- what the daemon sends

    def follow_session(
        self, session_id: str, seq: int, line: int, daemon: dict[str, Any] | None = None
    ) -> None:
        """The session's updates after `seq` come next, from this daemon."""
        self.note_taken(line)
        before = self.sessions.get(session_id)
        begun = seq if before is None else min(seq, before.begun)
        self.sessions[session_id] = FollowedSession(seq, line, begun, daemon)
        self._daemon = daemon

    def drop_session(self, session_id: str) -> None:
        """The session was closed."""
        self.sessions.pop(session_id, None)
        self._opened.pop(session_id, None)

    def drop_answered(self, number: int, answer: bytes | bytearray) -> bool:
        """Keep the line no longer. False if it was answered before: the client must not get a
        second answer.
        """
        line = self.lines.pop(number, None)
        if line is None:
            return False
        if "params" in line.message:
            self._learn_from_answer(line, answer)
        self._drop_acknowledged()
        return True

    def acknowledge(self, number: int) -> None:
        """The daemon has processed the line. A notification is kept while an unanswered request
        precedes it, of the same session if it names one: that request comes again, too.
        """
        line = self.lines.get(number)
        if line is not None:
            line.acknowledged = True
            self._drop_acknowledged()

    def note_taken(self, number: int) -> None:
        """The request outlives the daemon."""
        line = self.lines.get(number)
        if line is not None:
            line.taken = True

    def note_lost(self, daemon: dict[str, Any] | None) -> None:
        """The connection to a daemon ended; None: it had said so, or nobody knows which process
        that was.
        """
        self._lost = daemon
        self._over = [line for line in self.lines.values() if not (line.taken or line.acknowledged)]

    def add_request(self, ask_id: str, request: bytes) -> bool:
        """Note a request of the daemon's. False if the client has it, or has answered it: it is not
        passed on. A client that opens the session again may have lost it, and gets it once more.
        """
        if ask_id in self._asked or any(
            line.message.get("id") == ask_id for line in self._responses()
        ):
            return False
        self._asked[ask_id] = _session(json.loads(request).get("params"))
        return True

    def note_withdrawal(self, notification: bytes | bytearray) -> None:
        """A request of the daemon's that was withdrawn may be made again."""
        if b'"$/cancel_request"' in notification:
            request_id = json.loads(notification).get("params", {}).get("requestId")
            self._asked.pop(request_id, None)

    @property
    def misreads_digits(self) -> bool:
        """Whether the client is Mitto, or gives no name, as Mitto may: as a daemon judges it."""
        if not isinstance(self._initialize, dict):
            return False
        info = self._initialize.get("clientInfo")
        name = info.get("name") if isinstance(info, dict) else None
        return name is None or (isinstance(name, str) and name.lower() in ("mitto", "unknown"))

    # --- for a new daemon

    def hello(self, arrived: dict[str, int]) -> bytes:
        """The introduction; `arrived`: by session, the last update that has arrived at
        the client.
        """
        now = time.monotonic()
        self._wall = time.time() - now
        self._count_deaths()
        deaths = [line for line in self.lines.values() if line.deaths][:_MOST_DEATHS]
        prompts = (
            line for line in self.open_requests() if line.message["method"] == "session/prompt"
        )
        taken = [line for line in prompts if line.taken][:_MOST_DEATHS]
        sessions = {
            session_id: {
                "seq": session.seq,
                "seen": min(session.seq, max(session.begun, arrived.get(session_id, 0))),
                "line": session.line,
                "opened": self._opened.get(session_id),
                **({"earlier": True} if session.daemon != self._daemon else {}),
            }
            for session_id, session in self.sessions.items()
        }
        known = {
            "front": self.front,
            "link": lines.LINK,
            "version": __version__,
            "pid": os.getpid(),
            "parent": self._parent,
            "daemon": self._daemon,
            "initialize": self._initialize,
            "sessions": sessions,
            "asked": sorted(self._asked),
            "deaths": {str(line.number): line.deaths for line in deaths},
            "taken": [line.number for line in taken],
            "environment": self._environment,
            "loggedOut": self._logged_out,
            "clocks": [int((now + self._wall) * 1000), int(now * 1000)],
        }
        # Half an emoji, which JavaScript clients send when they cut a text, is no Unicode: the
        # daemon would refuse it.
        return lines.HELLO.build(
            text=json.dumps(known, ensure_ascii=False).encode(errors="replace")
        )

    def resent_lines(self) -> list[bytes]:
        """All kept lines in order, for a connection to another daemon."""
        return [line.resent(self._wall) for line in self.lines.values()]

    def open_requests(self) -> list[KeptLine]:
        """Unanswered requests."""
        return [line for line in self.lines.values() if line.is_request]

    def quick_lines(self) -> list[KeptLine]:
        """Lines that a daemon deals with at once, and has not yet: prompts until it has taken them, and
        all others but answers to parts of a question of which a later part is open.
        """
        half = {_question(ask_id) for ask_id in self._asked}
        return [
            line
            for line in self.lines.values()
            if not line.acknowledged
            and not (line.taken and line.message.get("method") == "session/prompt")
            and not ("method" not in line.message and _question(line.message.get("id")) in half)
        ]

    def _responses(self) -> Iterator[KeptLine]:
        """Responses that the daemon will read."""
        return (
            line
            for line in self.lines.values()
            if "method" not in line.message
            and not line.acknowledged
            and line.deaths < lines.MAX_DEATHS
        )

    def _forget_requests(self, session_id: str) -> None:
        for ask_id in [one for one, session in self._asked.items() if session == session_id]:
            del self._asked[ask_id]

    def _count_deaths(self) -> None:
        """Now that another daemon is there, it can be seen what became of the one before."""
        if self._lost is not None and client_process.is_gone(self._lost):
            for line in self._over:
                line.deaths += not (line.taken or line.acknowledged)
        self._lost, self._over = None, []

    def _drop_acknowledged(self) -> None:
        before: set[str] = set()  # sessions of unanswered requests
        for number, line in list(self.lines.items()):
            if line.is_request:
                before.add(line.session)
            elif line.acknowledged:
                follows = line.session in before if line.session else bool(before)
                if "method" not in line.message or not follows:
                    del self.lines[number]

    def _learn_from_answer(self, line: KeptLine, answer: bytes | bytearray) -> None:
        result = json.loads(answer).get("result")
        params = line.message["params"]
        if line.message["method"] == "initialize":
            if result is None and self._initialize is params:
                self._initialize = None
        elif line.message["method"] in _LOGINS:
            if result is not None:
                self._logged_out = line.message["method"] == "logout"
        elif isinstance(result, dict) and isinstance(params, dict):
            session_id = str(result.get("sessionId") or params.get("sessionId"))
            self._opened[session_id] = {name: params[name] for name in _KEPT if name in params}
            followed = self.sessions.get(session_id)
            if followed is not None and followed.line == line.number:
                followed.line = 0  # the replay is complete


def _finite(number: str) -> float:
    """What would become infinite is as large as it may be: a hello repeats it, as JSON."""
    return max(-_LARGEST, min(float(number), _LARGEST))


def _refuse_constant(name: str) -> None:
    """`NaN` and `Infinity` are no JSON, whatever Python says."""
    raise ValueError(name)


def _session(params: Any) -> str:
    return str(params.get("sessionId", "")) if isinstance(params, dict) else ""


def _question(ask_id: Any) -> str:
    """Return the id of a request without its repetition (`lines.base_id`); empty if the daemon made
    no such request.
    """
    return lines.base_id(ask_id) if isinstance(ask_id, str) else ""


def _uuid() -> str:
    """A random UUID (RFC 9562, version 4); importing `uuid` would take longer than all of this
    module.
    """
    value = bytearray(os.urandom(16))
    value[6] = value[6] & 0x0F | 0x40
    value[8] = value[8] & 0x3F | 0x80
    text = value.hex()
    return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
