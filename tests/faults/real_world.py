"""Real fronts, daemons, workers and a database, with what `tests/promises.py` has to
know of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pykoclaw_acp.store.sqlite import sqlite3
from tests.e2e.harness import Client, RpcError, ServerGone, Stack, processes, script
from tests.e2e.harness.client import selected
from tests.promises import ENDED, Asked, TurnRow, View, turns
from tests.waiting import eventually

MARKER: Final = re.compile(r"mark-\d+-")
MIDDLE: Final = 1  # where a client begins that resumes: somewhere
WELL: Final = 60.0  # s; for a daemon that comes up


class RealFront:
    """A client and its front process."""

    def __init__(self, client: Client, world: RealWorld) -> None:
        self.client = client
        self.asked: dict[int, Asked] = {}
        self.followed: set[str] = set()
        self.wanted: Counter[str] = Counter()  # how often it has asked for each session
        self.refused: list[Asked] = []  # for now, and not asked again yet
        self.replied: set[str] = set()
        self._starts: dict[str, int] = {}
        self._world = world
        self._uuid = ""

    @property
    def open(self) -> list[int]:
        return [number for number, one in self.asked.items() if one.answer is None]

    @property
    def views(self) -> dict[str, View]:
        updates = self.client.updates
        return {
            session: View(
                start, [(one["_meta"]["pykoclaw.dev/seq"], one) for one in updates.get(session, [])]
            )
            for session, start in self._starts.items()
        }

    @property
    def questions(self) -> list[dict[str, Any]]:
        """Those that wait for this client's answer."""
        over = self.replied.union(self.client.withdrawn)
        return [one for one in self.client.questions if one["id"] not in over]

    def key(self, number: int) -> str:
        """The front's UUID is known once the journal has a prompt of its client's."""
        if not self._uuid:
            mine = {one.marker for one in self.asked.values() if one.marker is not None}
            keys = [
                row.key for row in turns(self._world) if row.words in mine and row.key is not None
            ]
            self._uuid = keys[0].partition(":")[0] if keys else ""
        return f"{self._uuid}:{number}"

    def is_front_of(self, key: str) -> bool:
        """Whether a request with this key is its client's."""
        return key in {self.key(number) for number in self.asked}

    def ask(self, method: str, /, marker: str | None = None, **params: Any) -> int:
        """Send a request; its number, under which `asked` has its answer."""
        answer = self.client.begin(method, **params)
        number = len(self.client.sent)  # each message is a line, and the front counts these
        one = self.asked[number] = Asked(method, params, marker=marker)
        self.wanted[str(params.get("sessionId"))] += 1
        answer.add_done_callback(lambda done: self._answered(one, done))
        return number

    def new(self) -> int:
        return self.ask("session/new", cwd=str(self._world.stack.work), mcpServers=[])

    def load(self, session: str) -> int:
        self._starts[session] = 0
        return self._open("session/load", session)

    def resume(self, session: str) -> int:
        self._starts[session] = MIDDLE
        return self._open("session/resume", session)

    def _open(self, method: str, session: str) -> int:
        self.client.updates[session] = []
        return self.ask(method, sessionId=session, cwd=str(self._world.stack.work), mcpServers=[])

    def prompt(self, session: str, words: str) -> int:
        return self.ask(
            "session/prompt", words, sessionId=session, prompt=[{"type": "text", "text": words}]
        )

    def cancel(self, session: str) -> None:
        self.client.cancel(session)

    def reply(self, option: str) -> None:
        """Answer the oldest question."""
        question = self.questions[0]
        self.replied.add(question["id"])
        self.client.reply(question, selected(option))

    def try_again(self) -> None:
        """Ask once more what was refused for now."""
        again, self.refused = self.refused, []
        for one in again:
            self.ask(one.method, one.marker, **one.params)

    def _answered(self, one: Asked, done: asyncio.Future[dict[str, Any]]) -> None:
        error = None if done.cancelled() else done.exception()
        if done.cancelled() or isinstance(error, ServerGone):
            return
        if not isinstance(error, RpcError):
            result = done.result()
            one.answer = {"result": result}
            session = str(result.get("sessionId") or one.params.get("sessionId"))
            if one.method in ("session/new", "session/load", "session/resume"):
                self.followed.add(session)
                self._starts.setdefault(session, 0)
            return
        one.answer = {"error": {"code": error.code, "message": error.message, "data": error.data}}
        if isinstance(error.data, dict) and error.data.get("retryable"):
            self.refused.append(one)


@dataclass
class RealRun:
    """One turn that reached the model; `said` is the whole of its answer, which nobody has
    disturbed.
    """

    session: str
    turns: list[str]
    prompts: list[str]
    said: dict[str, str]
    done: set[str]
    lost_something: bool
    killed: bool = False


@dataclass
class Script:
    """A prompt that was made: its session, and what the model answers."""

    session: str
    words: str
    answer: str
    disturbed: bool = False  # cancelled, or its worker killed, or so it may be


