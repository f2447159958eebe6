"""Connect to the daemon, and start one if none runs. Of many fronts that try at once, one starts
it.
"""

from __future__ import annotations

import os
import time

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.link import places as at
from pykoclaw_acp.link import readiness
from pykoclaw_acp.link.places import Places, secure_directory

TYPE_CHECKING = False  # `typing` would cost the front half of its start-up time
if TYPE_CHECKING:
    import _socket
    from typing import Final

    from pykoclaw_acp.front.spawn import Starting

RESTART: Final = "`pykoclaw-acp restart` starts the next one; turns go on."
UNANSWERED: Final = f"The daemon does not answer. {RESTART}"
TEMPORARY: Final = 75  # EX_TEMPFAIL of sysexits.h: another server owns the data directory
UNUSABLE: Final = 78  # EX_CONFIG: among others, the database that was there is missing
FIRST_PAUSE: Final = 0.02  # s between two attempts; doubles
LONGEST_PAUSE: Final = 1.0  # s
BESIDE_PAUSE: Final = 15.0  # s; above a daemon's wait for a lock; a migration has its own limit
LOCK_PAUSE: Final = 0.03  # s; another process is starting the daemon
MAX_START_ATTEMPTS: Final = 4  # of the first daemon, if it dies without a word
# of the first daemon, if a server has the data directory that is not in sight: as after the lock's
# file was removed
MAX_REFUSED_STARTS: Final = 5
FIRST_START_PAUSE: Final = 0.25  # s until a daemon is started after one that could not; doubles
LONGEST_START_PAUSE: Final = 8.0  # s
HAND_OVER: Final = 10.0  # s for a server without a socket to end, as `serve --stdio` does
# What a client that was served waits out. DATABASE_UNUSABLE: a newer front may start its daemon, if
# a newer version has migrated the database.
PASSING: Final = frozenset(
    {
        ErrorKind.DATABASE_UNUSABLE,
        ErrorKind.OUT_OF_DESCRIPTORS,
        ErrorKind.OUT_OF_MEMORY,
        ErrorKind.OUT_OF_PROCESSES,
    }
)
TIMEOUT: Final = 60.0  # s; default of PYKOCLAW_DAEMON_TIMEOUT
# s that a daemon may take until it serves: it may have a huge database to migrate
RECOVERY: Final = 600.0
LONGEST: Final = 1_000_000.0  # s; poll(2) can wait for twice as long
# s; after a connection that ends earlier, the next one waits longer each time
MIN_UPTIME: Final = 1.0


class NotStarted(Exception):
    """No daemon can be reached or started. `status` is the exit status, `kind` the error kind for
    programs.
    """

    def __init__(self, message: str, status: int, kind: ErrorKind = readiness.UNKNOWN) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind


