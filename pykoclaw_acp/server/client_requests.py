"""Requests to a client, and its responses, which a front may re-send before the request is
repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
import structlog

from pykoclaw_acp.errors import InternalError, StoreUnavailable
from pykoclaw_acp.link.lines import base_id
from pykoclaw_acp.protocol import jsonrpc
from pykoclaw_acp.protocol.jsonrpc import Response
from pykoclaw_acp.server.peer import ClientLine, Peer
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.tasks import Tasks

CANCEL: Final = "$/cancel_request"
MOST_UNKNOWN: Final = 100  # early answers, above which none is kept of an unknown request

log: Final = structlog.get_logger()


class _SentRequest(NamedTuple):
    """A request that waits for its response; `line`: as it is sent."""

    line: bytes
    result: asyncio.Future[bytes]


class ClientRequests:
    """Unanswered requests of one client, and its responses whose outcome is not in the database
    yet.
    """

    def __init__(self, peer: Peer, sessions: Sessions) -> None:
        self._peer = peer
        self._sessions = sessions
        self._asked: dict[bytes, _SentRequest] = {}
        self._early: dict[bytes, Response] = {}
        self._withdrawn: set[bytes] = set()  # and not answered
        self._given: dict[str, list[int]] = {}  # by permission request: the lines of the answers
        self._tasks = Tasks()

    async def request(self, message_id: str, method: str, params: Any) -> bytes:
        """Send a request; returns the raw result, raises AcpError when the client refuses. When
        cancelled, it is withdrawn.
        """
        key = msgspec.json.encode(message_id)
        line = jsonrpc.encode_request(message_id, method, params)
        asked = self._asked[key] = _SentRequest(line, asyncio.get_running_loop().create_future())
        self._withdrawn.discard(key)
        try:
            if (early := self._early.pop(key, None)) is not None:
                _settle(asked.result, early)
            else:
                await self._peer.request(key, line)
            return await asked.result
        except asyncio.CancelledError:
            if asked.result.cancelled():  # and not answered at this moment
                self._withdrawn.add(key)
            with contextlib.suppress(ConnectionError):
                await self.withdraw(message_id)
            raise
        finally:
            del self._asked[key]

    async def repeat(self, ask_id: str) -> None:
        """Send once more what the client has not answered of this request, as after a load: one
        response serves both.
        """
        for key, asked in list(self._asked.items()):
            if base_id(_text(key)) == ask_id:
                await self._peer.request(key, asked.line)

    async def withdraw(self, message_id: str) -> None:
        """Cancel a request that is settled."""
        await self._peer.notify(jsonrpc.encode_notification(CANCEL, {"requestId": message_id}))

    async def take_answer(self, line: ClientLine, response: Response) -> None:
        """Match a response with its request."""
        ask_id = _text(response.id)
        base = base_id(ask_id)
        waits = response.id in self._asked
        # To a new daemon the answer may come before it has asked once more.
        expected = not waits and response.id not in self._withdrawn
        early = expected and await self._may_be_open(base)
        asked = self._asked.get(response.id)  # it may have been asked in the meantime
        if asked is not None and not asked.result.done():
            self._given.setdefault(base, []).append(line.number)
            _settle(asked.result, response)
        elif early:
            self._given.setdefault(base, []).append(line.number)
            self._early[response.id] = response
        else:
            log.info(
                "An answer that nobody waits for was refused",
                action="answer_late",
                request=ask_id[:100],
            )
            self._withdrawn.discard(response.id)
            await self._peer.acknowledge(line.number)

    async def _may_be_open(self, ask_id: str) -> bool:
        """Whether the request is pending, or that cannot be found out now: its front, which has the
        answer, shows it to nobody again.
        """
        try:
            return await self._sessions.is_open(ask_id)
        except StoreUnavailable:
            if len(self._early) >= MOST_UNKNOWN:
                raise
            return True

    def acknowledge_answer(self, ask_id: str) -> None:
        """Acknowledge the responses to the request: its outcome is in the database."""
        for number in self._given.pop(ask_id, ()):
            self.send_soon(partial(self._peer.acknowledge, number))

    def send_soon(self, send: Callable[[], Awaitable[None]]) -> None:
        """Send in the background; failures are ignored."""
        self._tasks.start(_quietly(send), name="tell client")

    def give_up(self) -> None:
        """Fail all pending requests: the client is gone."""
        for asked in self._asked.values():
            if not asked.result.done():
                asked.result.set_exception(ConnectionError("the client is gone"))


async def _quietly(send: Callable[[], Awaitable[None]]) -> None:
    with contextlib.suppress(ConnectionError):
        await send()


def _settle(future: asyncio.Future[bytes], response: Response) -> None:
    if response.result is None:
        future.set_exception(InternalError("The client refused the request."))
    else:
        future.set_result(response.result)


def _text(message_id: bytes) -> str:
    try:
        value = msgspec.json.decode(message_id)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return ""
    return value if isinstance(value, str) else ""
