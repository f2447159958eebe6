"""Paths of the daemon of a data directory, its lock and socket: one rule for all processes."""

from __future__ import annotations

import _socket
import fcntl
import os
import stat

from pykoclaw_acp import errors
from pykoclaw_acp.system import environment, unix_socket
from pykoclaw_acp.system.full_disk import TAKES_NO_FILE

TYPE_CHECKING = False  # `typing` would cost the front half of its start-up time
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

DATA_IN_HOME: Final = ".local/share/pykoclaw"  # the data directory, unless another is set
DATABASE: Final = "pykoclaw.db"
LOCK_NAME: Final = "pykoclaw-acp.lock"
SOCKET_NAME: Final = "acp.sock"
SPAWN_LOCK: Final = "spawn.lock"  # of whoever starts a daemon, and of that; in its directory

_SETTINGS: Final = ("pykoclaw_data", "pykoclaw_state", "pykoclaw_socket")
_DEFAULT_STATE: Final = "~/.local/state"
_LOOKS: Final = 3  # at /proc/locks
SERVES: Final = "serves"  # the lock's file: clients can connect
_LOCK_LINES: Final = 8192  # bytes of the lock file that are read

_here: dict[str, str] = {}


class Places:
    """Absolute paths: `data`, `state`, this data directory's `directory` below it, the daemon's
    `socket`.
    """

    __slots__ = ("_hash", "data", "socket", "state")

    def __init__(
        self,
        data: str | os.PathLike[str],
        state: str | os.PathLike[str],
        socket: str | os.PathLike[str] | None = None,
    ) -> None:
        """From settings; `socket` None: the default path."""
        self.data = os.fspath(data)
        self.state = os.fspath(state)
        self._hash: str | None = None
        self.socket = self._default_socket() if socket is None else os.fspath(socket)

    @classmethod
    def find(cls, *, here: bool = True) -> Places:
        """From the environment, then what `use` was given, unless not `here`, then
        `~/.local/share/pykoclaw/.env`.

        A `./.env` that nobody has vouched for has no say, and in a client's front none has: its
        directory may be a repository that was cloned, and may bring a database of its own.

        Raises ConfigurationError if a file cannot be read or a path cannot be made absolute.
        """
        found = _settings(_SETTINGS, here=here)
        data, state, socket = (found.get(name) for name in _SETTINGS)
        require_one_meaning(data or "")
        return cls(
            absolute(data or f"~/{DATA_IN_HOME}", "PYKOCLAW_DATA"),
            absolute(state or default_state(), "PYKOCLAW_STATE"),
            None if socket is None else absolute(socket, "PYKOCLAW_SOCKET"),
        )

    @property
    def hash(self) -> str:
        """Hash of the data directory's real path, twelve characters."""
        if self._hash is None:
            from hashlib import sha256  # a client in the usual place starts without it

            self._hash = sha256(os.fsencode(os.path.realpath(self.data))).hexdigest()[:12]
        return self._hash

    @property
    def directory(self) -> str:
        """The directory of this data directory's daemon: sockets, spools, logs."""
        return os.path.join(self.state, self.hash)

    @property
    def lock(self) -> str:
        """The lock file of the data directory's server. It contains the pid and, on a second line,
        the socket.
        """
        return os.path.join(self.data, LOCK_NAME)

    @property
    def log(self) -> str:
        """Log of a daemon that was started by a front."""
        return os.path.join(self.directory, "daemon.log")

    def _default_socket(self) -> str:
        runtime = os.environ.get("XDG_RUNTIME_DIR", "")
        if not _is_own_directory(runtime):
            return os.path.join(self.directory, SOCKET_NAME)
        return os.path.join(
            runtime,
            "pykoclaw",
            SOCKET_NAME if _is_the_users(self.data) else f"acp-{self.hash}.sock",
        )


def _is_the_users(data: str) -> bool:
    """Whether it is the data directory of the user's own home; with another `HOME` the same default
    is another place.

    Several homes may share the runtime directory, but must not share a socket.
    """
    import pwd

    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:  # a container's user without a name
        home = os.path.expanduser("~")
    return os.path.realpath(data) == os.path.realpath(os.path.join(home, DATA_IN_HOME))


