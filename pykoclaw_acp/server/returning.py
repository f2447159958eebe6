"""A front that comes back after the daemon was away: its client is put where it was."""

from __future__ import annotations

from collections import Counter
from typing import Final, TypeVar

import msgspec
import structlog

from pykoclaw_acp.errors import AcpError
from pykoclaw_acp.protocol import long_lines
from pykoclaw_acp.protocol.messages import InitializeParams, ResumeSessionParams
from pykoclaw_acp.server import lifecycle
from pykoclaw_acp.server.connection import Connection
from pykoclaw_acp.server.link import NOTHING, Followed, FrontHello

log: Final = structlog.get_logger()

T = TypeVar("T")


async def welcome(connection: Connection, hello: FrontHello) -> None:
    """Initialized if it was, attached to its sessions from where it stood; what was settled meanwhile is withdrawn."""
    if hello.initialize != NOTHING:
        try:
            params = _decode(hello.initialize, InitializeParams)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            params = InitializeParams(protocol_version=0)
        connection.initialized(params)
    owners = Counter(connection.sessions.owner(session_id) for session_id in hello.sessions)
    for session_id, followed in hello.sessions.items():
        # Under which of several ids it has prompted is not known: it is rather shown its own words than not at all.
        front = hello.front if owners[connection.sessions.owner(session_id)] == 1 else None
        await _follow(connection, front, session_id, followed)
    for ask_id in hello.asked:
        if not await connection.sessions.is_open(ask_id):
            await connection.asking.withdraw(ask_id)


async def _follow(connection: Connection, front: str | None, session_id: str, followed: Followed) -> None:
    session = await connection.sessions.find(session_id)
    if session is None or session.record.closed:
        return
    if followed.opened != NOTHING:
        try:
            # The parameters of new, load and resume have these fields in common.
            opened = _decode(followed.opened, _Opened)
            connection.sessions.remember(
                session,
                lifecycle.directories(opened.additional_directories),
                lifecycle.servers(opened.mcp_servers or []),
            )
        except (AcpError, msgspec.MsgspecError, UnicodeError, RecursionError):
            log.warning("A front's session cannot be read", action="front_session_ignored", session=session_id)
    connection.loaded[session_id] = followed.line
    own = set() if front is None else await connection.sessions.asked_by(session.id, front)
    # In the middle of a replay the client is told its own messages, too; updates must not overtake a resume's answer.
    hold = connection.traits.catch_up_pause if followed.opened == NOTHING and not followed.line else 0
    told = followed.seen
    if told is not None:
        told = min(await connection.sessions.place(session, session_id, told), session.last_seq)
    seq = min(await connection.sessions.place(session, session_id, followed.seq), session.last_seq)
    # What its front was told may be on its way to it: where it stands is what was confirmed, or what the front says.
    known = await connection.claim(session, session_id, upto=seq)
    places = [one for one in (known, told) if one is not None]
    seen = min(places, default=None)
    subscription = connection.subscribe(session, session_id, seq, followed.line, hold, seen=seen)
    subscription.own |= session.queued(own) if followed.line else own


def _decode(raw: msgspec.Raw, kind: type[T]) -> T:
    if not long_lines.is_frugal(bytes(raw)):
        raise msgspec.ValidationError("too many values")
    return msgspec.json.decode(raw, type=kind)


class _Opened(ResumeSessionParams, frozen=True, kw_only=True):
    session_id: str = ""
    cwd: str = ""
