"""A front and its client in memory: the real ledger, and everything that the client was
ever told.
"""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any, Final

import pytest

from pykoclaw_acp.front.ledger import Ledger
from pykoclaw_acp.link import client_process, lines
from tests.e2e.harness import frames
from tests.promises import Asked, View

OPENING: Final = ("session/load", "session/resume")
WORKERS: Final = "m-"  # how the ids of their messages begin, as `promises.SAID` knows
# holds nothing that acts, nor do the directories above it, and none below is looked at
CWD: Final = "/proc"


class FrontLine:
    """The connection to one daemon, as that sees it."""

    def __init__(self, front: MemoryFront) -> None:
        self.cut = False
        self._front = front
        self._in: asyncio.Queue[bytes] = asyncio.Queue()

    def send(self, line: bytes) -> None:
        if not self.cut:
            self._in.put_nowait(line)

    def end(self) -> None:
        """Nothing is heard or said any more."""
        self.cut = True
        self._in.put_nowait(b"")

    async def read(self) -> bytes:
        return await self._in.get()

    def gather(self) -> None: ...

    async def write(self, line: bytes) -> None:
        if self.cut:
            raise ConnectionError("the front is gone")
        self._front.hear(line.rstrip(b"\n"))


class MemoryFront:
    """One client, of this name and process; what was refused for now it asks once more when told to,
    under a new request, as a person would.
    """

    def __init__(self, client: str, process: int) -> None:
        self.client = client
        self.process = process
        parent = dict(client_process.own() or {}, pid=process, start=1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client_process, "parent", lambda: parent)
            self.ledger = Ledger()
        self.opened_at: dict[str, float] = {}  # when it last asked to open a session, or got it
        self.asked: dict[int, Asked] = {}
        self.views: dict[str, View] = {}
        self.questions: dict[str, dict[str, Any]] = {}
        self.refused: list[Asked] = []  # for now, and not asked again yet
        self.line: FrontLine | None = None
        self._linked = False
        self._wanted: set[str] = set()  # sessions with which it came to this daemon, or asked for
        self._sessions: dict[int, str] = {}
        info = {"name": client, "version": "1"}
        self.ask("initialize", protocolVersion=1, clientInfo=info)

    # --- the client

    def ask(self, method: str, /, marker: str | None = None, **params: Any) -> int:
        """Send a request; its number, under which `asked` has its answer."""
        number = self._say(
            {"jsonrpc": "2.0", "id": len(self.asked) + 1_000, "method": method, "params": params}
        )
        self.asked[number] = Asked(method, params, marker=marker)
        self._wanted.add(str(params.get("sessionId")))
        self._note_opening(self.asked[number])
        return number

    def _note_opening(self, one: Asked) -> None:
        if one.method in OPENING:
            self.opened_at[one.params["sessionId"]] = time.monotonic()

    def prompt(self, session: str, text: str) -> int:
        """Prompt with words that are this prompt's alone."""
        return self.ask(
            "session/prompt", text, sessionId=session, prompt=[{"type": "text", "text": text}]
        )

    def new(self) -> int:
        return self.ask("session/new", cwd=CWD, mcpServers=[])

    def load(self, session: str) -> int:
        return self.ask("session/load", sessionId=session, cwd=CWD, mcpServers=[])

    def resume(self, session: str) -> int:
        return self.ask("session/resume", sessionId=session, cwd=CWD, mcpServers=[])

    def cancel(self, session: str) -> None:
        self._say({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": session}})

    def reply(self, question: str, option: str) -> None:
        """Answer a permission question."""
        self.questions.pop(question)
        result = {"outcome": {"outcome": "selected", "optionId": option}}
        self._say({"jsonrpc": "2.0", "id": question, "result": result})

    def answer(self, number: int) -> dict[str, Any] | None:
        return self.asked[number].answer

    def try_again(self) -> None:
        """Ask once more what was refused for now."""
        again, self.refused = self.refused, []
        for one in again:
            self.ask(one.method, one.marker, **one.params)

    def wants(self, session: str) -> bool:
        """Whether it came to this daemon with the session open, or has asked for anything in it."""
        return session in self._wanted

    def opens(self, session: str) -> bool:
        """Whether it waits for the session to be opened."""
        waits = (self.asked[number] for number in self.open)
        return any(one.method in OPENING and one.params["sessionId"] == session for one in waits)

    def key(self, number: int) -> str:
        return f"{self.ledger.front}:{number}"

    @property
    def followed(self) -> set[str]:
        """Sessions of which it is shown what comes."""
        return set(self.ledger.sessions)

    @property
    def open(self) -> list[int]:
        """Requests that wait for their answer."""
        return [number for number, one in self.asked.items() if one.answer is None]

    # --- the front

    def connect(self) -> FrontLine:
        """Introduce itself to a daemon, and say what no daemon has answered."""
        line = self.line = FrontLine(self)
        self._sessions = {}
        asked = {str(self.asked[number].params.get("sessionId")) for number in self.open}
        self._wanted = asked | set(self.ledger.sessions)
        # In memory a client has what its front was given.
        line.send(
            self.ledger.hello(
                {session_id: place.seq for session_id, place in self.ledger.sessions.items()}
            )
        )
        kept = (
            self.ledger.resent_lines()
            if self._linked
            else [one.sent() for one in self.ledger.lines.values()]
        )
        for one in kept:
            line.send(one)
        self._linked = True
        return line

    def cut(self) -> None:
        """The daemon is gone, or the line to it."""
        if self.line is not None:
            self.line.end()
            self.line = None

    def _say(self, message: dict[str, Any]) -> int:
        one = self.ledger.keep(json.dumps(message).encode(), time.monotonic())
        self.ledger.understand(one)
        if self.line is not None:
            self.line.send(one.sent())
        return one.number

    def hear(self, line: bytes) -> None:
        """A line of the daemon's, as `front/link.py` takes it."""
        kind = lines.find(line, lines.FROM_DAEMON)
        assert kind is not None, line
        numbers, text = kind.parse(line)
        match kind:
            case lines.UPDATE:
                self._moved(numbers, _called(text)["params"]["update"])
            case lines.CURSOR:
                self._moved(numbers, None)
            case lines.ANSWER:
                self._answered(numbers[0], text)
            case lines.ACK:
                self.ledger.acknowledge(numbers[0])
            case lines.ATTACHED:
                self._attached(numbers, json.loads(text))
            case lines.DETACHED:
                session = self._sessions.pop(numbers[0], None)
                if session is not None:
                    self.ledger.drop_session(session)
            case lines.REQUEST:
                ask_id, end = json.JSONDecoder().raw_decode(text.decode())
                request = text.decode()[end:]
                if self.ledger.add_request(ask_id, request.encode()):
                    self.questions[ask_id] = _called(request.encode())
            case lines.NOTIFY:
                self.ledger.note_withdrawal(text)
                note = _called(text)
                if note["method"] == "$/cancel_request":
                    self.questions.pop(note["params"]["requestId"], None)

    def _attached(self, numbers: list[int], session: str) -> None:
        token, seq, number = numbers
        self._sessions[token] = session
        before = self.ledger.sessions.get(session)
        self.ledger.follow_session(session, seq, number)
        if session not in self.views or (number and seq == 0):
            self.views[session] = View(seq)
        else:
            assert before is None or seq == before.seq, (
                f"attached at {seq}, the client stands at {before.seq}"
            )

    def _moved(self, numbers: list[int], update: dict[str, Any] | None) -> None:
        token, seq = numbers
        session = self._sessions.get(token)
        if session is None:
            return
        assert seq > self.ledger.sessions[session].seq, f"seq goes back: {update}"
        self.ledger.sessions[session].seq = seq
        if update is not None:
            self.views[session].shown.append((seq, update))
        assert self.line is not None
        self.line.send(lines.SEEN.build(token, seq))

    def _answered(self, number: int, raw: bytes | bytearray) -> None:
        one = self.asked[number]
        answer = frames.parse(bytes(raw))
        frames.validate_answer(answer, one.method)
        if not self.ledger.drop_answered(number, raw):
            assert answer == one.answer, f"told two different things: {one}, then {answer}"
            return
        one.answer = answer
        self._note_opening(one)
        assert self.line is not None
        self.line.send(lines.DONE.build(number))
        data = answer.get("error", {}).get("data")
        if isinstance(data, dict) and data.get("retryable"):
            self.refused.append(one)


def _called(line: bytes | bytearray) -> dict[str, Any]:
    """A request or a notification of the daemon; raises BadFrame."""
    frame = frames.parse(bytes(line))
    frames.validate_call(frame)
    return frame
