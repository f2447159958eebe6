"""One client's connection: lines in, lines out, requests in both directions, attachments to sessions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
import structlog

from pykoclaw_acp.errors import AcpError, InternalError, InvalidRequest, MethodNotFound, RequestCancelled
from pykoclaw_acp.ops import steps
from pykoclaw_acp.protocol import jsonrpc, projection
from pykoclaw_acp.protocol.dispatch import Later, Method
from pykoclaw_acp.protocol.framing import MAX_LINE_OUT, LineFramer, Oversized
from pykoclaw_acp.protocol.jsonrpc import Invalid, Notification, Request, Response
from pykoclaw_acp.protocol.messages import CancelRequestParams, Implementation, PermissionResult, SessionNotification
from pykoclaw_acp.server.order import SessionOrder
from pykoclaw_acp.sessions.attachment import Attachment
from pykoclaw_acp.sessions.events import Event
from pykoclaw_acp.sessions.ports import Logged
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.worker.frames import Ask

CANCEL: Final = "$/cancel_request"
MAX_CALLS: Final = 1000  # that are open at a time on one connection

log: Final = structlog.get_logger()


class Transport(Protocol):
    """Where the connection's bytes come from and go to."""

    async def read(self) -> bytes:
        """Some bytes; none at the end."""

    async def write(self, line: bytes) -> None:
        """Write, and wait while the client is slow; raises ConnectionError when it is gone."""


@dataclass(eq=False, slots=True)
class Call:
    """A call that is being answered, as its handler sees it."""

    connection: Connection
    request_id: bytes | None
    method: Method[Call, Any] | None
    task: asyncio.Task[None] | None = None
    started: bool = False
    withdrawn: bool = False
    handed_over: bool = False
    cancel_turn: Callable[[], None] | None = None

    @property
    def sessions(self) -> Sessions:
        """All sessions."""
        return self.connection.sessions

    def on_cancel(self, cancel: Callable[[], None]) -> None:
        """Let `$/cancel_request` call this, instead of giving up the call: the call then answers by itself."""
        self.cancel_turn = cancel
        if self.withdrawn:
            cancel()

    def withdraw(self) -> None:
        """The client sent `$/cancel_request`."""
        self.withdrawn = True
        if self.method is not None and self.method.answers_cancel:
            if self.cancel_turn is not None:
                self.cancel_turn()
        elif self.started and self.task is not None:
            self.task.cancel()

    def warm(self) -> None:
        """A prompt is likely to follow."""
        self.sessions.workers.warm()


