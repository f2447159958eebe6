"""The front's main loop: relays lines between its client and the daemon, and reconnects when a
daemon is gone.
"""

from __future__ import annotations

import errno
import os
import select
import time

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import StartupError
from pykoclaw_acp.front import words
from pykoclaw_acp.front.dial import UNANSWERED, NotStarted
from pykoclaw_acp.front.flow import Outflow
from pykoclaw_acp.front.ledger import Ledger
from pykoclaw_acp.front.link import Link
from pykoclaw_acp.front.receipts import Receipts
from pykoclaw_acp.link.framing import LineFramer, Oversized

TYPE_CHECKING = False  # `typing` would cost the front half of its start-up time
if TYPE_CHECKING:
    from typing import Final

    from pykoclaw_acp.front.dial import Dialer
    from pykoclaw_acp.front.ledger import KeptLine

READ: Final = 256 * 1024  # bytes
FULL: Final = 1024 * 1024  # bytes that wait for one side, above which the other is not read
GREET_AFTER: Final = 0.4  # s that a daemon has for the answer to `initialize`
CONFIRM_EVERY: Final = 0.1  # s
LINGER: Final = 0.05  # s, after the client's end, for what is on its way
# s, after the end of input, for what came before it to be dealt with: a daemon may have to start first
ANSWERS: Final = 10.0
# s, after a final failure, for a client that has not asked anything yet
FAILURE_LINGER: Final = 1.0

GOES_ON: Final = "Running turns continue in the daemon. Start the client again, and open the session to see them."

_GONE: Final = select.POLLERR | select.POLLHUP | select.POLLNVAL
_NEVER: Final = float("inf")


