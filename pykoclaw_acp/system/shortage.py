"""Exhausted resources: descriptors, memory, processes; each with a sentence that says
what to do.
"""

from __future__ import annotations

import errno

from pykoclaw_acp.error_kinds import ErrorKind

TYPE_CHECKING = False  # the front imports this: `typing` would cost it half of its start-up time
if TYPE_CHECKING:
    from typing import Final

DESCRIPTORS: Final = (
    ErrorKind.OUT_OF_DESCRIPTORS,
    (
        "no file descriptor is left. Close programs that have many files open, or raise the limit (`ulimit -n`, "
        "`LimitNOFILE=` of the unit)."
    ),
)
MEMORY: Final = (
    ErrorKind.OUT_OF_MEMORY,
    (
        "there is not enough memory. End other programs or workers, or raise the limit (`ulimit -v`, `MemoryMax=` of "
        "the unit)."
    ),
)
PROCESSES: Final = (
    ErrorKind.OUT_OF_PROCESSES,
    (
        "no other process may be started. End other programs or workers, or raise the limit (`ulimit -u`, `TasksMax=` "
        "of the unit)."
    ),
)
_BY_NUMBER: Final = {
    errno.EMFILE: DESCRIPTORS,
    errno.ENFILE: DESCRIPTORS,
    errno.ENOMEM: MEMORY,
}
_OF_THE_LOADER: Final = (
    "cannot allocate memory",
    "failed to map segment",
    "cannot create shared object descriptor",
)


_WORDS: Final = {
    "too many open files": DESCRIPTORS,
    "emfile": DESCRIPTORS,
    "enfile": DESCRIPTORS,
    "cannot fork": PROCESSES,
    "can't fork": PROCESSES,
    "resource temporarily unavailable": PROCESSES,
    "cannot allocate memory": MEMORY,
    "out of memory": MEMORY,
    "enomem": MEMORY,
}
LEAST_DESCRIPTORS: Final = 48
"""What a server needs with one client and one worker."""

LEAST_MEMORY: Final = 128 * 1024 * 1024
"""Bytes of address space for the threads of a server, besides its code: each has a stack of 8 MiB."""


def lacking() -> tuple[ErrorKind, str] | None:
    """Kind and sentence of what a server lacks to start, as in `of`; None if it has enough. May
    raise soft limits.
    """
    if not allow_descriptors():
        return DESCRIPTORS
    return MEMORY if lacks_memory() else None


def allow_descriptors() -> bool:
    """Raise the soft limit of open files to what a server needs; returns whether that is allowed."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= LEAST_DESCRIPTORS:
        return True
    if hard != resource.RLIM_INFINITY and hard < LEAST_DESCRIPTORS:
        return False
    resource.setrlimit(resource.RLIMIT_NOFILE, (LEAST_DESCRIPTORS, hard))
    return True


def of_file_size() -> str | None:
    """What may be behind an I/O error where the size of files is limited, as a sentence; None
    without a limit.
    """
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft == resource.RLIM_INFINITY:
        return None
    return (
        f"Files may have {soft:,} bytes here at most: if that is why, raise the limit (`ulimit -f`, `LimitFSIZE=` of"
        " the unit)."
    )


def lacks_memory() -> bool:
    """Whether a limit leaves less address space than a server's threads need.

    Checked before the first thread starts: `Thread.start` hangs if the new thread fails before it
    signals its start.
    """
    import mmap

    if not memory_is_limited():
        return False
    try:
        mmap.mmap(-1, LEAST_MEMORY).close()
    except (OSError, MemoryError):
        return True
    return False


def of_words(words: str) -> tuple[ErrorKind, str] | None:
    """Kind and sentence for another program's last words on standard error; None if they are of
    another kind.
    """
    lowered = words.lower()
    return next((found for known, found in _WORDS.items() if known in lowered), None)


def memory_is_limited() -> bool:
    """Whether the address space of this process is limited."""
    import resource

    return resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY


def of(error: BaseException | None, *, forks: bool = False) -> tuple[ErrorKind, str] | None:
    """Kind and sentence for an error or its causes; None if they are of another kind.

    `forks`: the error is that of a fork, where EAGAIN means too many processes.
    """
    seen = 0
    while error is not None and seen < 10:
        if isinstance(error, MemoryError):
            return MEMORY
        if isinstance(error, ImportError) and any(
            words in str(error).lower() for words in _OF_THE_LOADER
        ):
            return MEMORY
        if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
            return MEMORY if memory_is_limited() else PROCESSES
        # Raised by a library that failed to set MemoryError
        if isinstance(error, SystemError) and memory_is_limited():
            return MEMORY
        if forks and isinstance(error, BlockingIOError):
            return PROCESSES
        if isinstance(error, OSError) and (found := _BY_NUMBER.get(error.errno or 0)) is not None:
            return found
        error, seen = error.__cause__ or error.__context__, seen + 1
    return None
