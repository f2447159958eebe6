"""Start a daemon that outlives its client: in its own session and scope, with none of the client's
files open, and no child of the front, as clients end the tree of processes below their agent.
"""

from __future__ import annotations

import os
import sys
import time

from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.link import readiness
from pykoclaw_acp.link.places import Places, secure_directory
from pykoclaw_acp.system import environment, not_executed
from pykoclaw_acp.system.full_disk import TAKES_NO_FILE
from pykoclaw_acp.system.lineage import MARKS

TYPE_CHECKING = False  # `typing` would cost the front half of its start-up time
if TYPE_CHECKING:
    from typing import Final

_LOG_LIMIT: Final = 10 * 1024 * 1024  # bytes of the log, above which it is begun anew
_WORD_LIMIT: Final = 64 * 1024  # bytes
# Marks of the client's own Claude session, of the worker whose tool the client may be, and of the
# client's service.
_NOT_PASSED_ON: Final = frozenset(
    {
        "CLAUDECODE",
        "CLAUDE_CODE_SSE_PORT",
        "CLAUDE_CODE_ENTRYPOINT",
        "NOTIFY_SOCKET",
        "WATCHDOG_PID",
        "WATCHDOG_USEC",
    }
    | {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}
    | MARKS
)


class Starting:
    """A daemon that is starting, until it reports on a pipe (link/readiness.py)."""

    def __init__(self, places: Places, *, scope: bool, lock: int | None = None) -> None:
        """Start one; `scope`: in a systemd scope of its own, where there is a user's systemd. It
        keeps the `lock` on starting daemons until it has reported, as the front may be gone before.
        Raises OSError.

        A front of an earlier version, which imports this module after an upgrade, gives no lock.
        """
        secure_directory(places.directory)
        self._said = b""
        self._ended = False
        read, write = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(read, False)
        try:
            _start(
                command_line(places, scope=scope),
                _environment(places),
                _open_log(places.log),
                write,
                lock,
            )
        except BaseException:
            os.close(read)
            raise
        finally:
            os.close(write)
        self.pipe = read

    def word(self) -> str | None:
        """The first line of its report; "" if it ended without one, None while there is none. Never
        blocks.
        """
        try:
            while not self._ended and b"\n" not in self._said and len(self._said) < _WORD_LIMIT:
                data = os.read(self.pipe, _WORD_LIMIT)
                self._ended = not data
                self._said += data
        except BlockingIOError:
            return None
        line, newline, _ = self._said.partition(b"\n")
        return line.decode(errors="replace") if newline else ""

    @property
    def kind(self) -> ErrorKind:
        """The kind of failure that it reported."""
        return readiness.kind(self._said)

    def reap(self) -> bool:
        """True: it is no child. Fronts of earlier versions, which import this module after an
        upgrade, ask.
        """
        return True

    def close(self) -> None:
        """Close the pipe."""
        os.close(self.pipe)


def can_have_scope() -> bool:
    """Whether a systemd user manager can move the daemon out of its client's service."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    return (
        bool(runtime)
        and os.path.exists(os.path.join(runtime, "systemd", "private"))
        and _systemd_run() is not None
    )


def _systemd_run() -> str | None:
    candidates = (
        os.path.join(folder, "systemd-run")
        for folder in os.environ.get("PATH", os.defpath).split(":")
    )
    return next(
        (path for path in candidates if os.path.isabs(path) and os.access(path, os.X_OK)), None
    )


def command_line(places: Places, *, scope: bool) -> list[str]:
    """The command that starts the daemon; `scope`: in one of its own where systemd can give it."""
    daemon = [sys.executable, "-m", "pykoclaw_acp", "serve"]
    program = _systemd_run() if scope else None
    if program is None:
        return daemon
    # A front may start several, whose workers keep the scope of the one before. The daemon knows
    # its scope by these digits (server/origin.py).
    unit = f"--unit=pykoclaw-acp-{places.hash}-{os.getpid()}{time.time_ns()}"
    return [program, "--user", "--scope", "--collect", "--quiet", unit, "--", *daemon]


def _environment(places: Places) -> dict[str, str]:
    # What is a session's matter is said to the daemon, for the sessions of this client alone.
    withheld = _NOT_PASSED_ON | environment.of_one_client(os.environ)
    kept = {name: value for name, value in os.environ.items() if name not in withheld}
    return kept | {
        "PYKOCLAW_DATA": places.data,
        "PYKOCLAW_STATE": places.state,
        "PYKOCLAW_SOCKET": places.socket,
    }


def _open_log(path: str) -> int:
    try:
        log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno not in TAKES_NO_FILE:
            raise
        return os.open(os.devnull, os.O_WRONLY)
    if os.fstat(log).st_size > _LOG_LIMIT:
        os.ftruncate(log, 0)
    return log


def _start(
    command: list[str], environment: dict[str, str], log: int, pipe: int, lock: int | None
) -> None:
    """Fork twice and exec; importing `subprocess` would take longer than everything else here."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        environment[readiness.VARIABLE] = str(pipe)
        if lock is not None:
            environment[readiness.LOCK] = str(lock)
        pid = os.fork()
        if pid == 0:
            kept = (pipe,) if lock is None else (pipe, lock)
            _become(command, environment, (nothing, log, log), kept)
        try:  # noqa: SIM105  an import of `contextlib` would cost 1 ms
            os.waitpid(pid, 0)
        except ChildProcessError:  # the client has SIGCHLD ignored
            pass
    finally:
        os.close(nothing)
        os.close(log)


def _close_at_exec(descriptor: int) -> None:
    try:
        os.set_inheritable(descriptor, False)
    except OSError:
        return  # it was the listing's own


def _become(
    command: list[str],
    environment: dict[str, str],
    streams: tuple[int, int, int],
    kept: tuple[int, ...],
) -> None:
    """Exec the daemon, in a child of this child that nobody waits for, with these streams, and the
    pipe and the lock; if that fails, say why to the front, and in the log.
    """
    try:
        os.setsid()
        if os.fork():
            return
        os.chdir("/")
        for descriptor, source in enumerate(streams):
            os.dup2(source, descriptor)
        for name in os.listdir("/proc/self/fd"):
            if int(name) > 2:
                _close_at_exec(int(name))
        for descriptor in kept:
            os.set_inheritable(descriptor, True)
        os.execve(command[0], command, environment)  # noqa: S606  no shell is wanted
    except OSError as error:
        kind, said = not_executed.words(command[0], error, readiness.UNKNOWN)
        os.write(kept[0], readiness.failed(readiness.NOT_EXECUTED, said, kind))
        from pykoclaw_acp.neutral import neutral  # its patterns would cost every start 2 ms

        os.write(2, f"pykoclaw-acp: {neutral(said)}\n".encode(errors="replace"))
    finally:
        os._exit(readiness.NOT_EXECUTED)