class Dialer:
    """Attempts to connect. Between two attempts, wait until `pipe` is readable, or for `pause`
    seconds.
    """

    def __init__(
        self,
        places: Places,
        timeout: float | None = None,
        lock: int | None = None,
        *,
        served: bool = False,
    ) -> None:
        """`timeout`: seconds after which to give up on a daemon that does not answer, or on a
        missing database. `lock`: the lock on starting daemons, if the caller has it; it is closed
        with the first that was started. `served`: by an earlier daemon.

        By default a daemon that recovers, as its lock file says, gets longer than another server of
        the data directory.
        """
        self.places = places
        self._timeout = _timeout(TIMEOUT) if timeout is None else timeout
        self._recovery = _timeout(RECOVERY) if timeout is None else timeout
        self._starting: Starting | None = None
        self.deadline = 0.0  # for the daemon that is starting, monotonic
        self._lock = lock
        self._scope = True
        self._failed_starts = 0
        self._refused_starts = 0
        self._refused: NotStarted | None = None  # why the next daemon is started
        self._start_at = 0.0  # only then
        self._start_pause = FIRST_START_PAUSE
        self._served = served  # by any daemon, ever
        self._connected = False  # to one, ever
        self._missing = ""  # what a daemon said that had found no database
        # s waited for each thing (an error's kind, the limit); which is awaited now, and since when
        self._waited: dict[tuple[ErrorKind | None, float], float] = {}
        self._awaited: tuple[tuple[ErrorKind | None, float], float] | None = None
        self._locked_since: float | None = None  # by another process, which starts a daemon
        self._next_pause = FIRST_PAUSE
        self.pause = 0.0

    @property
    def pipe(self) -> int | None:
        """The pipe on which the daemon that is starting reports."""
        return None if self._starting is None else self._starting.pipe

    def patience(self) -> float:
        """Seconds that a daemon which was connected to may take to answer: one that does not serve
        yet, as systemd's socket may lead to, recovers. A look at /proc/locks takes some 10 ms.
        """
        return self._timeout if at.serves(self.places.data) else self._recovery

    def note_welcome(self, seconds: float) -> None:
        """A daemon had served the client, and its connection ended `seconds` after the welcome: reset
        the counts of failures.
        """
        self._served = self._connected = True
        self._failed_starts, self._waited, self._awaited = 0, {}, None
        self._refused, self._start_pause = None, FIRST_START_PAUSE
        self._scope = True  # what failed once need not fail again
        if seconds >= MIN_UPTIME:
            self._next_pause, self.pause = FIRST_PAUSE, 0.0
        else:
            self._wait()

    def note_refusal(self, refusal: str | None = None) -> None:
        """The connection ended before the daemon had served the client; `refusal` is its reason, if
        it gave one.

        Raises NotStarted if that goes on.
        """
        message, status = (
            ("The daemon ends before it answers.", 1) if refusal is None else (refusal, TEMPORARY)
        )
        self._wait_out(NotStarted(message, status))

    def attempt(self) -> _socket.socket | None:
        """Try once; None if it must be tried again. Never blocks.

        Raises NotStarted when trying again would not help, ConfigurationError as `places.connect`
        does, and OSError or ImportError if none can be started; not at once if a daemon has served
        already.
        """
        self.pause = 0.0
        if self._starting is not None and not self._check_ready(self._starting):
            return None
        try:
            return self._reach() or self._start()
        except (OSError, ImportError) as error:
            self._unlock()
            if not self._served:
                raise
            # As while no process can be forked, or the program is installed anew.
            self._wait_out(error)
            return None

    def close(self) -> None:
        """Stop waiting for the daemon that is starting."""
        if self._starting is not None:
            self._starting.close()
            self._starting = None
        self._unlock()

    def _reach(self) -> _socket.socket | None:
        """Connect to a running daemon. None: there is none; with a pause set, none may be started
        now either.
        """
        try:
            return at.connect(self.places.socket)
        except BlockingIOError:
            self._wait()  # it is there, and slow: that is no reason to give up
            return None
        except OSError:
            pass
        holder = at.lock_holder(self.places.data)
        if holder is None:
            return None
        pid, socket = holder
        if socket is not None and socket != self.places.socket:
            try:
                return at.connect(socket)
            except OSError:
                pass
        message = (
            f"Another pykoclaw-acp server (pid {pid}) uses the data directory {self.places.data}."
        )
        if serves := at.serves(self.places.data):
            message = (
                f"The daemon (pid {pid}) of the data directory {self.places.data} cannot be reached:"
                f" its socket {socket} is gone. {RESTART}"
            )
        # One that names a socket, and does not serve yet, will when it has recovered.
        limit = self._timeout if serves or socket is None else self._recovery
        if socket is None and not self._served:
            limit = min(limit, HAND_OVER)
        self._wait_out(NotStarted(message, TEMPORARY, ErrorKind.DATA_IN_USE), limit)
        return None

    def _start(self) -> _socket.socket | None:
        """Start a daemon, unless another process is doing so."""
        if self.pause or self._check_database_missing():
            return None
        if self._refused is not None and time.monotonic() < self._start_at:
            self._wait_out(self._refused)
            return None
        from pykoclaw_acp.front import inside  # as below: only who starts a daemon needs it

        if (words := inside.refusal(self.places)) is not None:
            raise NotStarted(words, 1, ErrorKind.NESTED_CALLER)
        secure_directory(self.places.directory, "PYKOCLAW_STATE")
        if self._lock is None:
            self._lock = at.try_lock(os.path.join(self.places.directory, at.SPAWN_LOCK))
        if self._lock is None:
            self._wait_for_lock()
            return None
        self._locked_since = None
        # Between the look and the lock, one may have been started.
        connection = self._reach()
        if connection is not None or self.pause:
            self._unlock()
            return connection
        from pykoclaw_acp.front.spawn import Starting, can_have_scope

        scope = self._scope and can_have_scope()
        self._starting = Starting(self.places, scope=scope, lock=self._lock)
        self.deadline = time.monotonic() + self._recovery
        return None

    def _wait_for_lock(self) -> None:
        """Pause, as another process starts the daemon. Raises NotStarted if that takes too long, but
        not for a front that was connected: it has a client, which decides.
        """
        now = time.monotonic()
        self._locked_since = now if self._locked_since is None else self._locked_since
        if now - self._locked_since >= self._recovery and not self._connected:
            raise NotStarted(
                f"The daemon that another process starts is not ready after {self._recovery:g} s.",
                TEMPORARY,
            )
        self.pause = LOCK_PAUSE

    def _check_ready(self, daemon: Starting) -> bool:
        """True once the started daemon is ready; otherwise sets the pause. Raises NotStarted."""
        word = daemon.word()
        if word is None:
            if time.monotonic() >= self.deadline:
                raise NotStarted(
                    f"The daemon that was started is not ready after {self._recovery:g} s.", 1
                )
            return False
        self.close()
        if word == readiness.READY:
            return True
        if not word:
            self._start_failed()
            return False
        status, message = readiness.failure(word)
        if status == readiness.NOT_EXECUTED:  # as while it is installed anew
            self._start_failed(message, daemon.kind)
            return False
        if status == TEMPORARY or (self._served and daemon.kind in PASSING):
            self._start_refused(NotStarted(message, status, daemon.kind))
            return False
        if status == UNUSABLE and self._served and not self._has_database():
            self._missing = message
            return False
        if self._served and daemon.kind == ErrorKind.DATABASE_MISSING:
            # It is back since that daemon looked.
            self._start_refused(NotStarted(message, status, daemon.kind))
            return False
        raise NotStarted(message, status, daemon.kind)

    def _has_database(self) -> bool:
        return os.path.exists(os.path.join(self.places.data, at.DATABASE))

    def _check_database_missing(self) -> bool:
        """True while the database that the last daemon missed is absent: none is started until it
        is back.
        """
        if not self._missing or self._has_database():
            self._missing = ""
            return False
        self._wait_out(NotStarted(self._missing, UNUSABLE, ErrorKind.DATABASE_MISSING))
        return True

    def _start_failed(self, message: str = "", kind: ErrorKind = readiness.UNKNOWN) -> None:
        self._scope = False  # it may have been systemd-run that failed
        self._failed_starts += 1
        ended = f"The daemon ended before it was ready, {self._failed_starts} times."
        error = NotStarted(message or ended, 1, kind)
        if self._served:
            self._back_off(error)  # it may just be installed anew; clients depend on this one
            return
        if self._failed_starts >= MAX_START_ATTEMPTS:
            raise error
        self._wait()

    def _start_refused(self, error: NotStarted) -> None:
        """Pause before the next start; raises the error if that would not help."""
        self._refused_starts += 1
        final = error.kind == ErrorKind.DATA_IN_USE and not self._served
        if final and self._refused_starts >= MAX_REFUSED_STARTS:
            raise error
        self._back_off(error)

    def _back_off(self, error: NotStarted) -> None:
        """Start the next daemon later each time, as a start costs a second of CPU time; one that
        another process starts is found meanwhile.
        """
        self._refused = error
        self._start_at = time.monotonic() + self._start_pause
        self._start_pause = min(2 * self._start_pause, LONGEST_START_PAUSE)
        self._wait_out(error)

    def _wait_out(
        self, error: NotStarted | OSError | ImportError, limit: float | None = None
    ) -> None:
        """Pause before the next attempt; raises the error if the time for waits like this is over."""
        limit = self._timeout if limit is None else limit
        now, kind = time.monotonic(), (getattr(error, "kind", None), limit)
        if self._awaited is not None:
            before, since = self._awaited
            took = min(now - since, self.pause + BESIDE_PAUSE)
            self._waited[before] = self._waited.get(before, 0.0) + took
        self._awaited = kind, now
        if self._waited.get(kind, 0.0) >= limit:
            raise error
        self._wait()

    def _wait(self) -> None:
        self.pause, self._next_pause = self._next_pause, min(2 * self._next_pause, LONGEST_PAUSE)

    def _unlock(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _timeout(default: float) -> float:
    try:
        value = float(os.environ.get("PYKOCLAW_DAEMON_TIMEOUT") or default)
    except ValueError:
        return default
    return min(value, LONGEST) if value > 0 else default