def secure_directory(path: str | os.PathLike[str], setting: str | None = None) -> None:
    """Make `path` a directory of mode 0700, whatever the umask is; `setting` names it.

    Raises ConfigurationError if it belongs to others, is open to them, or lies where they could
    replace it.
    """
    # Not at the top: only who starts a daemon makes directories
    from pykoclaw_acp.system import trusted_path

    trusted_path.require(os.fspath(path))
    try:
        trusted_path.make(os.fspath(path))
        os.close(_open_private(os.fspath(path)))
    except OSError as error:
        raise trusted_path.unusable(path, error, setting) from error


def connect(path: str) -> _socket.socket:
    """A connection to the daemon whose socket is `path`; never waits.

    Raises OSError if nothing listens there (FileNotFoundError, ConnectionRefusedError) or it is too
    busy to take another connection (BlockingIOError), and ConfigurationError if the socket or its
    directory is another user's.
    """
    directory = _open_private(os.path.dirname(path))
    client = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        client.setblocking(False)
        client.connect(unix_socket.address(directory, os.path.basename(path)))
        owner = unix_socket.peer_uid(client)
        if owner not in (os.geteuid(), 0):  # 0: systemd listens for a system service
            raise errors.ConfigurationError(
                f"The socket {path} is served by user {owner}, not by you (user {os.geteuid()})."
            )
        client.setblocking(True)
    except BaseException:
        client.close()
        raise
    finally:
        os.close(directory)
    return client


def lock_holder(data: str) -> tuple[int, str | None] | None:
    """Pid and socket of the server that has the data directory locked; None if there is none.

    Asks /proc/locks: locking the file for a try would refuse a server that starts in the same
    moment.
    """
    pid, socket, *_ = [*_lock_lines(data), "", ""]
    return (int(pid), socket or None) if pid else None


def serves(data: str) -> bool:
    """Whether the daemon that has the data directory locked said that clients can connect; those of
    earlier versions never say it.
    """
    return _lock_lines(data)[2:3] == [SERVES]


def _lock_lines(data: str) -> list[str]:
    """What the server says that has the data directory locked; nothing if there is none."""
    try:
        # Neither a link nor a pipe that somebody has put there.
        lock = os.open(
            os.path.join(data, LOCK_NAME),
            os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
        )
        with open(lock, "rb") as file:
            pid, *more = file.read(_LOCK_LINES).split(b"\n")
            # The locks take 10 ms to list, and are listed three times if nobody has this one.
            lives = pid.isdigit() and os.path.exists(b"/proc/" + pid)
            holds = lives and pid in _holders(file.fileno())
    except OSError:
        return []
    return [os.fsdecode(line) for line in (pid, *more)] if holds else []


def is_starting(places: Places) -> bool:
    """Whether a daemon of these places is being started, and has not reported yet."""
    path = os.path.join(places.directory, SPAWN_LOCK)
    try:
        # /proc/locks does not list, in a container, a lock whose taker has ended.
        lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)  # who wants it now tries again
    except OSError as error:
        return isinstance(error, BlockingIOError)
    finally:
        os.close(lock)
    return False


