"""HTTP application: the Messages API, and the record of requests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope
from starlette.types import Send as SendMessage

from . import limits, wire
from .answer import FaultCounts, ScriptedAnswer, choose_answer
from .conversation import read_conversation
from .record import AnswerEnd, RequestRecord
from .steps import Hang, HttpError, Limit, Steps, StreamError

# Events that need no wait between them share a write up to this size.
_WRITE_BYTES = 8192

_INVALID = HttpError(400, "messages: a list with at least one message is required")
_WELCOME = "This is a scripted model, a Messages API that plays scripts: POST /v1/messages, GET /requests.\n"


class Playback(Response):
    """Plays the steps of one response; calls `ended` with the outcome and the number of deltas
    sent.
    """

    def __init__(
        self, body: dict[str, Any], steps: Steps, ended: Callable[[AnswerEnd, int], None]
    ) -> None:
        super().__init__()
        self._body = body
        self._steps = steps
        self._ended = ended
        self._deltas = 0

    async def __call__(self, scope: Scope, receive: Receive, send: SendMessage) -> None:
        """Play until the end or until the client disconnects (ASGI)."""
        gone = asyncio.create_task(_client_gone(receive), name="client-gone")
        playing = asyncio.create_task(self._play(scope, receive, send), name="play")
        try:
            await asyncio.wait((gone, playing), return_when=asyncio.FIRST_COMPLETED)
            if playing.done():
                playing.result()
            else:
                self._ended("client_gone", self._deltas)
        finally:
            gone.cancel()
            playing.cancel()
            await asyncio.gather(gone, playing, return_exceptions=True)

    async def _play(self, scope: Scope, receive: Receive, send: SendMessage) -> None:
        # Nothing may be awaited between the last byte and the record, or a client could see the one
        # before the other.
        self._ended(await self._send_response(scope, receive, send), self._deltas)

    async def _send_response(self, scope: Scope, receive: Receive, send: SendMessage) -> AnswerEnd:
        steps = self._steps
        while steps and isinstance(steps[0], Hang):
            await _wait(steps[0].seconds)
            steps = steps[1:]
        stream = bool(self._body.get("stream"))
        told: dict[str, str] = {}
        for step in steps:
            if isinstance(step, Limit):
                told = limits.headers(step)
                if step.status == "rejected":
                    await _error_response(HttpError(429, ""), told)(scope, receive, send)
                    return "error"
            if isinstance(step, HttpError):
                await _error_response(step)(scope, receive, send)
                return "error"
            if isinstance(step, StreamError) and not stream:
                error = HttpError(wire.error_status(step.type), step.message)
                await _error_response(error)(scope, receive, send)
                return "error"
        writer = wire.ResponseWriter(self._body, steps)
        content_type = "text/event-stream; charset=utf-8" if stream else "application/json"
        headers = {
            "content-type": content_type,
            "cache-control": "no-cache",
            "request-id": wire.new_id("req"),
            **told,
        }
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        await send({"type": "http.response.start", "status": 200, "headers": raw})
        return await self._send_actions(writer.stream() if stream else writer.message(), send)

    async def _send_actions(self, actions: Iterator[wire.Action], send: SendMessage) -> AnswerEnd:
        pending = bytearray()
        deltas = 0
        due = asyncio.get_running_loop().time()

        async def flush(*, more: bool = True) -> None:
            nonlocal deltas
            await send({"type": "http.response.body", "body": bytes(pending), "more_body": more})
            pending.clear()
            self._deltas += deltas
            deltas = 0
            if more:
                # Without this a long answer without pauses would keep every other request waiting.
                await asyncio.sleep(0)

        outcome: AnswerEnd = "served"
        for action in actions:
            match action:
                case wire.Send():
                    pending += action.data
                    deltas += action.deltas
                    if len(pending) >= _WRITE_BYTES:
                        await flush()
                case wire.Wait():
                    await flush()
                    # Waits are counted from the first one, so that the pace does not depend on the
                    # load.
                    due += action.seconds or 0.0
                    await _wait(
                        None if action.seconds is None else due - asyncio.get_running_loop().time()
                    )
                case wire.StreamFailed():
                    outcome = "error"
                case wire.Severed():
                    await flush()
                    # An ASGI server closes the connection of a response that was left unfinished.
                    return "cut"
        await flush(more=False)
        return outcome


def make_app(record: RequestRecord, *, started: Callable[[], None]) -> Starlette:
    """Make the application. `started` is called when it is about to serve."""
    faults = FaultCounts()

    async def messages(request: Request) -> Response:
        body = await _read_body(request)
        if body is None:
            return _error_response(_INVALID)
        headers = dict(request.headers)
        session = headers.get("x-claude-code-session-id", "")
        answer = choose_answer(
            body, faults, session=session, from_cli=headers.get("x-app") == "cli"
        )
        entry = record.arrived(request.url.path, body, answer, headers)
        return Playback(
            body, answer.steps, lambda outcome, deltas: record.ended(entry, outcome, deltas)
        )

    async def count_tokens(request: Request) -> Response:
        body = await _read_body(request)
        if body is None:
            return _error_response(_INVALID)
        answer = ScriptedAnswer("side", read_conversation(body), ())
        entry = record.arrived(request.url.path, body, answer, dict(request.headers))
        record.ended(entry, "served", 0)
        return JSONResponse({"input_tokens": wire.input_tokens(body)})

    async def requests(request: Request) -> Response:
        if request.method == "DELETE":
            record.clear()
            return Response(status_code=204)
        return JSONResponse(record.requests(request.query_params.get("kind")))

    async def welcome(_request: Request) -> Response:
        return PlainTextResponse(_WELCOME)

    async def not_found(request: Request, _error: Exception) -> Response:
        return _error_response(HttpError(404, f"There is no {request.method} {request.url.path}."))

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        started()
        yield
        record.close()

    return Starlette(
        routes=[
            Route("/", welcome),
            # The CLI warms its connection up with HEAD /api/hello.
            Route("/api/hello", welcome),
            Route("/v1/messages", messages, methods=["POST"]),
            Route("/v1/messages/count_tokens", count_tokens, methods=["POST"]),
            Route("/requests", requests, methods=["GET", "DELETE"]),
        ],
        exception_handlers={404: not_found, 405: not_found},
        lifespan=lifespan,
    )


async def _read_body(request: Request) -> dict[str, Any] | None:
    """The request's JSON, or None if it is not a Messages API request."""
    try:
        body = json.loads(await request.body())
    except ValueError:
        return None
    if not isinstance(body, dict) or not isinstance(body.get("messages"), list):
        return None
    return (
        body
        if body["messages"] and all(isinstance(message, dict) for message in body["messages"])
        else None
    )


def _error_response(error: HttpError, more: dict[str, str] | None = None) -> Response:
    body = wire.error_body(wire.ERROR_TYPES.get(error.status, "api_error"), error.message)
    headers = {"request-id": body["request_id"], **(more or {})}
    if error.retry_after is not None:
        headers["retry-after"] = str(error.retry_after)
    return JSONResponse(body, error.status, headers)


async def _wait(seconds: float | None) -> None:
    if seconds is None:
        await asyncio.Event().wait()
    elif seconds > 0:
        await asyncio.sleep(seconds)


async def _client_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
