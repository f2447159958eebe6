"""A raw ACP client: writes what a test wants, validates what the server writes, keeps all of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from asyncio.subprocess import Process
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from tests.e2e.harness import frames
from tests.waiting import eventually

T = TypeVar("T")

ANSWER_WAIT: Final = 120.0  # seconds
CANCELLED: Final = {"outcome": {"outcome": "cancelled"}}


def selected(option: str) -> dict[str, Any]:
    """The answer to a permission question that chooses this option."""
    return {"outcome": {"outcome": "selected", "optionId": option}}


class RpcError(Exception):
    """The server answered a request with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error['code']}: {error['message']} {error.get('data')}")
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: Any = error.get("data")

    @property
    def kind(self) -> str:
        """Why a turn failed."""
        return str(self.data["errorKind"])


class ServerGone(Exception):
    """The server ended before it answered."""


class Client:
    """One client of one server process, over the server's stdio.

    `commands` are the slash commands that were offered last, by session. `permit` answers
    permission questions: a function of the request's parameters that gives the result; what it
    raises is sent as an error, None leaves the question open. `sent` and `received` are all frames,
    `updates` those of `session/update` by session, since the last load. What breaks the protocol is
    raised by whatever the test waits for.
    """

    def __init__(self, process: Process, log: Path) -> None:
        self.process = process
        self.log = log
        self.sent: list[Any] = []
        self.received: list[dict[str, Any]] = []
        self.updates: dict[str, list[dict[str, Any]]] = {}
        self.commands: dict[str, list[dict[str, Any]]] = {}
        self.offered: dict[str, list[dict[str, Any]]] = {}  # config options that Claude brought
        self.questions: list[dict[str, Any]] = []
        self.withdrawn: list[Any] = []
        self.unplaced: list[dict[str, Any]] = []
        self.besides: list[str] = []  # texts that are no part of the log
        self.late: list[dict[str, Any]] = []  # progress of calls, which has no place any more
        self.announced: list[dict[str, Any]] = []  # calls that the log has later
        self.permit: Callable[[dict[str, Any]], dict[str, Any] | None] = lambda _: selected(
            "allow_once"
        )
        self.on_update: Callable[[dict[str, Any]], None] = lambda _: None
        self.fault: BaseException | None = None
        self.longest_line = frames.MAX_LINE
        self._ids = 0
        self._loading: set[str] = set()
        self._waiting: dict[str, tuple[str, asyncio.Future[dict[str, Any]]]] = {}
        self._reader = asyncio.create_task(self._read())

    # --- out

    def write(self, *lines: bytes) -> None:
        """Bytes as they are, in one write."""
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(lines))

    def send(self, *messages: Any) -> None:
        """Messages, a line each, in one write."""
        self.sent.extend(messages)
        self.write(*(json.dumps(message).encode() + b"\n" for message in messages))

    def request(
        self, method: str, /, **params: Any
    ) -> tuple[dict[str, Any], asyncio.Future[dict[str, Any]]]:
        """A request that is not sent yet, and the future of its result."""
        self._ids += 1
        return {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": params}, self.expect(
            self._ids, method
        )

    def expect(self, message_id: Any, method: str) -> asyncio.Future[dict[str, Any]]:
        """The future of the answer under this id."""
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self._reader.done():
            future.set_exception(self.fault or ServerGone(self.last_words()))
        else:
            self._waiting[json.dumps(message_id)] = (method, future)
        return future

    def begin(self, method: str, /, **params: Any) -> asyncio.Future[dict[str, Any]]:
        """Send a request; the future of its result."""
        message, future = self.request(method, **params)
        self.send(message)
        return future

    async def call(self, method: str, /, **params: Any) -> dict[str, Any]:
        """Send a request and wait for its result; raises RpcError."""
        return await self.answer(self.begin(method, **params))

    async def answer(self, future: asyncio.Future[T]) -> T:
        """Wait for an answer."""
        try:
            return await asyncio.wait_for(asyncio.shield(future), ANSWER_WAIT)
        except TimeoutError:
            raise AssertionError(
                f"no answer within {ANSWER_WAIT} s; {self.last_words()}"
            ) from self.fault

    def notify(self, method: str, /, **params: Any) -> None:
        """Send a notification."""
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    # --- ACP

    async def initialize(self, **params: Any) -> dict[str, Any]:
        return await self.call(
            "initialize", **{"protocolVersion": 1, "clientCapabilities": {}, **params}
        )

    async def new(self, cwd: Path, **params: Any) -> str:
        """A new session's id."""
        return str(
            (await self.call("session/new", **{"cwd": str(cwd), "mcpServers": [], **params}))[
                "sessionId"
            ]
        )

    async def load(self, session: str, cwd: Path, **params: Any) -> dict[str, Any]:
        """Load; `updates` of the session begin anew, with those of the replay."""
        self.updates[session] = []
        self._loading.add(session)
        try:
            return await self.call(
                "session/load",
                **{"sessionId": session, "cwd": str(cwd), "mcpServers": [], **params},
            )
        finally:
            self._loading.discard(session)

    async def resume(self, session: str, cwd: Path, after: int | None = None) -> dict[str, Any]:
        """Resume; what the client has not seen after `after` follows."""
        meta = {} if after is None else {"_meta": {"pykoclaw.dev/after": after}}
        return await self.call(
            "session/resume", sessionId=session, cwd=str(cwd), mcpServers=[], **meta
        )

    def prompting(
        self, session: str, *content: str | dict[str, Any]
    ) -> asyncio.Future[dict[str, Any]]:
        """Send a prompt of texts and other blocks; the future of its result."""
        blocks = [
            {"type": "text", "text": part} if isinstance(part, str) else part for part in content
        ]
        return self.begin("session/prompt", sessionId=session, prompt=blocks)

    async def prompt(self, session: str, *content: str | dict[str, Any]) -> dict[str, Any]:
        """Send a prompt and wait for its result."""
        return await self.answer(self.prompting(session, *content))

    def cancel(self, session: str) -> None:
        self.notify("session/cancel", sessionId=session)

    # --- what was seen

    def of(self, session: str, *kinds: str) -> list[dict[str, Any]]:
        """The session's updates of these kinds, in order; all without kinds."""
        return [
            one
            for one in self.updates.get(session, [])
            if not kinds or one["sessionUpdate"] in kinds
        ]

    def text(self, session: str, kind: str = "agent_message_chunk") -> str:
        """What the session's updates of this kind say, joined."""
        return "".join(one["content"].get("text", "") for one in self.of(session, kind))

    async def until(
        self, condition: Callable[[], T | Awaitable[T]], timeout: float = ANSWER_WAIT
    ) -> T:
        """Wait until the condition is true; raises what broke the protocol meanwhile."""

        def look() -> T | Awaitable[T]:
            if self.fault is not None:
                raise self.fault
            return condition()

        return await eventually(look, timeout)

    def last_words(self) -> str:
        """The end of the server's log, for people."""
        return "the server's log ends with:\n" + "\n".join(self.log.read_text().splitlines()[-12:])

    # --- the end

    async def close(self) -> int:
        """End the server's input and wait for its exit status."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return await self.gone()

    async def kill(self) -> None:
        """SIGKILL, the server alone."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.gone()

    async def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return await self.gone()

    async def gone(self, timeout: float = 30) -> int:
        """Wait until the server has ended and everything that it wrote was read."""
        status = await asyncio.wait_for(self.process.wait(), timeout)
        await asyncio.wait_for(asyncio.shield(self._reader), timeout)
        assert self.process.stdin is not None
        self.process.stdin.close()
        with contextlib.suppress(ConnectionError):
            await self.process.stdin.wait_closed()
        return status

    # --- in

    async def _read(self) -> None:
        assert self.process.stdout is not None
        try:
            while line := await self.process.stdout.readline():
                if self.fault is None:  # after a bad frame the rest is only taken away
                    self._take(line)
        except Exception as error:
            self.fault = error
        for _, future in self._waiting.values():
            if not future.done():
                future.set_exception(self.fault or ServerGone(self.last_words()))

    def _take(self, line: bytes) -> None:
        try:
            frame = frames.parse(line, self.longest_line)
            self.received.append(frame)
            if "method" not in frame:
                self._answered(frame)
                return
            frames.validate_call(frame)
        except frames.BadFrame as error:
            self.fault = error
            for _, future in self._waiting.values():
                if not future.done():
                    future.set_exception(error)
            return
        if "id" in frame:
            self._asked(frame)
        elif frame["method"] == "session/update":
            self._updated(frame)
        else:
            self.withdrawn.append(frame["params"]["requestId"])

    def _answered(self, frame: dict[str, Any]) -> None:
        method, future = self._waiting.pop(json.dumps(frame["id"]), (None, None))
        frames.validate_answer(frame, method)
        if future is None:
            if frame["id"] is not None:
                raise frames.BadFrame(f"nobody waits for this answer, or it came twice: {frame}")
            self.unplaced.append(frame["error"])
        elif not future.done():
            if "error" in frame:
                future.set_exception(RpcError(frame["error"]))
            else:
                future.set_result(frame["result"])

    def _updated(self, frame: dict[str, Any]) -> None:
        seen = self.updates.setdefault(frame["params"]["sessionId"], [])
        update = frame["params"]["update"]
        if update["sessionUpdate"] == "available_commands_update":  # an offer, no part of the log
            self.commands[frame["params"]["sessionId"]] = update["availableCommands"]
            return
        if update["sessionUpdate"] == "config_option_update" and "_meta" not in update:
            self.offered[frame["params"]["sessionId"]] = update["configOptions"]
            return
        if update["sessionUpdate"] == "agent_message_chunk" and "_meta" not in update:  # as little
            return
        placed = "pykoclaw.dev/seq" in update.get("_meta", {})
        if update["sessionUpdate"] == "tool_call" and not placed:  # of a request
            self.announced.append(update)
            return
        if update["sessionUpdate"] == "tool_call_update" and not placed:  # of a call that runs
            self.late.append(update)
            return
        if update["sessionUpdate"] == "plan" and not placed:  # the log has it at an earlier place
            return
        if update.get("messageId", "").endswith("-shown"):  # the log has it in another form
            self.besides.append(update["content"]["text"])
            return
        before = seen[-1]["_meta"]["pykoclaw.dev/seq"] if seen else 0
        goes_back = update["_meta"]["pykoclaw.dev/seq"] <= before
        if goes_back and frame["params"]["sessionId"] in self._loading:
            seen.clear()  # it was sent before the daemon had read the request
            self._loading.discard(frame["params"]["sessionId"])
        elif goes_back:
            raise frames.BadFrame(f"seq goes back or repeats after {before}: {frame}")
        seen.append(update)
        self.on_update(update)

    def _asked(self, frame: dict[str, Any]) -> None:
        self.questions.append(frame)
        try:
            result = self.permit(frame["params"])
        except Exception as error:
            self.send(
                {
                    "jsonrpc": "2.0",
                    "id": frame["id"],
                    "error": {"code": -32603, "message": f"the test says: {error}"},
                }
            )
            return
        if result is not None:
            self.reply(frame, result)

    def reply(self, question: dict[str, Any], result: dict[str, Any]) -> None:
        """Answer a question that was left open."""
        self.send({"jsonrpc": "2.0", "id": question["id"], "result": result})