class Relay:
    """Relays for one client, over as many daemons as come and go in the meantime."""

    def __init__(self, source: int, sink: int, wake: int, dialer: Dialer | None) -> None:
        """`source`, `sink`: the client's streams, non-blocking; `wake`: readable once a signal asks
        the front to end.

        Without a `dialer`, `fail` must be called before `run`.
        """
        self._source = source
        self._wake = wake
        self._dialer = dialer
        self._client = Outflow(sink)
        self._framer = LineFramer()
        self._ledger = Ledger()
        self._receipts = Receipts()
        self._link: Link | None = None
        self._linked = False  # ever
        self._unsent = 0  # bytes that came while there was no daemon
        self._initialize: KeptLine | None = None
        self._greet_at = _NEVER
        self._dial_at = 0.0
        self._confirm_at = 0.0
        self._ended = False  # nothing more comes from the client
        self._told = False  # by a signal to end
        self._linger_until = _NEVER
        self._end_at = _NEVER
        self._failure: tuple[str, int, ErrorKind] | None = None
        self._refused = False
        self._said = False

    def run(self) -> int:
        """Relay until the client is gone or no daemon can be had; returns the exit status."""
        try:
            while not self._over():
                try:
                    self._step()
                except MemoryError:
                    self._fail_for_memory()
        finally:
            self._say_goodbye()
        return 0 if self._failure is None else self._failure[1]

    def fail(self, message: str, status: int, kind: ErrorKind) -> None:
        """Refuse all requests from now on, with this reason: there is no daemon."""
        self._failure = (" ".join(message.split()), status, kind)
        self._end_at = min(self._end_at, time.monotonic() + FAILURE_LINGER)
        for line in self._ledger.open_requests():
            self._refuse(line)
        words.say(f"pykoclaw-acp: {self._failure[0]}")

    def _fail_for_memory(self) -> None:
        """End in words; what the daemon has goes on. Raises MemoryError if that was tried already."""
        from pykoclaw_acp.system.shortage import MEMORY

        if self._failure is not None:
            raise MemoryError
        self._drop_link()
        self._framer = LineFramer()  # what was read of a long line is what there is no room for
        kind, sentence = MEMORY
        self.fail(f"The connection to the daemon ends here: {sentence} {GOES_ON}", 1, kind)

    # --- the loop

    def _over(self) -> bool:
        if self._end_at == _NEVER:
            return False
        if time.monotonic() >= self._end_at:
            return True
        if self._client.waiting:
            return False
        if self._failure is not None:
            return self._refused or self._ended
        if self._ledger.quick_lines() or (self._link is not None and self._link.out.waiting):
            return False
        return time.monotonic() >= self._linger_until or not self._ledger.open_requests()

    def _step(self) -> None:
        if self._link is None and self._failure is None and time.monotonic() >= self._dial_at:
            self._dial()
        if time.monotonic() >= self._greet_at:
            self._greet()
        self._flush()
        if self._over():  # what it waited for has just been written
            return
        ready = self._wait()
        if self._wake in ready:
            self._told = True
            self._end()
        if ready.get(self._client.descriptor, 0) & _GONE:
            self._lose_client()
        if self._link is None:
            if self._dialer is not None and self._dialer.pipe in ready:
                self._dial_at = 0.0
        elif ready.get(self._link.descriptor, 0) & ~select.POLLOUT:
            reads = self._link.read()
            if self._link.welcome:
                self._say("connected to", self._link.other_settings)
            if not reads:
                self._lose(self._link)
        if self._source in ready:
            self._read()
        if (link := self._link) and time.monotonic() >= self._answer_by and link.check_overdue():
            self._drop_link()
            self._give_up(NotStarted(UNANSWERED, 1))

    def _wait(self) -> dict[int, int]:
        """Wait for the next event or deadline; returns what poll(2) reports, by descriptor."""
        poll = select.poll()
        if not self._client.abandoned:
            poll.register(self._client.descriptor, select.POLLOUT if self._client.waiting else 0)
        if not self._told:
            poll.register(self._wake, select.POLLIN)
        if not self._ended:
            poll.register(self._source, select.POLLIN if self._may_read() else 0)
        if self._link is not None:
            reads = select.POLLIN if self._client.waiting <= FULL else 0
            writes = select.POLLOUT if self._link.out.waiting else 0
            if reads or writes:  # otherwise its end would be told again and again
                poll.register(self._link.descriptor, reads | writes)
        elif self._dialer is not None and self._dialer.pipe is not None:
            poll.register(self._dialer.pipe, select.POLLIN)
        due = self._due()
        # Half a millisecond more: poll() ends early rather than late.
        return dict(
            poll.poll(None if due == _NEVER else max(0.0, (due - time.monotonic()) * 1000 + 0.5))
        )

    def _due(self) -> float:
        """The next deadline."""
        due = min(self._end_at, self._greet_at, self._answer_by)
        if self._linger_until > time.monotonic():
            due = min(due, self._linger_until)
        if self._link is None:
            return due if self._failure is not None else min(due, self._dial_at)
        return min(due, self._confirm_at) if self._link.may_confirm else due

    @property
    def _answer_by(self) -> float:
        """When the daemon must have answered the hello, if its answer would be read."""
        link = self._link
        return _NEVER if link is None or self._client.waiting > FULL else link.answer_by

    def _flush(self) -> None:
        try:
            self._client.flush()
        except OSError as error:
            if not isinstance(error, ConnectionError) and error.errno != errno.EIO:
                said = f"Standard output cannot be written: {error.strerror}."
                self.fail(f"{said} {GOES_ON}", 1, ErrorKind.INTERNAL)
            self._lose_client()
        self._receipts.advance(self._client.written)
        if self._link is None:
            return
        self._link.report_answers()
        if self._link.may_confirm and time.monotonic() >= self._confirm_at:
            self._link.confirm()
            self._confirm_at = time.monotonic() + CONFIRM_EVERY
        try:
            self._link.out.flush()
        except OSError:
            self._link.drain()
            self._lose(self._link)

    # --- the client

    def _may_read(self) -> bool:
        return (self._unsent if self._link is None else self._link.out.waiting) <= FULL

    def _read(self) -> None:
        try:
            data = os.read(self._source, READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self._take(self._framer.feed(data) if data else self._framer.end())
        if not data:
            self._end()

    def _lose_client(self) -> None:
        """Nobody reads what is written; what the client has sent counts all the same."""
        self._client.abandon()
        if not self._ended:
            self._read()
            self._end()

    def _take(self, contents: list[bytes | bytearray | Oversized]) -> None:
        at, lines = time.monotonic(), []
        for content in contents:
            if isinstance(content, Oversized):
                self._client.put(words.too_long(content))
            elif content and not content.isspace():
                lines.append(self._ledger.keep(content, at))
        self._send(lines)
        for line in lines:
            self._ledger.understand(line)
            if line.message.get("method") == "initialize":
                self._initialize, self._greet_at = line, time.monotonic() + GREET_AFTER
            if self._failure is not None and line.is_request:
                self._refuse(line)

    def _send(self, lines: list[KeptLine]) -> None:
        if self._link is None:
            self._unsent += sum(len(line.content) for line in lines)
            return
        for line in lines:
            self._link.out.put(line.sent())
        self._link.out.try_flush()  # before the time that it takes to understand them

    def _greet(self) -> None:
        """Answer `initialize` in place of a late daemon, if a daemon would accept it."""
        line, self._initialize, self._greet_at = self._initialize, None, _NEVER
        if line is None or line.number not in self._ledger.lines:
            return
        answer = words.greeting(line.message)
        if answer is not None:
            self._ledger.drop_answered(line.number, answer)
            self._client.put(answer)

    def _refuse(self, line: KeptLine) -> None:
        assert self._failure is not None
        self._refused = True
        message, _, kind = self._failure
        self._client.put(words.refusal(line, message, kind, misread=self._ledger.misreads_digits))
        del self._ledger.lines[line.number]

    def _end(self) -> None:
        """Read nothing more of the client, and end; not before its lines were dealt with, and its
        prompts taken, unless a signal has told so.
        """
        wait = ANSWERS if self._ledger.quick_lines() and not self._told else LINGER
        self._ended = True
        self._linger_until = time.monotonic() + LINGER
        self._end_at = min(self._end_at, time.monotonic() + wait)

    # --- the daemon

    def _dial(self) -> None:
        assert self._dialer is not None
        try:
            connection = self._dialer.attempt()
        except (NotStarted, StartupError, OSError, ImportError) as error:
            self._give_up(error)
            return
        if connection is not None:
            client, patience = self._client, self._dialer.patience
            self._introduce(Link(connection, self._ledger, client, self._receipts, patience))
        starts = self._dialer.pipe is not None
        self._dial_at = self._dialer.deadline if starts else time.monotonic() + self._dialer.pause
        if self._link is None:
            self._say("starting" if starts else "waiting for")

    def _say(self, state: str, settings: list[str] | None = None) -> None:
        """The one line on standard error."""
        if not self._said and self._dialer is not None:
            words.say(words.of_connection(state, self._dialer.places.socket, settings or []))
            self._said = True

    def _introduce(self, link: Link) -> None:
        link.out.put(self._ledger.hello(self._receipts.places))
        lines = (
            self._ledger.resent_lines()
            if self._linked
            else [line.sent() for line in self._ledger.lines.values()]
        )
        for line in lines:
            link.out.put(line)
        self._link, self._linked, self._unsent = link, True, 0

    def _lose(self, link: Link) -> None:
        assert self._dialer is not None
        self._say("connected to", link.other_settings)
        link.close()
        self._link = None
        self._ledger.note_lost(None if link.ends else link.daemon)
        if link.has_served:
            self._dialer.note_welcome(link.uptime)
        else:
            try:
                self._dialer.note_refusal(link.refusal)
            except NotStarted as error:
                self._give_up(error)
        self._dial_at = time.monotonic() + self._dialer.pause

    def _drop_link(self) -> None:
        if self._link is not None:
            self._link.close()
            self._link = None

    def _give_up(self, error: NotStarted | StartupError | OSError | ImportError) -> None:
        assert self._dialer is not None
        self.fail(*words.reason(error, self._dialer.places.log))

    def _say_goodbye(self) -> None:
        self._receipts.advance(self._client.written)
        if self._link is not None:
            self._say("connected to", self._link.other_settings)
            self._link.report_answers()
            self._link.confirm()
            self._link.out.try_flush()
            self._link.close()
        if self._dialer is not None:
            self._dialer.close()
