"""Directories of conversations that no client has opened, as pykoclaw makes them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.system import trusted_path

# Errors of the machine, which pass; any other one is of the name or of what is there.
_PASSING: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EINTR, errno.EIO}
)


async def of_conversation(data: Path, name: str) -> str:
    """`conversations/<name>` in the data directory, made if it is missing.

    Raises InvalidParams if the name would lead elsewhere, or no directory can have it; OSError if
    the machine lacks something.
    """
    if "/" in name or "\0" in name or name in ("", ".", ".."):
        raise InvalidParams("The name of the conversation cannot be that of a directory.")
    folder = data / "conversations" / name
    try:
        await asyncio.to_thread(_make, folder)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno in _PASSING:
            raise
        reason = error.strerror if isinstance(error, OSError) else "it is not valid text"
        raise InvalidParams(f"The conversation has no directory: {reason}.") from error
    return str(folder)


def _make(folder: Path) -> None:
    """For this user alone, or for the group with which the data directory is shared."""
    made = [one for one in (folder.parent, folder) if not one.is_dir()]
    trusted_path.make(str(folder))
    shared = folder.parents[1].stat()
    if shared.st_mode & 0o2072 == 0o2070:
        for one in made:
            with contextlib.suppress(PermissionError):  # not a group of ours
                os.chown(one, -1, shared.st_gid)
                one.chmod(0o2770)


async def ensure(session: Session, data: Path) -> None:
    """Let the workers of a session that no client has opened run in its conversation's directory.

    The first client that opens the session still decides about its directory. Raises InvalidParams.
    """
    if session.record.cwd is None and not session.options.cwd:
        folder = await of_conversation(data, session.record.conversation_name)
        session.next_worker.change(replace(session.options, cwd=folder))
