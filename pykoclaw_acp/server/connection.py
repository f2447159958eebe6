"""One client's connection: lines in, lines out, requests in both directions, subscriptions to sessions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import structlog

from pykoclaw_acp import crash_points
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
from pykoclaw_acp.model import client_traits
from pykoclaw_acp.model.choices import Command
from pykoclaw_acp.model.cursors import Reader
from pykoclaw_acp.model.log import Logged
from pykoclaw_acp.model.permissions import PermissionRequest
from pykoclaw_acp.model.turns import Turn
from pykoclaw_acp.protocol import jsonrpc, lenient, projection
from pykoclaw_acp.protocol.jsonrpc import Invalid, Notification, Request, Response
from pykoclaw_acp.protocol.messages import (
    CancelRequestParams,
    ClientCapabilities,
    ElicitationResult,
    Implementation,
    InitializeParams,
    PermissionResult,
    SessionNotification,
    Update,
)
from pykoclaw_acp.server import reading
from pykoclaw_acp.server.asking import CANCEL, Asking
from pykoclaw_acp.server.call import Call
from pykoclaw_acp.server.dispatch import Later, Method
from pykoclaw_acp.server.order import SessionOrder
from pykoclaw_acp.server.peer import ClientLine, Peer
from pykoclaw_acp.server.reading import Read
from pykoclaw_acp.server.share import Share, Turnstile
from pykoclaw_acp.sessions.registry import Sessions
from pykoclaw_acp.sessions.session import Session
from pykoclaw_acp.sessions.subscription import Subscription
from pykoclaw_acp.tasks import Tasks

INITIALIZE: Final = "initialize"
MAX_CALLS: Final = 500  # that are open at a time on one connection
MOST_OPEN: Final = MAX_CALLS + 100  # those that are being refused included; above it the client is not read

log: Final = structlog.get_logger()


class Connection:
    """Serves one client until its input ends. Implements `sessions.ports.Client`."""

    present = True

    def __init__(
        self,
        sessions: Sessions,
        methods: Mapping[str, Method[Call, Any]],
        peer: Peer,
        turnstile: Turnstile | None = None,
        refusal: AcpError | None = None,
    ) -> None:
        """`turnstile`: of all clients of the process. `refusal`: of all methods that `methods` does not have."""
        self.sessions = sessions
        self.subscriptions: dict[str, Subscription] = {}  # by the id that the client uses
        self.loaded: dict[str, int] = {}  # by session: the line that asked for everything, and is being answered
        self.peer = peer
        peer.listener = self
        self.forms = False
        self._methods = methods
        self._client: Implementation | None = None
        self.traits = client_traits.find(self.name)
        self._reader = Reader(self.name, peer.instance, peer.front)
        self._prompts: dict[int, tuple[Session, Turn]] = {}
        self.asking = Asking(peer, sessions)
        self._requests: set[int] = set()  # numbers of those whose answer the client has not confirmed
        self._calls: dict[bytes, Call] = {}
        self._open: set[Call] = set()
        self._later = Tasks()
        self._order = SessionOrder()
        self._refusal = refusal
        self._turnstile = turnstile or Turnstile()
        self.share = Share(self._turnstile)
        self._heavy = asyncio.Lock()
        self._unanswered = 0  # of the open ones, those that no turn has taken over
        self._fewer = asyncio.Event()  # a call has ended, or was taken over

    async def serve(self) -> None:
        """Read until the end of the input; calls that run go on until `settle`."""
        try:
            async for lines in self.peer.incoming():
                self.share.begin()
                if not lines:  # a part of a long one
                    await self._turnstile.pass_on()
                for line in lines:
                    calls = len(self._open)
                    if line is not None:
                        await self._line(line)
                    await self.share.step(begun=len(self._open) > calls)
                    while len(self._open) >= MOST_OPEN:
                        self._fewer.clear()
                        await self._fewer.wait()
        finally:
            self.peer.leave()
            self.asking.give_up()

    @property
    def introduced(self) -> bool:
        """The client has said who it is, or waits for an answer."""
        return self._client is not None or bool(self._open)

    async def begun(self) -> None:
        """Wait until every call that came was answered, or handed over to a turn that answers it."""
        while self._unanswered:
            self._fewer.clear()
            await self._fewer.wait()

    async def settle(self) -> None:
        """Wait until every call is answered, then let go of the sessions."""
        while tasks := [call.task for call in self._open if call.task is not None]:
            await asyncio.wait(tasks)
        self.leave()

    def leave(self) -> None:
        """The client is gone: nothing is answered any more, and its turns go on without it."""
        for call in self._open:
            if call.task is not None:
                call.task.cancel()
        self._later.cancel()
        for subscription in list(self.subscriptions.values()):
            subscription.close()
        for session, turn in self._prompts.values():
            session.joining.lose(turn)
        if self._client is not None:
            log.info("Client left", action="client_left", client=self.name, turns=len(self._prompts))
        self._prompts.clear()

    # --- for handlers -----------------------------------------------------------------------------------------------

    def initialized(self, params: InitializeParams) -> None:
        """`initialize` was answered; it may be repeated."""
        self.peer.widen()
        client = self._client = lenient.decode(bytes(params.client_info), Implementation)
        self._reader = Reader(client.name, self.peer.instance, self.peer.front)
        self.traits = client_traits.find(client.name, client.version)
        capabilities = lenient.decode(bytes(params.client_capabilities), ClientCapabilities)
        self.forms = capabilities.elicitation.form is not None
        log.info("Client connected", action="client_connected", client=client.name, version=client.version)

    @property
    def name(self) -> str:
        """What the client calls itself."""
        return client_traits.UNNAMED if self._client is None else self._client.name

    def prompted(self, call: Call, session: Session, turn: Turn) -> None:
        """This call will be answered by the turn."""
        self._prompts[call.line.number] = (session, turn)

    def subscribe(
        self,
        session: Session,
        session_id: str,
        after: int,
        number: int = 0,
        hold: float = 0,
        *,
        seen: int | None = None,
    ) -> Subscription:
        """Show this client the session's log after `after`, and what follows; the rest as in Subscription.

        `seen`: up to where it is certain that the client was shown it; None: up to `after`.
        """
        previous = self.subscriptions.pop(session_id, None)
        subscription = self.subscriptions[session_id] = session.subscribe(self, after, number, hold, session_id)
        subscription.reader = self._reader
        self.sessions.confirmations.note(session_id, self._reader, after if seen is None else seen)
        if previous is not None:
            subscription.own = session.queued(previous.own)
            previous.close()
        return subscription

    async def claim(self, session: Session, session_id: str, upto: int | None = None) -> int | None:
        """The place that this client has in the session under this id, or takes over; as in Confirmations."""
        there = [one for one in session.subscriptions if one.alive and one.session_id == session_id]
        others = {one.reader for one in there if one.reader is not None}
        return await self.sessions.confirmations.claim(session_id, session.last_seq, self._reader, others, upto)

    def follows(self, session_id: str) -> bool:
        """The client is shown what happens in the session, under this id."""
        subscription = self.subscriptions.get(session_id)
        return subscription is not None and subscription.alive

    def following(self, session: Session, session_id: str) -> Subscription:
        """The client's subscription. One that prompts without a load follows from here on, one that broke goes on."""
        subscription = self.subscriptions.get(session_id)
        if subscription is not None and subscription.alive:
            return subscription
        return self.subscribe(session, session_id, session.last_seq if subscription is None else subscription.cursor)

    # --- sessions.ports.Client --------------------------------------------------------------------------------------

    async def attached(self, session_id: str, seq: int, number: int) -> None:
        """The session's updates after `seq` follow."""
        await self.peer.follow_session(session_id, seq, number)

    def detached(self, session_id: str) -> None:
        """The session was closed."""
        self.subscriptions.pop(session_id, None)
        self.asking.soon(self.peer.drop_session(session_id))

    async def deliver(self, session_id: str, logged: Logged) -> None:
        """Send the event as an update; what no client could read is replaced by a note."""
        line = _update_line(session_id, projection.update(logged.seq, logged.event))
        if len(line) > MAX_LINE_OUT:
            line = _update_line(session_id, projection.update(logged.seq, None))
        await self.peer.update(session_id, logged.seq, line)
        crash_points.reached("update_sent")

    async def offer(self, session_id: str, commands: tuple[Command, ...]) -> None:
        """Say which slash commands there are."""
        await self.peer.notify(_update_line(session_id, projection.commands(commands)))

    async def end_line(self, session_id: str, seq: int) -> None:
        """An empty line: no event of the log, since it says nothing."""
        await self.peer.notify(_update_line(session_id, projection.empty_line(seq)))

    async def passed(self, session_id: str, seq: int) -> None:
        """The client has its own message already."""
        await self.peer.move_cursor(session_id, seq)

    async def ask(self, session_id: str, question: PermissionRequest) -> dict[str, Any]:
        """Send a request under the question's own id; when cancelled, withdraw it."""
        if question.form is not None:
            form = projection.elicitation(session_id, question.form)
            raw = await self.asking.request(question.ask_id, "elicitation/create", form)
            result = jsonrpc.decode_params(raw, ElicitationResult)
            return {"action": result.action, "content": result.content}
        params = projection.permission(session_id, question)
        raw = await self.asking.request(question.ask_id, "session/request_permission", params)
        outcome = jsonrpc.decode_params(raw, PermissionResult).outcome
        return {"outcome": outcome.outcome, "optionId": outcome.option_id}

    def settled(self, ask_id: str) -> None:
        """The question's outcome is in the database."""
        self.asking.settled(ask_id)

    # --- server.peer.Listener ---------------------------------------------------------------------------------------

    def seen(self, session_id: str, seq: int) -> None:
        """The client was shown the session's updates up to `seq`."""
        subscription = self.subscriptions.get(session_id)
        # A front may have been shown more than there is, if the database was restored from a copy meanwhile.
        if subscription is not None and seq <= subscription.session.last_seq:
            self.sessions.confirmations.note(session_id, self._reader, seq)

    def done(self, number: int) -> None:
        """The client has the answer: if it was a turn's, the turn is over for it."""
        session, turn = self._prompts.pop(number, (None, None))
        if session is not None and turn is not None:
            session.answered(turn)
        elif self.peer.key is not None and number not in self._requests:
            for subscription in self.subscriptions.values():  # of an answer that an earlier daemon gave
                subscription.session.answered_before(f"{self.peer.key}:{number}")
        self._requests.discard(number)

    # --- in ---------------------------------------------------------------------------------------------------------

    async def _line(self, line: ClientLine) -> None:
        try:
            await self._take(line)
        except ConnectionError:
            return  # what the client sent before it left counts all the same
        except Exception:
            # A front keeps the line, and sends it to the next daemon: an answer of the client's is not lost over this.
            log.exception("A line could not be taken", action="line_failed")

    async def _take(self, line: ClientLine) -> None:
        read = await reading.read(line.content, self._turnstile.next)
        match read.message:
            case None:
                await self.peer.acknowledge(line.number)
            case Invalid() as invalid:
                await self.peer.answer(line.number, jsonrpc.encode_error(invalid.id, invalid.error))
            case Response() as response:
                await self.asking.answered(line, response)
            case Notification(method=method, params=params) if method == CANCEL:
                self._withdraw(params)
                if not self.sessions.awaits_recovery:
                    await self.peer.acknowledge(line.number)
            case Notification(method=method, params=params):
                self._begin(line, None, method, params, read)
            case Request(id=message_id, method=method, params=params):
                if method == INITIALIZE and self._client is None:
                    self._widen(params)
                self._begin(line, message_id, method, params, read)

    def _widen(self, raw: bytes) -> None:
        """`initialize` was asked for: what comes after it may be long, also before it was answered."""
        with contextlib.suppress(AcpError):
            jsonrpc.decode_params(raw, InitializeParams)
            self.peer.widen()

    def _begin(self, line: ClientLine, message_id: bytes | None, method: str, raw: bytes, read: Read) -> None:
        call = Call(self, message_id, line, self._methods.get(method))
        if message_id is not None:
            self._calls[message_id] = call
            self._requests.add(line.number)
        call.task = asyncio.get_running_loop().create_task(self._serve_call(call, method, raw, read), name=method[:100])
        self._open.add(call)
        self._unanswered += 1
        call.task.add_done_callback(lambda _: self._ended(call))

    def _ended(self, call: Call) -> None:
        self._open.discard(call)
        if call.handed_over:
            self._fewer.set()
        else:
            self._settled_one()

    def _settled_one(self) -> None:
        self._unanswered -= 1
        self._fewer.set()

    async def _serve_call(self, call: Call, method: str, raw: bytes, read: Read) -> None:
        if call.method is None or not call.method.heavy:
            await self._answer_call(call, method, raw, read)
            return
        async with self._heavy:
            await self._answer_call(call, method, raw, read)

    async def _answer_call(self, call: Call, method: str, raw: bytes, read: Read) -> None:
        """Exactly one answer for a request, none for a notification, whatever happens."""
        answer: bytes | None = None
        call.started = True
        try:
            result = await self._run(call, method, raw, read)
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
        with contextlib.suppress(ConnectionError):
            if answer is not None:
                await self.peer.answer(call.line.number, answer)
                for follow_up in call.follow_ups:
                    self._later.start(follow_up()).add_done_callback(_later_done)
            else:
                await self.peer.acknowledge(call.line.number)
        crash_points.reached("response_sent")

    def _failed(self, call: Call, method: str, error: AcpError) -> bytes | None:
        log.info("A call was refused", action="call_refused", method=method[:100], code=error.code)
        return None if call.request_id is None else jsonrpc.encode_error(call.request_id, error)

    async def _run(self, call: Call, name: str, raw: bytes, read: Read) -> Any:
        method = call.method
        if method is None:
            if self._refusal is not None:
                raise self._refusal
            raise MethodNotFound(f"There is no method {name[:100]!r}.", {"method": name[:100]})
        if self._client is None and not method.before_initialize:
            raise InvalidRequest("The first request must be `initialize`.")
        if len(self._calls) > MAX_CALLS and call.request_id is not None:
            raise Overloaded(f"More than {MAX_CALLS} calls are open; wait for answers first.", "calls")
        params = read.params(raw, method.params)
        if call.withdrawn and not method.answers_cancel:
            raise RequestCancelled("The request was cancelled.")
        if method.heavy:
            async with self._turnstile.heavy:
                return await method.handler(call, params)
        session_id = getattr(params, "session_id", None)
        if session_id is None:
            return await method.handler(call, params)
        async with self._order.turn(self.sessions.owner(session_id)):
            result = await method.handler(call, params)
        if not isinstance(result, Later):
            return result
        call.handed_over = True
        self._settled_one()
        return await result.answer

    def _withdraw(self, raw: bytes) -> None:
        try:
            request_id = jsonrpc.decode_params(raw, CancelRequestParams).request_id
        except AcpError:
            return
        for message_id, call in list(self._calls.items()):
            if msgspec.json.decode(message_id) == request_id:
                call.withdraw()


def _update_line(session_id: str, update: Update) -> bytes:
    return jsonrpc.encode_notification("session/update", SessionNotification(session_id=session_id, update=update))


def _later_done(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) and not isinstance(error, ConnectionError | StoreClosed):
        log.error("What follows an answer failed", action="follow_up_failed", exc_info=error)
