"""The connection to one daemon: its lines come in, and become lines for the client and entries in the ledger."""

from __future__ import annotations

import json
import time

from pykoclaw_acp.front.flow import Outflow
from pykoclaw_acp.link.framing import MAX_LINE_IN, LineFramer, Oversized

TYPE_CHECKING = False  # `typing` would cost the front half of its start-up time
if TYPE_CHECKING:
    import _socket
    from typing import Final

    from pykoclaw_acp.front.ledger import Ledger
    from pykoclaw_acp.front.receipts import Receipts

_READ: Final = 256 * 1024  # bytes
_HEAD: Final = 2048  # bytes that may stand before a message


class Link:
    """Lines between this front and a daemon, until one of the two is gone."""

    def __init__(self, connection: _socket.socket, ledger: Ledger, client: Outflow, receipts: Receipts) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._ledger = ledger
        self._client = client
        self._receipts = receipts
        self._framer = LineFramer(MAX_LINE_IN + _HEAD)
        self._sessions: dict[int, str] = {}
        self.descriptor = connection.fileno()
        self.out = Outflow(self.descriptor)
        self.welcome = False  # it has answered the hello
        self.refusal: str | None = None  # why it will not
        self._welcomed_at = 0.0
        self._dry = False

    def read(self) -> bool:
        """Take what the daemon sent; False when that was the last. Never waits."""
        try:
            data = self._connection.recv(_READ)
        except BlockingIOError:
            self._dry = True
            return True
        except OSError:
            return False
        for line in self._framer.feed(data):
            if not isinstance(line, Oversized):
                self._take(bytes(line))
        return bool(data)

    @property
    def stood(self) -> float:
        """Seconds since the daemon has answered the hello."""
        return time.monotonic() - self._welcomed_at

    def drain(self) -> None:
        """Take what a daemon has left behind that reads no more."""
        self._dry = False
        while self.read() and not self._dry:
            pass

    def close(self) -> None:
        """What was not sent is in the ledger."""
        self._connection.close()

    def confirm(self) -> None:
        """Tell the daemon what has arrived at the client."""
        seen = self._receipts.seen
        for token, session_id in self._sessions.items():
            if session_id in seen:
                self.out.put(b"seen %d %d\n" % (token, seen.pop(session_id)))
        # What is left waits until the session is attached here; one that is followed no more needs no confirmation.
        for session_id in [session_id for session_id in seen if session_id not in self._ledger.sessions]:
            del seen[session_id]

    def report_answers(self) -> None:
        """Tell the daemon which answers have arrived, and first what was shown before them."""
        if self._receipts.done:
            self.confirm()
        for number in self._receipts.done:
            self.out.put(b"done %d\n" % number)
        self._receipts.done.clear()

    def _take(self, line: bytes) -> None:
        kind, _, rest = line.partition(b" ")
        try:
            self._do(kind, rest)
        except ValueError:
            return  # of a newer daemon's lines, what is not understood is passed over

    def _do(self, kind: bytes, rest: bytes) -> None:
        if kind == b"update":
            token, seq, update = rest.split(b" ", 2)
            self._move(int(token), int(seq), update)
        elif kind == b"answer":
            number, _, answer = rest.partition(b" ")
            if self._ledger.answered(int(number), answer):
                self._write(answer)
                self._receipts.answered(int(number), self._client.total)
        elif kind == b"ack":
            self._ledger.acknowledge(int(rest))
        elif kind == b"cursor":
            token, seq = rest.split()
            self._move(int(token), int(seq), b"")
        elif kind == b"attached":
            self._attached(rest)
        elif kind == b"detached":
            session_id = self._sessions.pop(int(rest), None)
            if session_id is not None:
                self._ledger.detached(session_id)
        elif kind == b"request":
            self._request(rest)
        elif kind == b"notify":
            self._ledger.notified(rest)
            self._write(rest)
        elif kind == b"welcome":
            self.welcome, self._welcomed_at = True, time.monotonic()
        elif not self.welcome and kind.startswith(b"{"):
            self._refused(kind + b" " + rest)

    def _refused(self, line: bytes) -> None:
        """As any client is refused, since the daemon has not heard that this is a front."""
        message = json.loads(line)
        error = message.get("error") if isinstance(message, dict) else None
        if isinstance(error, dict) and isinstance(error.get("message"), str):
            self.refusal = error["message"]

    def _move(self, token: int, seq: int, update: bytes) -> None:
        session_id = self._sessions.get(token)
        if session_id is None:
            return  # it was closed
        self._ledger.sessions[session_id].seq = seq
        if update:
            self._write(update)
        self._receipts.shown(session_id, seq, self._client.total)

    def _attached(self, rest: bytes) -> None:
        token, seq, number, name = rest.split(b" ", 3)
        session_id = self._sessions[int(token)] = json.loads(name)
        self._ledger.attached(session_id, int(seq), int(number))
        if int(seq) < self._receipts.places.get(session_id, 0):
            del self._receipts.places[session_id]  # it is given everything anew

    def _request(self, rest: bytes) -> None:
        text = rest.decode()
        ask_id, end = json.JSONDecoder().raw_decode(text)
        if self._ledger.asks(ask_id):
            self._write(text[end:].lstrip().encode())

    def _write(self, message: bytes) -> None:
        self._client.put(message + b"\n")
