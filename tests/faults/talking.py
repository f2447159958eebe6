"""Users who go on asking, whatever is killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
from typing import Any, Final

from tests.e2e.harness import Client, RpcError, ServerGone, Stack, processes, script
from tests.folds import told
from tests.promises import ENDED
from tests.waiting import eventually

MARKER: Final = re.compile(r"mark-\d+-\d+-")


ENOUGH: Final = 120.0  # s
GIVEN_UP: Final = 8.0  # s after which the first clients give a request up


class Talker:
    """A user who never stops asking, whose client starts another front when one dies, and asks
    again what was open.

    `keyed`: each prompt has an idempotency key; otherwise it is sent again just so, as Mitto does.
    """

    def __init__(self, stack: Stack, number: int) -> None:
        self.session = ""
        self.fronts: list[Client] = []
        self._stack = stack
        self.number = number
        self._keyed = number % 2 == 1
        self._asked = 0
        self.outcomes: dict[
            str, str
        ] = {}  # by marker: how the client was told that its prompt's turn ended

    async def begin(self) -> None:
        await self._connect()
        self.session = await self.front.new(self._stack.work)

    @property
    def front(self) -> Client:
        return self.fronts[-1]

    @property
    def shown(self) -> int:
        """Updates so far."""
        return sum(len(front.of(self.session)) for front in self.fronts)

    def seqs(self) -> list[int]:
        """Of all updates, one client after the other."""
        return [
            update["_meta"]["pykoclaw.dev/seq"]
            for front in self.fronts
            for update in front.of(self.session)
        ]

    async def talk(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self.ask("repeat 20x8ms a{n}.", tool(self._asked), "repeat 20x8ms b{n}.")

    async def ask(self, *lines: str) -> str:
        """Ask, however many fronts that takes; returns the state in which the turn ended."""
        marker = f"mark-{self.number}-{self._asked}-"
        self._asked += 1
        prompt = [{"type": "text", "text": script(f"# {marker}", *lines)}]
        meta = {"_meta": {"pykoclaw.dev/idempotencyKey": marker}} if self._keyed else {}
        while True:
            try:
                await self.front.call(
                    "session/prompt", sessionId=self.session, prompt=prompt, **meta
                )
                self.outcomes[marker] = "done"
            except RpcError as error:
                if error.data.get("retryable") and "turnState" not in error.data:
                    continue  # nothing was kept, as while a busy machine's other programs write
                # Its worker was killed: that is said, and the next prompt gets another one.
                self.outcomes[marker] = error.data["turnState"]
            except ServerGone:
                await self._return()
                continue
            return self.outcomes[marker]

    async def _return(self) -> None:
        """The front is dead: another one, from where its client stood."""
        while True:
            seen = self.seqs()
            with contextlib.suppress(ServerGone):
                await self._connect()
                await self.front.resume(
                    self.session, self._stack.work, after=seen[-1] if seen else 0
                )
                return

    async def _connect(self) -> None:
        front: Client = await self._stack.spawn_front()
        self.fronts.append(front)
        await front.initialize()


def tool(number: int) -> str:
    """A tool that takes a moment; some leave a daemon in a session of its own."""
    daemon = "setsid sleep 600 >/dev/null 2>&1 & " if number % 3 == 0 else ""
    return f"bash {daemon}sleep 0.2; echo from-the-tool"


async def kill_daemon(stack: Stack) -> None:
    """Kill the daemon that runs, or the next one, and wait until it is gone."""
    pid = await eventually(stack.daemon_pid, ENOUGH)
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not processes.alive(pid))


def was_asked(stack: Stack, words: str) -> bool:
    """Whether the model was asked this."""
    return any(words in json.dumps(one["messages"][-1]) for one in stack.asked())


def check_turns(stack: Stack, talker: Talker) -> None:
    """Each prompt is one turn, which has ended, and as its client was told."""
    turns = stack.rows(
        "SELECT prompt, state FROM acp_turns WHERE acp_session_id = ?", talker.session
    )
    assert {MARKER.findall(turn["prompt"])[0]: turn["state"] for turn in turns} == talker.outcomes
    assert len(turns) == len(talker.outcomes)
    assert set(talker.outcomes.values()) <= set(ENDED)


async def check_updates(stack: Stack, talker: Talker) -> None:
    """The log has no gap, and all clients of the session together were shown each event once.

    What they wrote is left out: a client whose front dies before it shows anything of a turn is told
    its message, as it resumes before it, and any other client is not.
    """
    places = stack.covered(talker.session)
    assert places == list(range(1, len(places) + 1))
    shown = talker.seqs()
    assert shown == sorted(set(shown))
    fresh = await stack.front()
    await fresh.load(talker.session, stack.work)
    assert _said_by_agent(talker.session, *talker.fronts) == _said_by_agent(talker.session, fresh)


def _said_by_agent(session: str, *fronts: Client) -> list[dict[str, Any]]:
    return told(
        update
        for front in fronts
        for update in front.of(session)
        if update["sessionUpdate"] != "user_message_chunk"
    )
