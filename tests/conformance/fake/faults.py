"""Ways to break an agent: each makes a fault of one kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.conformance.fake.installation import Frame
from tests.conformance.fake.wire import Fault, MemoryWire

Said = list[Frame | bytes]
NO: Frame = {"code": -32603, "message": "No."}


def update(session: str, **content: Any) -> Frame:
    """A `session/update`."""
    params = {"sessionId": session, "update": content}
    return {"jsonrpc": "2.0", "method": "session/update", "params": params}


def chunk(session: str, words: str = "More.") -> Frame:
    """A piece of an answer."""
    content = {"type": "text", "text": words}
    return update(session, sessionUpdate="agent_message_chunk", content=content)


def own(method: str, **params: Any) -> Frame:
    """A notification."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def session_of(request: Frame, answer: Frame) -> str:
    """The session of a request, or of the answer that has opened one."""
    named = (request.get("params") or {}).get("sessionId")
    return str(named or (answer.get("result") or {}).get("sessionId"))


class Answers(Fault):
    """Changes the answers to a method."""

    def __init__(self, method: str, change: Callable[[Frame, Frame], Said]) -> None:
        self._method = method
        self._change = change

    def out(self, frame: Frame, request: Frame, wire: MemoryWire) -> Said:
        if request.get("method") != self._method:
            return [frame]
        return self._change(frame, request)


def result(method: str, change: Callable[[Frame], Frame]) -> Fault:
    """Another result."""

    def changed(frame: Frame, _: Frame) -> Said:
        return [{**frame, "result": change(frame["result"])} if "result" in frame else frame]

    return Answers(method, changed)


def refuses(method: str, error: Frame = NO) -> Fault:
    """An error instead of a result."""

    def changed(frame: Frame, _: Frame) -> Said:
        if "error" in frame:
            return [frame]
        return [{"jsonrpc": "2.0", "id": frame["id"], "error": error}]

    return Answers(method, changed)


def accepts(method: str, given: Frame) -> Fault:
    """A result instead of an error."""

    def changed(frame: Frame, _: Frame) -> Said:
        if "result" in frame:
            return [frame]
        return [{"jsonrpc": "2.0", "id": frame["id"], "result": given}]

    return Answers(method, changed)


def code(method: str, number: int) -> Fault:
    """Another code of an error."""

    def changed(frame: Frame, _: Frame) -> Said:
        if "result" in frame:
            return [frame]
        return [{**frame, "error": {**frame["error"], "code": number}}]

    return Answers(method, changed)


def silent(method: str) -> Fault:
    """No answer."""
    return Answers(method, lambda *_: [])


def after(method: str, more: Callable[[str], Frame | bytes]) -> Fault:
    """Something more after a result; the session is that of the request."""

    def changed(frame: Frame, request: Frame) -> Said:
        return [frame, *([more(session_of(request, frame))] if "result" in frame else [])]

    return Answers(method, changed)


def before(method: str, more: Callable[[str], Frame | bytes]) -> Fault:
    """Something more before a result."""

    def changed(frame: Frame, request: Frame) -> Said:
        return [*([more(session_of(request, frame))] if "result" in frame else []), frame]

    return Answers(method, changed)


class Updates(Fault):
    """Changes the updates of a kind; None drops them."""

    def __init__(self, kind: str, change: Callable[[Frame], Frame | None]) -> None:
        self._kind = kind
        self._change = change

    def out(self, frame: Frame, request: Frame, wire: MemoryWire) -> Said:
        if frame.get("method") != "session/update":
            return [frame]
        params = frame["params"]
        if params["update"]["sessionUpdate"] != self._kind:
            return [frame]
        changed = self._change(params["update"])
        return [] if changed is None else [{**frame, "params": {**params, "update": changed}}]


class Calls(Fault):
    """Changes what the agent asks the client by a method."""

    def __init__(self, method: str, change: Callable[[Frame], Said]) -> None:
        self._method = method
        self._change = change

    def out(self, frame: Frame, request: Frame, wire: MemoryWire) -> Said:
        return self._change(frame) if frame.get("method") == self._method else [frame]


class Hears(Fault):
    """Changes what the client sends by a method; what it gives is sent to the client at once, if it
    is an answer, else to the agent. None drops it.
    """

    def __init__(self, method: str | None, change: Callable[[Frame], Frame | None]) -> None:
        self._method = method
        self._change = change

    def into(self, frame: Frame, wire: MemoryWire) -> Frame | None:
        if frame.get("method") != self._method:
            return frame
        changed = self._change(frame)
        if changed is not None and "method" in frame and "method" not in changed:
            wire.say(changed)
            return None
        return changed


def failing(frame: Frame, number: int = -32603) -> Frame:
    """An error as the answer to a request."""
    return {"jsonrpc": "2.0", "id": frame.get("id"), "error": {"code": number, "message": "No."}}


def done(frame: Frame, **given: Any) -> Frame:
    """A result as the answer to a request."""
    return {"jsonrpc": "2.0", "id": frame.get("id"), "result": given}
