"""The introduction of a front that has reconnected, decoded for sessions/returning.py."""

from __future__ import annotations

import os
from typing import Final, TypeVar

import msgspec
import structlog

from pykoclaw_acp.channel.options import McpServer
from pykoclaw_acp.errors import AcpError, StoreUnavailable
from pykoclaw_acp.link.lines import base_id
from pykoclaw_acp.protocol import long_lines
from pykoclaw_acp.protocol.messages import InitializeParams, ResumeSessionParams
from pykoclaw_acp.server import client_processes, given_servers, lifecycle, reading
from pykoclaw_acp.server.acp_client import AcpClient
from pykoclaw_acp.server.introduction import NOTHING, FrontHello, ReportedSession
from pykoclaw_acp.sessions.returning import LastPlace, come_back
from pykoclaw_acp.tasks import Pace, in_pieces

# Bytes of a client's parameters: its line had less, but a front writes it in its own form
MOST: Final = 2 * reading.MAX_OTHER

log: Final = structlog.get_logger()

T = TypeVar("T")


async def welcome(client: AcpClient, hello: FrontHello) -> None:
    """Restore the client's `initialize` and subscriptions, and withdraw requests that were settled
    in the meantime.
    """
    if hello.initialize != NOTHING:
        try:
            params = await _decode(hello.initialize, InitializeParams)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            params = InitializeParams(protocol_version=0)
        client.initialized(params)
    if hello.logged_out:
        client.log_out()
    client.recall_requests(hello.asked)
    told_by = client_processes.told(hello.daemon)
    another = told_by is not None and told_by != client_processes.of(os.getpid())
    places: dict[str, LastPlace] = {}
    pace = Pace()
    for session_id, followed in hello.sessions.items():
        places[session_id] = await _place(session_id, followed, earlier=another or followed.earlier)
        await pace.step()
    unanswered = {client.request_key(number) for number in hello.taken}
    await come_back(client.subscriber, hello.front, places, unanswered)
    for message_id in hello.asked:
        if not await _is_open(client, message_id):
            await client.requests.withdraw(message_id)


async def _is_open(client: AcpClient, message_id: str) -> bool:
    """Whether the request is not settled, to all that can be read."""
    try:
        return await client.subscriber.sessions.is_open(base_id(message_id))
    except StoreUnavailable as error:
        if error.retryable:  # the client comes again
            raise
        return True


async def _place(session_id: str, followed: ReportedSession, *, earlier: bool) -> LastPlace:
    answered = followed.opened != NOTHING
    opened = await _opened(session_id, followed.opened) if answered else None
    return LastPlace(followed.seq, followed.seen, followed.line, answered, opened, earlier)


async def _opened(
    session_id: str, raw: msgspec.Raw
) -> tuple[tuple[str, ...], tuple[McpServer, ...]] | None:
    """Directories and MCP servers; None if they cannot be read."""
    try:
        # The parameters of new, load, resume and fork have these fields in common.
        opened = await _decode(raw, _Opened)
        return lifecycle.directories(opened.additional_directories), given_servers.servers(
            opened.mcp_servers or []
        )
    except (AcpError, msgspec.MsgspecError, UnicodeError, RecursionError):
        log.warning(
            "A front's session cannot be read", action="front_session_ignored", session=session_id
        )
        return None


async def _decode(raw: msgspec.Raw, kind: type[T]) -> T:
    """What was within the limits of a line when it came is within them now."""
    if len(bytes(raw)) > MOST:
        raise msgspec.ValidationError("too long")
    if not long_lines.is_frugal(bytes(raw)):
        try:
            await in_pieces(long_lines.shorten(bytes(raw)))
        except (long_lines.TooComplex, long_lines.NoJson) as error:
            raise msgspec.ValidationError("too many values") from error
    return msgspec.json.decode(raw, type=kind)


class _Opened(ResumeSessionParams, frozen=True, kw_only=True):
    session_id: str = ""
    cwd: str = ""
