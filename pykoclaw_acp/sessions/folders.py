"""Directories of conversations that no client has opened, as pykoclaw makes them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from msgspec.structs import replace

from pykoclaw_acp.errors import InvalidParams
from pykoclaw_acp.sessions.session import Session


async def of_conversation(data: Path, name: str) -> str:
    """`conversations/<name>` in the data directory, made if it is missing.

    Raises InvalidParams if the name would lead elsewhere.
    """
    if "/" in name or "\0" in name or name in ("", ".", ".."):
        raise InvalidParams("The name of the conversation cannot be that of a directory.")
    folder = data / "conversations" / name
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    return str(folder)


async def ensure(session: Session, data: Path) -> None:
    """Let the workers of a session that no client has opened run in its conversation's directory.

    The first client that opens the session still decides about its directory. Raises InvalidParams.
    """
    if session.record.cwd is None and not session.options.cwd:
        folder = await of_conversation(data, session.record.conversation_name)
        session.next_worker.change(replace(session.options, cwd=folder))