def try_lock(path: str) -> int | None:
    """A descriptor that has the file locked until it is closed; None while somebody else has.

    On a disk that takes no file there is nothing to lock: then the lock of the data directory alone
    decides.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        if error.errno not in TAKES_NO_FILE:
            raise
        return os.open(os.devnull, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _holders(descriptor: int) -> list[bytes]:
    """Pids of the processes that have the open file locked; raises OSError."""
    inode = os.fstat(descriptor).st_ino
    for _ in range(_LOOKS):  # the list is read in parts: one may be passed over as others end
        with open("/proc/locks", "rb") as locks:
            found = [line.split() for line in locks]
        if holders := [fields[4] for fields in found if fields and _locks(fields, inode)]:
            return holders
    return []


def _locks(fields: list[bytes], inode: int) -> bool:
    # The device numbers are not compared: on some file systems they are not those of stat().
    return fields[1] == b"FLOCK" and fields[3] == b"WRITE" and fields[5].endswith(b":%d" % inode)


def _open_private(path: str) -> int:
    """The open directory; raises OSError if there is none, ConfigurationError if it is not ours
    alone.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    status = os.fstat(descriptor)
    if status.st_uid == os.geteuid() and not status.st_mode & 0o077:
        return descriptor
    os.close(descriptor)
    if status.st_uid != os.geteuid():
        raise errors.ConfigurationError(
            f"The directory {path} belongs to user {status.st_uid}, not to you ({os.geteuid()})."
        )
    from pykoclaw_acp.system import trusted_path

    way = trusted_path.closing(path, status.st_mode, "700", "PYKOCLAW_SOCKET or PYKOCLAW_STATE")
    raise errors.ConfigurationError(f"Others can use the directory {path}. {way}")


def _is_own_directory(path: str) -> bool:
    """XDG Base Directory Specification: the runtime directory is absolute and its user's."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return False
    return os.path.isabs(path) and stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def setting(name: str, *, given: bool = True) -> str | None:
    """What this setting is, by the rule of `Places.find`, or, unless `given`, by the home's `.env`
    alone; `name` in small letters.
    """
    return _settings((name,), here=given, given=given).get(name)


def use(values: Mapping[str, str]) -> None:
    """Let these settings of a trusted `./.env` count in this process."""
    _here.clear()
    _here.update(values)


def _settings(names: tuple[str, ...], *, here: bool = True, given: bool = True) -> dict[str, str]:
    found: dict[str, str] = {}
    home_file = os.path.expanduser(f"~/{DATA_IN_HOME}/.env")
    # Without a home, `~` stays: that would be a directory of the working directory.
    at_home = _read(home_file) if os.path.isabs(home_file) and os.path.isfile(home_file) else {}
    for values in (os.environ if given else {}, _here if here else {}, at_home):
        known = {name.lower(): value for name, value in values.items() if name.lower() in names}
        found = {name: value for name, value in known.items() if value} | found
    return found


def _read(path: str) -> Mapping[str, str]:
    from pykoclaw_acp.system import dotenv, trusted_path

    try:
        return dotenv.read(path)
    except OSError as error:
        raise trusted_path.unusable(path, error, what="The file") from error
    except UnicodeDecodeError as error:
        raise errors.ConfigurationError(f"{path} cannot be read: it is not UTF-8 text.") from error


def default_state() -> str:
    """XDG Base Directory Specification: a relative `XDG_STATE_HOME` is invalid and ignored."""
    home = os.environ.get("XDG_STATE_HOME", "")
    return os.path.join(home if os.path.isabs(home) else _DEFAULT_STATE, "pykoclaw")


def require_one_meaning(data: str) -> None:
    """Raises ConfigurationError if this value of PYKOCLAW_DATA leads pykoclaw to a database that
    is not ours: it takes a `~` for the name of a directory.
    """
    if not data.startswith("~"):
        return
    theirs = os.path.abspath(data)
    if os.path.exists(os.path.join(theirs, DATABASE)):
        raise errors.ConfigurationError(
            f"PYKOCLAW_DATA is {data[:80]!r}. pykoclaw does not expand it, and has a database in {theirs};"
            f" here it means {absolute(data, 'PYKOCLAW_DATA')}. Set it to the full path of the one that you want."
        )


def absolute(path: str, setting: str) -> str:
    """The absolute path that a setting names; raises ConfigurationError if it cannot be used."""
    expanded = os.path.expanduser(path)
    if expanded.startswith("~"):
        raise errors.ConfigurationError(
            f"{setting} is {path[:80]!r}: there is no such home directory. Set an absolute path."
        )
    path = os.path.abspath(expanded)
    if not environment.is_text(path):  # it cannot be stored
        raise errors.ConfigurationError(f"{setting}: {path[:200]!a} is not valid UTF-8. Change it.")
    return path
