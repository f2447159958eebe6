"""The calls of one client that are open: each runs as a task, and a request has exactly
one answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import structlog

from pykoclaw_acp import crash_points
from pykoclaw_acp.error_kinds import ErrorKind, unmistakable
from pykoclaw_acp.errors import (
    AcpError,
    InternalError,
    InvalidRequest,
    MethodNotFound,
    Overloaded,
    RequestCancelled,
    StoreClosed,
)
from pykoclaw_acp.link.framing import MAX_LINE_OUT
from pykoclaw_acp.protocol import jsonrpc, own_meta
from pykoclaw_acp.protocol.messages import CancelRequestParams
from pykoclaw_acp.server.acp_client import AcpClient
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.dispatch import Later, Method
from pykoclaw_acp.server.order import SessionOrder
from pykoclaw_acp.server.peer import ClientLine
from pykoclaw_acp.server.reading import ReadMessage
from pykoclaw_acp.server.share import Turnstile
from pykoclaw_acp.system import shortage
from pykoclaw_acp.tasks import Tasks

FEW: Final = 8  # unanswered calls of a client that is not held up for them
MAX_CALLS: Final = 500  # that are open at a time on one connection
# Those that are being refused included; above it the client is not read
MOST_OPEN: Final = MAX_CALLS + 100

log: Final = structlog.get_logger()


class Calls:
    """Begins calls, answers them, and lets the client cancel them."""

    def __init__(
        self,
        client: AcpClient,
        methods: Mapping[str, Method[Call, Any]],
        turnstile: Turnstile,
        refusal: AcpError | None,
    ) -> None:
        """`refusal`: the answer to every method that `methods` does not have."""
        self._client = client
        self._methods = methods
        self._turnstile = turnstile
        self._refusal = refusal
        self._requests: dict[bytes, Call] = {}
        self._open: set[Call] = set()
        self._unanswered = 0  # of the open ones, those that no turn has taken over
        self._fewer = asyncio.Event()  # a call has ended, or was taken over
        self._order = SessionOrder()
        self._heavy = asyncio.Lock()
        self._slow: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # by method
        self._follow_ups = Tasks()

    def __len__(self) -> int:
        return len(self._open)

    @property
    def crowded(self) -> bool:
        """Whether the client sends faster than it is answered."""
        return self._unanswered > FEW

    async def wait_for_room(self) -> None:
        """Wait until another call may be begun."""
        while len(self._open) >= MOST_OPEN:
            self._fewer.clear()
            await self._fewer.wait()

    async def wait_answered(self) -> None:
        """Wait until every call was answered, or handed over to a turn that answers it."""
        while self._unanswered:
            self._fewer.clear()
            await self._fewer.wait()

    async def wait_ended(self) -> None:
        """Wait until every call was answered."""
        while tasks := [call.task for call in self._open if call.task is not None]:
            await asyncio.wait(tasks)

    def abandon(self) -> None:
        """The client is gone: what changes nothing is given up."""
        for call in self._open:
            call.give_up()
        self._follow_ups.cancel()

    def begin(
        self, line: ClientLine, message_id: bytes | None, method: str, raw: bytes, read: ReadMessage
    ) -> Call:
        """Call the method in a task of its own; a notification has no `message_id`."""
        call = Call(self._client, message_id, line, self._methods.get(method))
        if message_id is not None:
            self._requests[message_id] = call
            self._client.expect_confirmation(line.number)
        call.task = asyncio.get_running_loop().create_task(
            self._run(call, method, raw, read), name=method[:100]
        )
        self._open.add(call)
        self._unanswered += 1
        call.task.add_done_callback(lambda _: self._remove(call))
        return call

    async def wait_taken(self, call: Call) -> None:
        """Wait until the call was answered, or handed over to a turn that answers it."""
        while not call.handed_over and call.task is not None and not call.task.done():
            self._fewer.clear()
            await self._fewer.wait()

    def _remove(self, call: Call) -> None:
        self._open.discard(call)
        if call.handed_over:
            self._fewer.set()
        else:
            self._count_answered()

    def _count_answered(self) -> None:
        self._unanswered -= 1
        self._fewer.set()

    async def _run(self, call: Call, method: str, raw: bytes, read: ReadMessage) -> None:
        if call.method is None or not call.method.heavy:
            await self._answer_call(call, method, raw, read)
            return
        async with self._heavy:
            await self._answer_call(call, method, raw, read)

    async def _answer_call(self, call: Call, method: str, raw: bytes, read: ReadMessage) -> None:
        """Exactly one answer for a request, none for a notification, whatever happens."""
        answer: bytes | None = None
        call.started = True
        try:
            result = await self._call(call, method, raw, read)
            if call.request_id is not None:
                answer = jsonrpc.encode_result(call.request_id, result)
        except AcpError as error:
            answer = self._failure(call, method, error)
        except asyncio.CancelledError:
            if not call.withdrawn:
                raise
            answer = self._failure(call, method, RequestCancelled("The request was cancelled."))
        except ConnectionError:
            log.info("The client is gone", action="client_gone", method=method[:100])
        except Exception as error:  # noqa: BLE001  it is logged there
            answer = self._failure(call, method, _unexpected(call, method, error))
        if call.request_id is not None and self._requests.get(call.request_id) is call:
            del self._requests[call.request_id]
        if answer is not None and len(answer) > MAX_LINE_OUT:
            answer = self._failure(
                call, method, InternalError("The answer is longer than a line may be.")
            )
        try:
            if answer is not None:
                await self._client.peer.answer(call.line.number, answer)
                for follow_up in call.follow_ups:
                    self._follow_ups.start(
                        follow_up(), name=f"after {method[:100]}"
                    ).add_done_callback(_log_failure)
            else:
                await self._client.peer.acknowledge(call.line.number)
        except ConnectionError:
            self._give_up_queries()
        crash_points.reached("response_sent")

    def _give_up_queries(self) -> None:
        """Nobody reads answers any more: begin nothing that only the client itself could use, and that
        no prompt behind it depends on.
        """
        for call in self._open:
            method = call.method
            if method is not None and not call.begun and (method.heavy or method.slow):
                call.give_up()

    def _failure(self, call: Call, method: str, error: AcpError) -> bytes | None:
        log.info("A call was refused", action="call_refused", method=method[:100], code=error.code)
        traits = self._client.subscriber.traits
        message, data = error.message, error.data or {}
        # Commands and programs introduce themselves to nobody, and copy ids from errors.
        misreads = (
            traits.misreads_digits
            and self._client.introduced
            and not method.startswith("_pykoclaw.dev/")
        )
        if misreads and data.get("errorKind") != ErrorKind.CONTEXT_TOO_LARGE:
            message = unmistakable(message)
            data = {
                key: unmistakable(one) if isinstance(one, str) else one for key, one in data.items()
            }
        if traits.wants_details:
            data = {**data, "details": message}
        error.message, error.data = message, data or None
        return None if call.request_id is None else jsonrpc.encode_error(call.request_id, error)

    async def _call(self, call: Call, name: str, raw: bytes, read: ReadMessage) -> Any:
        method = call.method
        if method is None:
            if self._refusal is not None:
                raise self._refusal
            raise MethodNotFound(f"There is no method {name[:100]!r}.", {"method": name[:100]})
        if not self._client.introduced and not method.before_initialize:
            raise InvalidRequest("The first request must be `initialize`.")
        if len(self._requests) > MAX_CALLS and call.request_id is not None:
            raise Overloaded(
                f"More than {MAX_CALLS} calls are open; wait for answers first.",
                ErrorKind.TOO_MANY_CALLS,
            )
        params = read.params(raw, method.params)
        own_meta.check(params, method.meta)
        if call.withdrawn and not method.answers_cancel:
            raise RequestCancelled("The request was cancelled.")
        if method.heavy:
            async with self._turnstile.heavy:
                return await _begin(call, method, params)
        if method.slow:
            slow = self._slow[name]
            crowded = slow.locked()
            async with slow:
                if crowded:
                    await self._turnstile.pause()
                return await _begin(call, method, params)
        session_id = getattr(params, "session_id", None)
        if session_id is None:
            result = await _begin(call, method, params)
        else:
            self._client.subscriber.note_life(session_id)
            owner = call.sessions.owner(session_id)
            live = call.sessions.live
            async with self._order.turn(owner):
                opens = method.opens or owner not in live
                async with self._turnstile.place() if opens else contextlib.nullcontext():
                    with live.kept(owner):
                        result = await _begin(call, method, params)
        if not isinstance(result, Later):
            return result
        call.handed_over = True
        self._count_answered()
        return await result.answer

    def withdraw(self, raw: bytes) -> bool:
        """The client sent `$/cancel_request` with these parameters; whether that is about a call
        which answers by itself when it was stopped.
        """
        try:
            request_id = jsonrpc.decode_params(raw, CancelRequestParams).request_id
        except AcpError:
            return False
        stopped = False
        for message_id, call in list(self._requests.items()):
            if msgspec.json.decode(message_id) == request_id:
                call.withdraw()
                stopped = call.method is not None and call.method.answers_cancel
        return stopped


def _unexpected(call: Call, method: str, error: Exception) -> AcpError:
    """The answer to a request that met an error which nobody expects there; a shortage passes, and
    any file that is opened may meet one.
    """
    found = shortage.of(error)
    # What a turn may have, also since an earlier daemon, nobody is told to send again.
    taken = call.handed_over or call.line.sent_at is not None
    taken = taken or (call.method is not None and call.method.takes_unseen)
    if found is None or taken:
        log.error("A request failed", action="request_failed", method=method[:100], exc_info=error)
        return InternalError("Internal error; the log of pykoclaw-acp says more.")
    log.warning("A request failed", action="request_failed", method=method[:100], reason=found[1])
    return Overloaded(
        f"The request cannot be carried out now: {found[1]} Then send it again.", found[0]
    )


async def _begin(call: Call, method: Method[Call, Any], params: Any) -> Any:
    call.subscriber.require_current()
    call.begun = True
    return await method.handler(call, params)


def _log_failure(task: asyncio.Task[None]) -> None:
    if (
        not task.cancelled()
        and (error := task.exception())
        and not isinstance(error, ConnectionError | StoreClosed)
    ):
        log.error("Work after an answer failed", action="follow_up_failed", exc_info=error)