class RealWorld:
    """Everything of one stack. Clients that have left are forgotten; what they asked for is not."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.fronts: list[RealFront] = []
        self.for_nobody: list[str] = []
        self._came: list[RealFront] = []
        self._scripts: dict[str, Script] = {}
        # Prompts behind which nobody stood when a daemon ended, whose front or another one that has the
        # session open; how often each client had asked for their session then.
        self._left: dict[str, dict[RealFront, int]] = {}
        self._reader: sqlite3.Connection | None = None
        self._model: list[str] = []  # markers, in the order in which they reached it

    # --- what the promises are about

    @property
    def broken(self) -> BaseException | None:
        return next((one.client.fault for one in self._came if one.client.fault is not None), None)

    @property
    def workers(self) -> list[RealRun]:
        rows: dict[str, TurnRow] = {}
        for row in turns(self):
            if row.words not in rows or rows[row.words].state in ("queued", "cancelled"):
                rows[row.words] = row
        return [self._run(self._scripts[marker], rows) for marker in self._model]

    def _run(self, one: Script, rows: dict[str, TurnRow]) -> RealRun:
        row = rows.get(one.words)
        assert row is not None, f"the model was asked what the journal does not know: {one.words}"
        ended = row.state in ENDED and not one.disturbed
        said, done = ({row.turn_id: one.answer}, {row.turn_id}) if ended else ({}, set())
        return RealRun(one.session, [row.turn_id], [one.words], said, done, one.disturbed)

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """What the file says to another program, which keeps it open wherever it is moved."""
        if self._reader is None:
            self._reader = sqlite3.connect(
                f"file:{self.stack.data / 'pykoclaw.db'}?mode=ro", uri=True, timeout=30
            )
        return self._reader.execute(query, parameters).fetchall()

    def look(self) -> None:
        """Learn what has reached the model; a prompt that was left waiting must have somebody
        behind it.
        """
        for front in [one for one in self.fronts if one.client.process.returncode is not None]:
            assert not front.followed, f"a front has given up: {front.client.log.read_text()}"
            self.fronts.remove(front)  # it came while there was no database, and was told so
        found = [
            MARKER.findall(one["messages"][-1]["text"])
            for one in self.stack.asked()
            if not _results(one)
        ]
        self._model = [markers[-1] for markers in found if markers]
        for marker in self._model:
            self._judge(self._scripts[marker])

    def _judge(self, one: Script) -> None:
        before = self._left.pop(one.words, None)
        if before is not None and all(
            front.wanted[one.session] <= before.get(front, 0) for front in self._came
        ):
            self.for_nobody.append(one.words)

    # --- clients

    @property
    def sessions(self) -> list[str]:
        """Those that somebody was told of."""
        return list(
            dict.fromkeys(session for front in self._came for session in sorted(front.followed))
        )

    async def front(self) -> RealFront:
        """Another client. It has no time: whatever daemon there is, or is not."""
        client = await self.stack.spawn_front()
        client.permit = lambda _: None
        made = RealFront(client, self)
        self.fronts.append(made)
        self._came.append(made)
        made.ask(
            "initialize",
            protocolVersion=1,
            clientCapabilities={},
            clientInfo={"name": "editor", "version": "1"},
        )
        return made

    async def leave(self, front: RealFront) -> None:
        """SIGKILL of the front; its client does not come back."""
        self.fronts.remove(front)
        await front.client.kill()

    def words(self, session: str, *, deltas: int, asks: bool) -> str:
        """A prompt that was never made before; `asks`: it runs a tool, for which a permission is
        needed.
        """
        marker = f"mark-{len(self._scripts) + 1}-"
        lines = [f"repeat {deltas}x10ms {marker}{{n}}."]
        answer = " ".join(f"{marker}{n}." for n in range(1, deltas + 1))
        if asks:
            lines += [f"bash touch {marker}", f"text {marker}end."]
            answer += f"{marker}end."
        words = script(f"# {marker}", *lines)
        self._scripts[marker] = Script(session, words, answer)
        return words

    def disturb(self, session: str) -> None:
        """What was asked so far in the session may end early."""
        over = {row.words for row in turns(self) if row.state in ENDED}
        for one in self._scripts.values():
            if one.session == session and one.words not in over:
                one.disturbed = True

    # --- processes

    async def end_daemon(self, number: signal.Signals, also: RealFront | None = None) -> None:
        """Send the daemon a signal; `also`: that front is SIGKILLed while no daemon is there to
        notice.
        """
        pid = self.stack.daemon_pid()
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        if also is not None:
            await self.leave(also)
        waiting = self._for_nobody()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            os.kill(pid, signal.SIGCONT)
        await eventually(lambda: not processes.alive(pid))
        still = self._for_nobody()
        self._left.update({words: before for words, before in waiting.items() if words in still})

    def _for_nobody(self) -> dict[str, dict[RealFront, int]]:
        waiting = [row for row in turns(self) if row.state == "queued" and row.key is not None]
        return {
            row.words: {front: front.wanted[row.session] for front in self._came}
            for row in waiting
            if not any(
                front.is_front_of(str(row.key)) or row.session in front.followed
                for front in self.fronts
            )
        }

    async def serves(self) -> None:
        """There is a daemon: the fronts' own, or one that is started for them."""

        def served() -> bool:
            pid = self.stack.daemon_pid()
            return pid is not None and self.stack.serves(pid)

        if not self.fronts and not served():
            await self.front()
        await eventually(served, WELL)

    def kill_worker(self, choose: Callable[[list[str]], str]) -> bool:
        """SIGKILL of a session's worker; False if there is none."""
        alive = {
            one.session: one
            for one in self.stack.processes()
            if one.is_claude and one.session is not None
        }
        if not alive:
            return False
        session = choose(sorted(alive))
        self.disturb(session)
        with contextlib.suppress(ProcessLookupError):
            os.kill(alive[session].parent, signal.SIGKILL)
        return True

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


def _results(request: dict[str, Any]) -> bool:
    newest = request["messages"][-1]
    return newest["role"] != "user" or bool(newest["tool_results"])
