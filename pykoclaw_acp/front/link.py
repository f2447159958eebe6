"""The connection to one daemon: what it sends goes to the client and into the ledger."""

from __future__ import annotations

import json
import time

from pykoclaw_acp.front import words
from pykoclaw_acp.front.dial import MIN_UPTIME
from pykoclaw_acp.front.flow import Outflow
from pykoclaw_acp.link import lines
from pykoclaw_acp.link.framing import MAX_LINE_IN, LineFramer, Oversized

TYPE_CHECKING = False  # `typing` would cost the front half of its start-up time
if TYPE_CHECKING:
    import _socket
    from collections.abc import Callable
    from typing import Any, Final

    from pykoclaw_acp.front.ledger import Ledger
    from pykoclaw_acp.front.receipts import Receipts

_READ: Final = 256 * 1024  # bytes
_HEAD: Final = 2048  # bytes that may stand before a message
LATE: Final = 0.5  # s; most daemons have answered the hello by then


class Link:
    """The front's end of a connection to a daemon."""

    def __init__(
        self,
        connection: _socket.socket,
        ledger: Ledger,
        client: Outflow,
        receipts: Receipts,
        patience: Callable[[], float],
    ) -> None:
        """`patience`: seconds that the daemon has for its answer to the hello; it is asked only of one
        that is late.
        """
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
        self.refusal: str | None = None  # why it will not serve the client
        self.daemon: dict[str, Any] | None = None  # which process it is
        self.ends = False  # it has said so
        self.other_settings: list[
            str
        ] = []  # of its client's environment, which the daemon does not have
        self._patience: Callable[[], float] | None = patience
        self.answer_by = time.monotonic() + LATE
        """When to look whether the answer to the hello is overdue; never, once it is there."""
        self._welcomed_at = 0.0
        self._answered = False
        self._dry = False

    def read(self) -> bool:
        """Read what the daemon sent; False at the end. Never blocks."""
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
    def uptime(self) -> float:
        """Seconds since the daemon's welcome."""
        return time.monotonic() - self._welcomed_at

    @property
    def has_served(self) -> bool:
        """Whether the client was served: more came than a welcome, or the daemon stayed without a
        word of refusal.
        """
        stayed = self.welcome and self.uptime >= MIN_UPTIME and self.refusal is None
        return self._answered or stayed

    @property
    def may_confirm(self) -> bool:
        """Whether updates have arrived at the client that are to be confirmed here."""
        seen = self._receipts.seen
        return bool(seen) and not seen.keys().isdisjoint(self._sessions.values())

    def check_overdue(self) -> bool:
        """Whether the daemon has had its time to answer the hello, once `answer_by` has come; sets
        that to the end of this time.
        """
        if self._patience is not None:
            self.answer_by, self._patience = self.answer_by - LATE + self._patience(), None
        return time.monotonic() >= self.answer_by

    def drain(self) -> None:
        """Read what is left of a daemon that no longer reads."""
        self._dry = False
        while self.read() and not self._dry:
            pass

    def close(self) -> None:
        """Close the connection; unsent lines are in the ledger."""
        self._connection.close()

    def confirm(self) -> None:
        """Confirm the updates that have arrived at the client."""
        seen = self._receipts.seen
        for token, session_id in self._sessions.items():
            if session_id in seen:
                self.out.put(lines.SEEN.build(token, seen.pop(session_id)))
        # What is left waits until the session is attached here; one that is followed no more needs
        # no confirmation.
        for session_id in [
            session_id for session_id in seen if session_id not in self._ledger.sessions
        ]:
            del seen[session_id]

    def report_answers(self) -> None:
        """Confirm the answers that have arrived at the client, and the updates before them."""
        if self._receipts.done:
            self.confirm()
        for number in self._receipts.done:
            self.out.put(lines.DONE.build(number))
        self._receipts.done.clear()

    def _take(self, line: bytes) -> None:
        kind = lines.find(line, lines.FROM_DAEMON)
        try:
            if kind is not None:
                HANDLERS[kind](self, *kind.parse(line))
                self._answered |= kind not in (lines.WELCOME, lines.ATTACHED)
            elif line.startswith(b"{"):
                self._note_refusal(line)
        except ValueError:
            return  # of a newer daemon's lines, what is not understood is passed over

    def _note_welcome(self, _: list[int], known: bytes | bytearray) -> None:
        self.welcome, self._welcomed_at = True, time.monotonic()
        self.answer_by = float("inf")
        said = json.loads(known)
        self.daemon = said.get("daemon")
        self.other_settings = words.names(said.get("otherSettings"))

    def _note_farewell(self, _: list[int], __: bytes | bytearray) -> None:
        self.ends = True

    def _note_refusal(self, line: bytes) -> None:
        """An error in the place of a welcome, or of service: it may be for any client."""
        message = json.loads(line)
        error = message.get("error") if isinstance(message, dict) else None
        if isinstance(error, dict) and isinstance(error.get("message"), str):
            self.refusal = error["message"]

    def _follow_session(self, numbers: list[int], name: bytes | bytearray) -> None:
        token, seq, number = numbers
        session_id = self._sessions[token] = json.loads(name)
        self._ledger.follow_session(session_id, seq, number, self.daemon)
        if seq < self._receipts.places.get(session_id, 0):
            del self._receipts.places[session_id]  # it is given everything anew

    def _drop_session(self, numbers: list[int], _: bytes | bytearray) -> None:
        session_id = self._sessions.pop(numbers[0], None)
        if session_id is not None:
            self._ledger.drop_session(session_id)

    def _advance(self, numbers: list[int], update: bytes | bytearray) -> None:
        """Move the session's cursor; `update` is empty if there is nothing to show."""
        token, seq = numbers
        session_id = self._sessions.get(token)
        if session_id is None:
            return  # it was closed
        self._ledger.sessions[session_id].seq = seq
        if update:
            self._write(update)
        self._receipts.expect_update(session_id, seq, self._client.total)

    def _pass_answer(self, numbers: list[int], answer: bytes | bytearray) -> None:
        if self._ledger.drop_answered(numbers[0], answer):
            self._write(answer)
            self._receipts.expect_answer(numbers[0], self._client.total)

    def _pass_refusal(self, numbers: list[int], error: bytes | bytearray) -> None:
        """The daemon did not look at the line, and so does not know a request's id."""
        line = self._ledger.lines.get(numbers[0])
        if line is not None and not line.is_request:
            self._ledger.acknowledge(numbers[0])
        elif line is not None:
            request_id = json.dumps(line.message["id"]).encode()
            self._pass_answer(
                numbers, b'{"jsonrpc":"2.0","id":%b,"error":%b}' % (request_id, bytes(error))
            )

    def _note_taken(self, numbers: list[int], _: bytes | bytearray) -> None:
        self._ledger.note_taken(numbers[0])

    def _acknowledge(self, numbers: list[int], _: bytes | bytearray) -> None:
        self._ledger.acknowledge(numbers[0])

    def _pass_request(self, _: list[int], said: bytes | bytearray) -> None:
        text = said.decode()
        ask_id, end = json.JSONDecoder().raw_decode(text)
        request = text[end:].lstrip().encode()
        if self._ledger.add_request(ask_id, request):
            self._write(request)

    def _pass_notification(self, _: list[int], notification: bytes | bytearray) -> None:
        self._ledger.note_withdrawal(notification)
        self._write(notification)

    def _write(self, message: bytes | bytearray) -> None:
        self._client.put(message + b"\n")


HANDLERS: Final = {
    lines.WELCOME: Link._note_welcome,
    lines.ATTACHED: Link._follow_session,
    lines.UPDATE: Link._advance,
    lines.CURSOR: Link._advance,
    lines.DETACHED: Link._drop_session,
    lines.ANSWER: Link._pass_answer,
    lines.TAKEN: Link._note_taken,
    lines.REFUSE: Link._pass_refusal,
    lines.BYE: Link._note_farewell,
    lines.ACK: Link._acknowledge,
    lines.REQUEST: Link._pass_request,
    lines.NOTIFY: Link._pass_notification,
}