class Connection:
    """Serves one client until its input ends. Implements `sessions.ports.Client`."""

    def __init__(self, sessions: Sessions, methods: Mapping[str, Method[Call, Any]], transport: Transport) -> None:
        self.sessions = sessions
        self.attachments: dict[str, Attachment] = {}
        self._methods = methods
        self._transport = transport
        self._framer = LineFramer()
        self._client: Implementation | None = None
        self._calls: dict[bytes, Call] = {}
        self._open: set[Call] = set()
        self._order = SessionOrder()
        self._asked: dict[bytes, asyncio.Future[bytes]] = {}

    async def serve(self) -> None:
        """Read until the end of the input; calls that run go on until `settle`."""
        try:
            while data := await self._transport.read():
                for line in self._framer.feed(data):
                    await self._line(line)
            for line in self._framer.end():
                await self._line(line)
        finally:
            for asked in self._asked.values():
                if not asked.done():
                    asked.set_exception(ConnectionError("the client is gone"))

    async def begun(self) -> None:
        """Wait until every call that came was answered, or handed over to a turn that answers it."""
        while waiting := [call.task for call in self._open if call.task is not None and not call.handed_over]:
            await asyncio.wait(waiting, timeout=0.01, return_when=asyncio.FIRST_COMPLETED)

    async def settle(self) -> None:
        """Wait until every call is answered, then let go of the sessions."""
        while tasks := [call.task for call in self._open if call.task is not None]:
            await asyncio.wait(tasks)
        for attachment in list(self.attachments.values()):
            attachment.close()

    # --- for handlers -----------------------------------------------------------------------------------------------

    def initialized(self, client: Implementation) -> None:
        """`initialize` was answered; it may be repeated."""
        self._client = client
        log.info("Client connected", action="client_connected", client=client.name, version=client.version)

    def attach(self, session: Session, after: int) -> Attachment:
        """Show this client the session's log after `after`, and what follows."""
        previous = self.attachments.pop(session.id, None)
        attachment = self.attachments[session.id] = session.attach(self, after)
        if previous is not None:
            attachment.own = session.queued(previous.own)
            previous.close()
        return attachment

    def attached(self, session: Session) -> Attachment:
        """The client's attachment. One that prompts without a load follows from here on, one that broke goes on."""
        attachment = self.attachments.get(session.id)
        if attachment is not None and attachment.alive:
            return attachment
        return self.attach(session, session.last_seq if attachment is None else attachment.cursor)

    # --- sessions.ports.Client --------------------------------------------------------------------------------------

    async def deliver(self, session_id: str, logged: Logged) -> None:
        """Send the event as an update; what no client could read is replaced by a note."""
        line = _update_line(session_id, logged.seq, logged.event)
        if len(line) > MAX_LINE_OUT:
            line = _update_line(session_id, logged.seq, None)
        await self._transport.write(line)
        steps.reached("update_sent")

    async def ask(self, session_id: str, question: Ask) -> dict[str, Any]:
        """Send `session/request_permission` under the question's own id; when cancelled, withdraw it."""
        params = projection.permission(session_id, question)
        raw = await self._request(question.ask_id, "session/request_permission", params)
        outcome = jsonrpc.decode_params(raw, PermissionResult).outcome
        return {"outcome": outcome.outcome, "optionId": outcome.option_id}

    # --- in ---------------------------------------------------------------------------------------------------------

    async def _line(self, line: bytes | Oversized) -> None:
        if isinstance(line, Oversized):
            error = InvalidRequest("The line is longer than 64 MiB; it was not read.")
            await self._transport.write(jsonrpc.encode_error(jsonrpc.NULL_ID, error))
            return
        match jsonrpc.parse(line):
            case Invalid() as invalid:
                await self._transport.write(jsonrpc.encode_error(invalid.id, invalid.error))
            case Response() as response:
                self._answered(response)
            case Notification(method=method, params=params) if method == CANCEL:
                self._withdraw(params)
            case Notification(method=method, params=params):
                self._begin(None, method, params)
            case Request(id=message_id, method=method, params=params):
                self._begin(message_id, method, params)

    def _begin(self, message_id: bytes | None, method: str, raw: bytes) -> None:
        call = Call(self, message_id, self._methods.get(method))
        if message_id is not None:
            self._calls[message_id] = call
        call.task = asyncio.get_running_loop().create_task(self._serve_call(call, method, raw))
        self._open.add(call)
        call.task.add_done_callback(lambda _: self._open.discard(call))

    async def _serve_call(self, call: Call, method: str, raw: bytes) -> None:
        """Exactly one answer for a request, none for a notification, whatever happens."""
        answer: bytes | None = None
        call.started = True
        try:
            result = await self._run(call, method, raw)
            if call.request_id is not None:
                answer = jsonrpc.encode_result(call.request_id, result)
        except AcpError as error:
            answer = self._failed(call, method, error)
        except asyncio.CancelledError:
            if not call.withdrawn:
                raise
            answer = self._failed(call, method, RequestCancelled("The request was cancelled."))
        except ConnectionError:
            log.info("The client is gone", action="client_gone", method=method[:100])
        except Exception:
            log.exception("A request failed", action="request_failed", method=method[:100])
            answer = self._failed(call, method, InternalError("Internal error; the log of pykoclaw-acp says more."))
        if call.request_id is not None and self._calls.get(call.request_id) is call:
            del self._calls[call.request_id]
        if answer is not None and len(answer) > MAX_LINE_OUT:
            answer = self._failed(call, method, InternalError("The answer is longer than a line may be."))
        if answer is not None:
            with contextlib.suppress(ConnectionError):
                await self._transport.write(answer)
        steps.reached("response_sent")

    def _failed(self, call: Call, method: str, error: AcpError) -> bytes | None:
        log.info("A call was refused", action="call_refused", method=method[:100], code=error.code)
        return None if call.request_id is None else jsonrpc.encode_error(call.request_id, error)

    async def _run(self, call: Call, name: str, raw: bytes) -> Any:
        method = call.method
        if method is None:
            raise MethodNotFound(f"There is no method {name[:100]!r}.", {"method": name[:100]})
        if self._client is None and not method.before_initialize:
            raise InvalidRequest("The first request must be `initialize`.")
        if len(self._calls) > MAX_CALLS and call.request_id is not None:
            raise InvalidRequest(f"More than {MAX_CALLS} calls are open; wait for answers first.")
        params = jsonrpc.decode_params(raw, method.params)
        if call.withdrawn and not method.answers_cancel:
            raise RequestCancelled("The request was cancelled.")
        session_id = getattr(params, "session_id", None)
        if session_id is None:
            return await method.handler(call, params)
        async with self._order.turn(session_id):
            result = await method.handler(call, params)
        if not isinstance(result, Later):
            return result
        call.handed_over = True
        return await result.answer

    def _withdraw(self, raw: bytes) -> None:
        try:
            request_id = jsonrpc.decode_params(raw, CancelRequestParams).request_id
        except AcpError:
            return
        for message_id, call in list(self._calls.items()):
            if msgspec.json.decode(message_id) == request_id:
                call.withdraw()

    # --- out --------------------------------------------------------------------------------------------------------

    async def _request(self, message_id: str, method: str, params: Any) -> bytes:
        """A request of ours; returns the raw result, raises AcpError when the client refuses it.

        Asked again under the same id, as after a load, it is sent again, and one answer serves both.
        """
        key = msgspec.json.encode(message_id)
        future = self._asked.setdefault(key, asyncio.get_running_loop().create_future())
        try:
            await self._transport.write(jsonrpc.encode_request(message_id, method, params))
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            if self._asked.pop(key, None) is not None:
                with contextlib.suppress(ConnectionError):
                    await self._transport.write(jsonrpc.encode_notification(CANCEL, {"requestId": message_id}))
            raise
        finally:
            self._asked.pop(key, None)

    def _answered(self, response: Response) -> None:
        future = self._asked.get(response.id)
        if future is None or future.done():
            return
        if response.result is None:
            future.set_exception(InternalError("The client refused the request."))
        else:
            future.set_result(response.result)


def _update_line(session_id: str, seq: int, event: Event | None) -> bytes:
    params = SessionNotification(session_id=session_id, update=projection.update(seq, event))
    return jsonrpc.encode_notification("session/update", params)
