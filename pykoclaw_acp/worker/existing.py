"""The file that a call would overwrite, for the person who decides about it."""

from __future__ import annotations

import os
import stat
from typing import Final

from pykoclaw_acp.model.blobs import amount

MOST: Final = 256 * 1024  # bytes of a file that is shown
UNKNOWN: Final = "Whether the file exists cannot be seen: its disk does not answer."
NOT_ORDINARY: Final = "This is not an ordinary file."
REPLACED: Final = "The file exists ({size}) and would be replaced; what it holds is not shown."


def before(path: str, cwd: str, added: tuple[str, ...] = ()) -> tuple[str | None, str | None]:
    """What the file holds, and a note for the user; None and None for a new file.

    A file outside of the session's directories, `cwd` and `added`, is not read, as what is shown is
    kept in the log: it may hold a secret that Claude has never seen.
    """
    try:
        # A pipe's writer would find a reader in us, and some devices do something when opened.
        if not stat.S_ISREG(os.stat(path).st_mode):
            return None, NOT_ORDINARY
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except FileNotFoundError:
        return None, None
    except OSError as error:
        return None, f"The file exists, but cannot be read ({error.strerror})."
    try:
        found = os.fstat(descriptor)
        size = amount(found.st_size)
        if not stat.S_ISREG(found.st_mode):
            return None, NOT_ORDINARY
        if found.st_size > MOST or not any(_inside(path, one) for one in (cwd, *added)):
            return None, REPLACED.format(size=size)
        data = os.read(descriptor, MOST)
        return (None, REPLACED.format(size=size)) if b"\0" in data else (data.decode(), None)
    except (OSError, UnicodeDecodeError):
        return None, REPLACED.format(size=size)
    finally:
        os.close(descriptor)


def unseen(_path: str, _cwd: str) -> tuple[str | None, str | None]:
    """What stands for the text of `before` where the disk does not answer, without a look at it."""
    return None, UNKNOWN


def _inside(path: str, cwd: str) -> bool:
    real, root = os.path.realpath(path), os.path.realpath(cwd)
    return os.path.commonpath([real, root]) == root
