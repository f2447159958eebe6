"""A client that speaks raw lines: it sends what a rule wants and records what comes."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from tests.conformance.recording import Recording, granted
from tests.conformance.registry import Violation, check, unsupported

T = TypeVar("T")
Frame = dict[str, Any]

CANCELLED = {"outcome": {"outcome": "cancelled"}}
DECLINED: Frame = {"action": "decline"}


def selected(option: str) -> Frame:
    """The answer to a permission request that chooses this option."""
    return {"outcome": {"outcome": "selected", "optionId": option}}


def choosing(kind: str) -> Callable[[Frame], Frame]:
    """Answer permission requests with the first option of this kind."""

    def choose(params: Frame) -> Frame:
        found = [one["optionId"] for one in params["options"] if one["kind"] == kind]
        check(found, f"a permission request offers no option of the kind {kind}: {params}")
        return selected(found[0])

    return choose


class Wire(Protocol):
    """A way to one agent."""

    def write(self, data: bytes) -> None: ...

    async def readline(self) -> bytes:
        """A line with its end; empty when the agent has closed its output."""
        ...

    def end_input(self) -> None:
        """No more will be written."""
        ...

    async def ended(self) -> None:
        """Wait until the agent has ended."""
        ...

    async def discard(self) -> None:
        """End the agent at once, if it still runs."""
        ...


class Refused(Violation):
    """The agent answered with an error where it must not."""

    def __init__(self, method: str, error: Any) -> None:
        super().__init__(f"{method} is answered with an error: {json.dumps(error)[:1000]}")
        self.error = error


class Peer:
    """One connection. `permit` gives the result for a permission request from its parameters, or
    None to leave it open; what it raises fails the rule.
    """

    def __init__(self, wire: Wire, recording: Recording, patience: float) -> None:
        self.wire = wire
        self.recording = recording
        self.patience = patience  # seconds that an answer may take
        self.permit: Callable[[Frame], Frame | None] = choosing("allow_once")
        self.fill: Callable[[Frame], Frame] = lambda _: DECLINED  # what a form is answered with
        self.open_questions: list[Frame] = []
        self.asked: list[Frame] = []  # parameters of permission requests
        self._ids = 0
        self._waiting: dict[str, asyncio.Future[Frame]] = {}
        self._news = asyncio.Event()
        self._fault: BaseException | None = None
        self._reader = asyncio.create_task(self._read())

    # --- out

    def write(self, data: bytes) -> None:
        """Bytes as they are; not recorded, as they may be no message."""
        self.wire.write(data)

    def send(self, frame: Frame) -> None:
        """A message."""
        line = json.dumps(frame).encode() + b"\n"
        self.recording.add(line, by_agent=False)
        self.wire.write(line)

    @property
    def last_id(self) -> int:
        """The id of the request that `begin` has sent last."""
        return self._ids

    def begin(self, method: str, /, **params: Any) -> asyncio.Future[Frame]:
        """Send a request; the future of its answer, result or error."""
        self._ids += 1
        return self.begin_as(self._ids, {"method": method, "params": params})

    def begin_as(self, message_id: Any, message: Frame) -> asyncio.Future[Frame]:
        """Send a request under this id; the future of its answer."""
        future = self.expect(message_id)
        self.send({"jsonrpc": "2.0", "id": message_id, **message})
        return future

    def expect(self, message_id: Any) -> asyncio.Future[Frame]:
        """The future of the answer under this id, whatever will cause it."""
        future: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._waiting[json.dumps(message_id)] = future
        if self._reader.done():
            future.set_exception(Violation("the agent has closed its output"))
        return future

    def notify(self, method: str, /, **params: Any) -> None:
        """Send a notification."""
        self.send({"jsonrpc": "2.0", "method": method, "params": params})

    async def ask(self, method: str, /, **params: Any) -> Frame:
        """Send a request and wait for its answer, result or error."""
        return await self.answer(self.begin(method, **params), method)

    async def answer(self, future: asyncio.Future[T], what: str = "a request") -> T:
        """Wait for an answer."""
        try:
            async with asyncio.timeout(self.patience):
                answer = await asyncio.shield(future)
        except TimeoutError:
            raise Violation(f"no answer to {what} within {self.patience:g} s") from self._fault
        if self._fault is not None:
            raise self._fault
        return answer

    async def call(self, method: str, /, **params: Any) -> Frame:
        """Send a request and wait for its result; raises Refused."""
        return result_of(await self.ask(method, **params), method)

    async def refused(self, method: str, /, **params: Any) -> Frame:
        """Send a request that must not succeed; its error."""
        return error_of(await self.ask(method, **params), f"{method} {params}")

    async def fence(self) -> None:
        """Wait until the agent has dealt with what was sent before, as far as it does one thing
        after the other.
        """
        await self.ask("_conformance/fence")

    # --- ACP

    async def initialize(self, **params: Any) -> Frame:
        sent = {
            "protocolVersion": 1,
            "clientCapabilities": {},
            "clientInfo": {"name": "acp-conformance", "version": "1"},
            **params,
        }
        answer = await self.call("initialize", **sent)
        if isinstance(sent["clientCapabilities"], dict):
            self.recording.capabilities = sent["clientCapabilities"]
        self.recording.agent = answer
        return answer

    def needs(self, capability: str) -> None:
        """Leave the rule out unless the agent advertises this capability."""
        if not granted(self.recording.agent.get("agentCapabilities"), capability):
            unsupported(f"the agent does not advertise {capability}")

    def begin_prompt(self, session: str, *content: str | Frame) -> asyncio.Future[Frame]:
        """Send a prompt of texts and other blocks; the future of its answer."""
        blocks = [{"type": "text", "text": one} if isinstance(one, str) else one for one in content]
        return self.begin("session/prompt", sessionId=session, prompt=blocks)

    async def prompt(self, session: str, *content: str | Frame) -> str:
        """Send a prompt and wait for its stop reason."""
        answer = await self.answer(self.begin_prompt(session, *content), "session/prompt")
        return str(result_of(answer, "session/prompt").get("stopReason"))

    # --- what has come

    def seen(self) -> int:
        """How many lines were exchanged; for `since`."""
        return len(self.recording.lines)

    def updates(self, session: str, *kinds: str, since: int = 0) -> list[Frame]:
        """The session's updates of these kinds, in order."""
        later = Recording(lines=self.recording.lines[since:])
        return [update for one, update in later.updates(*kinds) if one == session]

    def said(self, session: str, kind: str = "agent_message_chunk", *, since: int = 0) -> str:
        """The text of the session's chunks of this kind, joined."""
        chunks = self.updates(session, kind, since=since)
        return "".join(one["content"].get("text", "") for one in chunks)

    async def until(self, condition: Callable[[], T], what: str) -> T:
        """Wait until the condition holds; it is looked at after each line that comes."""
        try:
            async with asyncio.timeout(self.patience):
                while not (found := condition()):
                    self._news.clear()
                    await self._news.wait()
                    if self._fault is not None:
                        raise self._fault
                return found
        except TimeoutError:
            raise Violation(f"not seen within {self.patience:g} s: {what}") from None

    # --- the end

    async def ended(self) -> bool:
        """Whether the agent ends within the time of an answer, its input having ended."""
        self.wire.end_input()
        try:
            async with asyncio.timeout(self.patience):
                await asyncio.shield(self._reader)
                await self.wire.ended()
        except TimeoutError:
            return False
        return True

    async def close(self) -> None:
        """End the agent as a client does, by force if it does not."""
        if not await self.ended():
            await self.wire.discard()
        self._reader.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reader
        for future in self._waiting.values():
            future.cancel()

    @property
    def usable(self) -> bool:
        """Whether another rule may use the connection."""
        return not (self._reader.done() or self._waiting or self.open_questions or self._fault)

    # --- in

    async def _read(self) -> None:
        while line := await self.wire.readline():
            frame = self.recording.add(line, by_agent=True)
            try:
                if frame is not None:
                    self._take(frame)
            except Exception as error:  # raised by what waits
                self._fault = self._fault or error
            self._news.set()
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(Violation("the agent has closed its output"))
                future.exception()
        self._news.set()

    def _take(self, frame: Frame) -> None:
        if "method" not in frame:
            future = self._waiting.pop(json.dumps(frame.get("id")), None)
            if future is not None and not future.done():
                future.set_result(frame)
        elif "id" in frame:
            result = self._result(frame)
            if result is not None:
                # Later, so that what came together is recorded together.
                answer = {"jsonrpc": "2.0", "id": frame["id"], **result}
                asyncio.get_running_loop().call_soon(self.send, answer)

    def _result(self, frame: Frame) -> Frame | None:
        if frame["method"] == "elicitation/create":
            return {"result": self.fill(frame["params"])}
        if frame["method"] != "session/request_permission":
            given = OFFERED.get(frame["method"])
            if given is None:
                return {"error": {"code": -32601, "message": "This client has no such method."}}
            return {"result": given}
        self.asked.append(frame["params"])
        decided = self.permit(frame["params"])
        if decided is None:
            self.open_questions.append(frame)
            return None
        return {"result": decided}

    def reply(self, question: Frame, result: Frame) -> None:
        """Answer a permission request that was left open."""
        self.open_questions.remove(question)
        self.send({"jsonrpc": "2.0", "id": question["id"], "result": result})


# What a client answers that has files, terminals and forms to offer.
OFFERED: dict[str, Frame] = {
    "fs/read_text_file": {"content": "read"},
    "fs/write_text_file": {},
    "terminal/create": {"terminalId": "terminal-1"},
    "terminal/output": {"output": "out", "truncated": False, "exitStatus": {"exitCode": 0}},
    "terminal/wait_for_exit": {"exitCode": 0},
    "terminal/kill": {},
    "terminal/release": {},
}
Connect = Callable[[], Awaitable[Peer]]


def result_of(answer: Frame, method: str) -> Frame:
    """The result; raises Refused."""
    if "error" in answer:
        raise Refused(method, answer["error"])
    result = answer.get("result")
    check(isinstance(result, dict), f"the result of {method} is no object: {answer}")
    assert isinstance(result, dict)
    return result


def error_of(answer: Frame, what: str) -> Frame:
    """The error; Violation if the request has succeeded."""
    error = answer.get("error")
    check(isinstance(error, dict), f"this must be refused, but is answered: {what[:500]}: {answer}")
    assert isinstance(error, dict)
    return error
