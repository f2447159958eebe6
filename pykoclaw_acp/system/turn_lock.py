"""The lock that programs take around a turn of a conversation: flock(2) on a file of the data
directory. The kernel frees it when its holder dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import time
from dataclasses import dataclass
from typing import Final

from pykoclaw_acp.system import trusted_path

DIRECTORY: Final = "pykoclaw-acp.turns"
_MOST_WORDS: Final = 4096  # bytes of a lock file that are read
_LOOKS: Final = 10  # at a file that others remove meanwhile


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has a lock; what cannot be read is None. `since`: seconds since 1970."""

    program: str | None = None
    pid: int | None = None
    since: float | None = None

    def __str__(self) -> str:
        program = self.program or "another program"
        return program if self.pid is None else f"{program} (process {self.pid})"


class TurnLock:
    """A lock that is held, until `release` or the end of the process."""

    def __init__(self, descriptor: int, path: str) -> None:
        self._descriptor: int | None = descriptor
        self._path = path

    @classmethod
    def take(cls, data: str, conversation: str, program: str) -> TurnLock | Holder:
        """Take the lock, or see who has it; never waits. Raises OSError if the file cannot be
        made.
        """
        path = _path(data, conversation)
        trusted_path.make(os.path.dirname(path))
        for _ in range(_LOOKS):
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_file_of(descriptor, path):  # else its last holder has removed it
                    _write(descriptor, conversation, program)
                    return cls(descriptor, path)
            except BlockingIOError:
                try:
                    return _holder(descriptor)
                finally:
                    os.close(descriptor)
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
        return Holder()

    def release(self) -> None:
        """Release the lock; further calls do nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            try:
                with contextlib.suppress(OSError):
                    os.unlink(self._path)
            finally:
                os.close(descriptor)

    def __del__(self) -> None:
        """Close the file of a lock that was lost before anybody could release it, as memory was
        short.
        """
        if (descriptor := self._descriptor) is not None:
            os.close(descriptor)


def remove_left(data: str) -> None:
    """Remove the files of locks that nobody holds: their holders were killed."""
    directory = os.path.join(data, DIRECTORY)
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            _remove_if_free(os.path.join(directory, name))


def _remove_if_free(path: str) -> None:
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_file_of(descriptor, path):  # else another program has removed it
                os.unlink(path)
        finally:
            os.close(descriptor)


def _path(data: str, conversation: str) -> str:
    name = hashlib.sha256(conversation.encode()).hexdigest()[:32]
    return os.path.join(data, DIRECTORY, name)


def _is_file_of(descriptor: int, path: str) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return False
    ours = os.fstat(descriptor)
    return (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino)


def _write(descriptor: int, conversation: str, program: str) -> None:
    words = {
        "program": program,
        "pid": os.getpid(),
        "since": time.time(),
        "conversation": conversation,
    }
    with contextlib.suppress(OSError):  # a full disk: the lock holds, only its words are missing
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps(words).encode(), 0)


def _holder(descriptor: int) -> Holder:
    try:
        words = json.loads(os.pread(descriptor, _MOST_WORDS, 0))
    except (OSError, ValueError, RecursionError):
        return Holder()
    if not isinstance(words, dict):
        return Holder()
    program, pid, since = (words.get(name) for name in ("program", "pid", "since"))
    return Holder(
        program if isinstance(program, str) else None,
        pid if isinstance(pid, int) else None,
        since if isinstance(since, float) else None,
    )
