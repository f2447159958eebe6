"""One client's connection: its lines come in, and become calls, answers to our requests, and
cancellations.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import structlog

from pykoclaw_acp import crash_points
from pykoclaw_acp.error_kinds import ErrorKind
from pykoclaw_acp.errors import AcpError, Overloaded, TurnFailed
from pykoclaw_acp.link.framing import Oversized
from pykoclaw_acp.link.lines import MAX_DEATHS
from pykoclaw_acp.model.failures import TurnFailure
from pykoclaw_acp.protocol import jsonrpc
from pykoclaw_acp.protocol.jsonrpc import Invalid, Notification, Request, Response
from pykoclaw_acp.protocol.messages import InitializeParams
from pykoclaw_acp.server import reading
from pykoclaw_acp.server.acp_client import AcpClient
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.calls import Calls
from pykoclaw_acp.server.client_requests import CANCEL
from pykoclaw_acp.server.dispatch import Method
from pykoclaw_acp.server.peer import ClientLine, Peer
from pykoclaw_acp.server.share import Share, Turnstile
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.turns import outcomes
from pykoclaw_acp.tasks import Pace, Tasks

INITIALIZE: Final = "initialize"

log: Final = structlog.get_logger()


class ClientConnection:
    """Serves one client until its input ends."""

    def __init__(
        self,
        sessions: Sessions,
        methods: Mapping[str, Method[Call, Any]],
        peer: Peer,
        turnstile: Turnstile | None = None,
        refusal: AcpError | None = None,
    ) -> None:
        """`turnstile`: of all clients of the process. `refusal`: of all methods that `methods` does
        not have.
        """
        self._peer = peer
        self._turnstile = turnstile or Turnstile()
        self._calls_of = partial(Calls, methods=methods, turnstile=self._turnstile, refusal=refusal)
        self.share = Share(self._turnstile)
        self.taking = asyncio.Lock()
        """Held while a line is taken; the client waits while somebody else holds it."""
        self._use(sessions)
        self._tasks = Tasks()
        self._heavy: asyncio.Task[None] | None = None  # ends when the last heavy prompt is taken

    def _use(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self.client = AcpClient(sessions, self._peer)
        self.calls = self._calls_of(self.client)

    @property
    def is_at_rest(self) -> bool:
        """Whether the client has nothing open: no call, and no session."""
        return not self.calls and not self.client.subscriber.subscriptions

    def move(self, sessions: Sessions) -> None:
        """Serve a client that is at rest, and knows nothing of it, with these sessions from now on."""
        before = self.client
        self.leave()
        self._use(sessions)
        if before.introduction is not None:
            self.client.initialized(before.introduction)
        if before.logged_out:
            self.client.log_out()

    async def serve(self) -> None:
        """Read until the end of the input; calls that run go on until `settle`.

        Raises Overloaded if a line that a front sends again cannot be read now.
        """
        try:
            async for lines in self._peer.incoming():
                self.share.begin()
                if not lines:  # a part of a long one
                    await self._turnstile.pass_on()
                for line in lines:
                    before = len(self.calls)
                    if line is not None:
                        async with self.taking:
                            await self._take(line)
                    begun = len(self.calls) > before
                    await self.share.step(begun=begun, crowded=self.calls.crowded)
                    await self.calls.wait_for_room()
        finally:
            self._peer.stop_reading()
            self.client.requests.give_up()

    @property
    def introduced(self) -> bool:
        """The client has said who it is, or waits for an answer."""
        return self.client.introduced or bool(self.calls)

    async def begun(self) -> None:
        """Wait until every call that came was answered, or handed over to a turn that
        answers it.
        """
        await self.calls.wait_answered()

    async def settle(self) -> None:
        """Wait until every call is answered, then let go of the sessions."""
        await self.calls.wait_ended()
        self.leave()

    async def farewell(self) -> None:
        """Tell the client, if it is a front, that the daemon ends in order; raises
        ConnectionError.
        """
        await self._peer.farewell()

    async def let_go(self) -> None:
        """End all calls and subscriptions of the client, which may be thousands, in steps."""
        try:
            self.calls.abandon()
            pace = Pace(self._turnstile.next)
            for subscription in list(self.client.subscriber.subscriptions.values()):
                subscription.close()
                await pace.step()
        finally:
            self.leave()

    def leave(self) -> None:
        """The client is gone: nothing is answered any more, and its turns go on without it."""
        self.calls.abandon()
        self.client.close()

    async def _take(self, line: ClientLine) -> None:
        try:
            await self._dispatch(line)
        except ConnectionError:
            return  # what the client sent before it left counts all the same
        except Overloaded:
            raise
        except Exception:
            # A front keeps the line, and sends it to the next daemon: an answer of the client's is
            # not lost over this.
            log.exception("A line could not be taken", action="line_failed")

    async def _dispatch(self, line: ClientLine) -> None:
        if (failure := await self._refusal(line)) is not None:
            log.error(
                "A line is refused unread",
                action="line_refused",
                line=line.number,
                reason=failure.kind,
            )
            self.client.expect_confirmation(line.number)
            await self._peer.refuse(
                line.number, TurnFailed(failure.message, {"errorKind": failure.kind})
            )
            return
        if not isinstance(line.content, Oversized) and len(line.content) > reading.MAX_OTHER:
            await self._heavy_taken()
        read = await reading.read(line.content, self._turnstile.next)
        match read.message:
            case None:
                await self._peer.acknowledge(line.number)
            case Invalid(error=Overloaded() as error) if line.sent_at is not None:
                # A daemon before may have taken it, so that it is not to be sent as another request. With
                # the connection's end its front comes again, after a pause.
                log.warning(
                    "A line that comes again cannot be read yet",
                    action="line_not_read",
                    line=line.number,
                    reason=error.message,
                )
                raise error
            case Invalid() as invalid:
                self.client.expect_confirmation(line.number)
                await self._peer.answer(
                    line.number, jsonrpc.encode_error(invalid.id, invalid.error)
                )
            case Response() as response:
                crash_points.reached("answer_received")
                await self.client.requests.take_answer(line, response)
            case Notification(method=method, params=params) if method == CANCEL:
                turns = self.calls.withdraw(params)
                # To the next daemon, which takes that turn up, both come again.
                if not (turns and self._sessions.awaits_recovery):
                    await self._peer.acknowledge(line.number)
            case Notification(method=method, params=params):
                crash_points.reached("notification_received")
                self.calls.begin(line, None, method, params, read)
            case Request(id=message_id, method=method, params=params):
                if method == INITIALIZE and not self.client.introduced:
                    self._widen(params)
                call = self.calls.begin(line, message_id, method, params, read)
                if read.heavy:
                    self._keep(call, read.heavy)

    def _keep(self, call: Call, size: int) -> None:
        """A prompt that is in memory until it is on disk: what follows is read meanwhile, but no
        further one of that size.
        """
        let_go = self._peer.keep(size)
        self._heavy = self._tasks.start(self.calls.wait_taken(call), name="keep a long prompt")
        self._heavy.add_done_callback(lambda _: let_go())

    async def _heavy_taken(self) -> None:
        if self._heavy is not None:
            await asyncio.wait([self._heavy])

    async def _refusal(self, line: ClientLine) -> TurnFailure | None:
        """Why a re-sent line must not be taken: it would kill another daemon.

        What is no request the front then keeps no longer; a question of ours stays open.
        """
        deadly = line.deaths >= MAX_DEATHS and not line.taken
        if not deadly or await self._sessions.was_taken(f"{self._peer.key}:{line.number}"):
            return None
        return TurnFailure(ErrorKind.SERVER_DIED, outcomes.DEADLY_LINE)

    def _widen(self, raw: bytes) -> None:
        """`initialize` was asked for: what comes after it may be long, also before it
        was answered.
        """
        with contextlib.suppress(AcpError):
            jsonrpc.decode_params(raw, InitializeParams)
            self._peer.widen()
